// Tables of roles against renderings of the public templates (tests/golden/chat.json), and ids of conversations.
#include "bitgrad/data/chat.h"

#include "bitgrad/base/file.h"
#include "bitgrad/data/tokenizer_train.h"
#include "data/tokenizer_text.h"
#include "support/chat_cases.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::vector<std::string> kMarks{"<|im_start|>", "<|im_end|>", "<|endoftext|>"};

std::shared_ptr<const Tokenizer> trained(const std::string& kind, int64_t vocabulary) {
  TokenizerTraining spec;
  spec.kind = kind;
  spec.vocabulary = vocabulary;
  spec.special = kMarks;
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += concat("user asks ", i, " and the assistant answers ", i * i, ".\nsystem <|im_end|>\n");
  try {
    return train_tokenizer(spec, {text}).tokenizer;
  } catch (const Error& e) {
    if (!contains(e.what(), "was built without")) throw;
    WARN(e.what());
    return nullptr;
  }
}

int32_t id_of(const Tokenizer& tokenizer, const std::string& mark) {
  int32_t found = -1;
  tokenizer.split_special(mark, [&](std::string_view, int32_t id) { found = id; });
  return found;
}

const std::vector<ChatMessage> kTwoTurns{{"system", "be kind"},
                                         {"user", "hi"},
                                         {"assistant", "hello <|im_end|> you"},
                                         {"user", "bye"},
                                         {"assistant", "ciao"}};

std::string targets_text(const Tokenizer& tokenizer, const ChatIds& made) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < made.ids.size(); ++i)
    if (made.targets[i] != 0) ids.push_back(made.ids[i]);
  std::string text;
  for (const int32_t id : ids)
    text += tokenizer.special(id) ? "[" + std::to_string(id) + "]" : std::string(tokenizer.bytes(id));
  return text;
}

}  // namespace

TEST_CASE("Tables of roles render conversations as the public templates do") {
  const std::vector<uint8_t> bytes = file_system().read(source_path("tests/golden/chat.json"));
  const Json cases = Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  CHECK(cases.size() == 30);
  for (const Json& c : cases) check_chat_case(c);
}

TEST_CASE("Targets are the answers with their end marks, the last answer, or everything") {
  const auto tokenizer = trained("byte_bpe", 320);
  if (tokenizer == nullptr) return;
  const ChatTable table = resolved(ChatTable{.name = "chatml"});
  const auto targets = [&](LossOn loss) {
    return targets_text(*tokenizer, encode_chat(*tokenizer, chat_parts(table, kTwoTurns, loss)));
  };
  CHECK(targets(LossOn::kAnswers) == "hello <|im_end|> you[1]ciao[1]");
  CHECK(targets(LossOn::kLastAnswer) == "ciao[1]");
  CHECK(targets(LossOn::kAll) ==
        "[0]system\nbe kind[1]\n[0]user\nhi[1]\n[0]assistant\nhello <|im_end|> "
        "you[1]\n[0]user\nbye[1]\n[0]assistant\nciao"
        "[1]\n");
}

TEST_CASE("Special tokens are read in templates alone, by every tokenizer") {
  for (const std::string kind : {"byte_bpe", "sentencepiece_bpe", "unigram"}) {
    const auto tokenizer = trained(kind, 320);
    if (tokenizer == nullptr) continue;
    INFO(kind);
    const int32_t start = id_of(*tokenizer, "<|im_start|>"), end = id_of(*tokenizer, "<|im_end|>");
    CHECK(start >= 0);
    CHECK(end >= 0);
    const ChatTable table = resolved(ChatTable{.name = "chatml"});
    const ChatIds made = encode_chat(*tokenizer, chat_parts(table, kTwoTurns, LossOn::kAnswers));
    CHECK(std::count(made.ids.begin(), made.ids.end(), start) == 5);
    CHECK(std::count(made.ids.begin(), made.ids.end(), end) == 5);
    const std::string text = tokenizer->decode(made.ids);
    CHECK(contains(text, "hello <|im_end|> you"));
  }
}

TEST_CASE("A mark that the tokenizer knows as an ordinary token is cut where an author wrote it") {
  // <turn> is an added token that is not special, as <start_of_turn> of Gemma 2.
  const auto tokenizer = open_tokenizer(source_path("tests/golden/tokenizers/qwen2.json"));
  if (tokenizer == nullptr) return;
  ChatTable table;
  table.user = {"na\xc3\xafve\n", "\n"};
  table.assistant = {"A: ", "na\xc3\xafve"};
  const int32_t mark = id_of(*tokenizer, "na\xc3\xafve");
  REQUIRE(mark >= 0);
  CHECK_FALSE(tokenizer->special(mark));
  const ChatMessage messages[] = {{"user", "so na\xc3\xafvena\xc3\xafve"}, {"assistant", "na\xc3\xafve"}};
  const std::vector<ChatPart> parts = chat_parts(resolved(table), messages, LossOn::kAnswers);
  const ChatIds made = encode_chat(*tokenizer, parts);
  CHECK(std::count(made.ids.begin(), made.ids.end(), mark) == 2);
  CHECK(tokenizer->decode(made.ids) == text_of(parts));
}

TEST_CASE("Many marks in one message are cut in one go, and one of a single character is an error") {
  const TempDir temp;
  const std::string path = source_path("tests/golden/tokenizers/qwen2.json"), smile = "\xf0\x9f\x99\x82";
  const std::vector<uint8_t> bytes = file_system().read(path);
  Json file = Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto add = [&](int64_t id, const std::string& text) {
    Json token = file.at("added_tokens").items().back();
    token["id"] = id;
    token["content"] = text;
    file["added_tokens"].push_back(token);
  };
  add(421, "<a>");
  add(422, "a>b");  // what is left of <a>b where that is cut
  add(423, smile);
  write_file_atomically(temp.file("t.json"), file.dump());
  const auto tokenizer = open_tokenizer(temp.file("t.json"));
  ChatTable table;
  table.user = {"na\xc3\xafve", "<a>"};
  table.assistant = {"a>b", "<a>"};
  const auto made = [&](const ChatTable& roles, const std::string& content) {
    const ChatMessage messages[] = {{"user", content}, {"assistant", content}};
    const std::vector<ChatPart> parts = chat_parts(resolved(roles), messages, LossOn::kAnswers);
    const ChatIds ids = encode_chat(*tokenizer, parts);
    CHECK(tokenizer->decode(ids.ids) == text_of(parts));
    return ids;
  };
  std::string many;
  for (int i = 0; i < 50'000; ++i) many += "na\xc3\xafve";
  for (const std::string& content : {many, std::string("<a>b <a>b<a><a>"), std::string("so a>b<a>bna\xc3\xafve")}) {
    const ChatIds ids = made(table, content);
    const auto count = [&](const std::string& mark) {
      return std::count(ids.ids.begin(), ids.ids.end(), id_of(*tokenizer, mark));
    };
    CHECK(count("na\xc3\xafve") == 1);  // those of the table
    CHECK(count("<a>") == 2);
    CHECK(count("a>b") == 1);
  }
  table.user.before = smile;
  made(table, "no mark");
  const auto cut = [&] { made(table, "x " + smile + " y"); };
  CHECK(error_code_of(cut) == 3);
  CHECK(contains(error_of(cut), "a message holds the mark '" + smile + "', a single character, which cannot be cut"));
}

TEST_CASE("No id covers what is a target and what is not") {
  const auto tokenizer = trained("byte_bpe", 330);
  if (tokenizer == nullptr) return;
  ChatTable table;
  table.user = {"u", ""};
  table.assistant = {" an", "<|im_end|>"};
  const ChatMessage messages[] = {{"user", "x"}, {"assistant", "swers"}};  // " answers" is a token
  CHECK(encode(*tokenizer, " answers").size() == 1);
  const ChatIds made = encode_chat(*tokenizer, chat_parts(resolved(table), messages, LossOn::kAnswers));
  CHECK(targets_text(*tokenizer, made) == "swers[1]");
}

TEST_CASE("Text without its outer white space is that of Python") {
  CHECK(data::without_outer_spaces(" \t\xc2\xa0 a b \xe3\x80\x80\x1f\n") == "a b");
  CHECK(data::without_outer_spaces("\x1c\x1c \xe2\x80\x8b") == "\xe2\x80\x8b");  // U+200B is no white space
  CHECK(data::without_outer_spaces(" \n ").empty());
  CHECK(data::without_outer_spaces("").empty());
}

TEST_CASE("Tables of roles that cannot be used are reported") {
  const auto error = [](const ChatTable& table) { return error_of([&] { static_cast<void>(resolved(table)); }); };
  CHECK(contains(error({.name = "chatlm"}), "Did you mean 'chatml'?"));
  ChatTable table{.name = "chatml"};
  table.begin = "<s>";
  CHECK(contains(error(table), "got the name chatml beside begin, end, trim or roles"));
  table.name.clear();
  CHECK(contains(error(table), "got a table without user, expected user: {before, after} and assistant"));
  table.user = {"U: ", "\n"};
  CHECK(contains(error(table), "got a table without assistant"));
  table.assistant = {"A: ", "\n"};
  CHECK(contains(error(table), "assistant.after: got white space, expected a mark that ends an answer"));
  table.assistant.after = "</s>\n";
  CHECK(answer_end(resolved(table)) == "</s>");
  const ChatMessage message{"system", "x"};
  const auto parts = [&] { chat_parts(table, {&message, 1}, LossOn::kAll); };
  CHECK(error_code_of(parts) == 3);
  CHECK(contains(error_of(parts), "role: got 'system', the table has user, assistant."));
  CHECK(resolved(ChatTable{.name = "none"}).user.given() == false);
}
