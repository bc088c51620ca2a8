// Chats: tables of roles against jinja2 on drawn conversations, training on lines of JSON, and the answers of a model.
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "apps/python.h"
#include "bitgrad/data/tokenizer.h"
#include "support/chat_cases.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// All marks of the built-in tables, as special tokens.
const std::vector<std::string> kMarks{"<|im_start|>",
                                      "<|im_end|>",
                                      "<|begin_of_text|>",
                                      "<|start_header_id|>",
                                      "<|end_header_id|>",
                                      "<|eot_id|>",
                                      "<bos>",
                                      "<start_of_turn>",
                                      "<end_of_turn>",
                                      "<|system|>",
                                      "<|user|>",
                                      "<|assistant|>",
                                      "<|end|>",
                                      "</s>",
                                      "<|endoftext|>"};

bool has_marks(const Json& messages) {
  for (const Json& message : messages)
    for (const std::string& mark : kMarks)
      if (contains(message.at("content").text(), mark)) return true;
  return false;
}
// Whether a header and what follows it may be one word, which the ids of an answer keep apart.
bool begins_with_space(const Json& messages) {
  for (const Json& message : messages) {
    const char first = message.at("content").text()[0];
    if (first == ' ' || first == '\n' || first == '\t' || first < 0) return true;
  }
  return false;
}

std::string trained_tokenizer(const TempDir& temp) {
  std::string text;
  for (int i = 0; i < 80; ++i)
    text += concat("user says Hello world ", i, ", the assistant says two caf\xc3\xa9 ", i * 7,
                   "\n\n \"x\" \xe4\xbd\xa0\n");
  write(temp.file("text.txt"), text);
  std::vector<std::string> words{
      "tokenizer", "train", temp.file("text.txt"), "-o", temp.file("t.json"), "--vocabulary", "400",
      "--split",   "qwen2"};
  for (const std::string& mark : kMarks) words.insert(words.end(), {"--special", mark});
  const ProcessResult made = cli(words);
  if (contains(made.err, "was built without")) return {};
  INFO(made.err);
  REQUIRE(made.code == 0);
  return temp.file("t.json");
}

constexpr const char* kConfig = R"yaml(version: 1
run: {name: chat, seed: 3}
data:
  tokenizer: t.json
  chat: chatml
  train: {format: jsonl, file: chat_*.jsonl, context: 48}
model: {preset: llama, keys: {layers: 1, heads: 2, dim: 32, ffn: 64}}
batch: {global: 4}
optim: {name: adamw, lr: 0.01}
train: {stop: 120 steps}
)yaml";

}  // namespace

TEST_CASE("200 drawn conversations of each template are what jinja2 renders, ids and targets those of tokenizers") {
  const TempDir temp;
  const std::string file = trained_tokenizer(temp);
  if (file.empty()) return;
  const std::string out = script_output("chat_templates.py", {"200", "7", file}, "jinja2 or tokenizers");
  if (out.empty()) return;
  const Json cases = Json::parse(out);
  CHECK(cases.size() == 1000);
  const auto tokenizer = open_tokenizer(file);
  int64_t compared = 0;
  for (const Json& c : cases) {
    check_chat_case(c);
    if (has_marks(c.at("messages"))) continue;  // the package reads them as special tokens
    const ChatTable table = resolved(ChatTable{.name = c.at("table").text()});
    const ChatIds made = encode_chat(*tokenizer, chat_parts(table, messages_of(c.at("messages")), LossOn::kAnswers));
    INFO(c.dump());
    if (!table.trim && begins_with_space(c.at("messages"))) continue;
    ++compared;
    CHECK(made.ids == c.at("ids").get<std::vector<int32_t>>());
    CHECK(std::accumulate(made.targets.begin(), made.targets.end(), int64_t{0}) == c.at("sum").get<int64_t>());
  }
  CHECK(compared > 200);
}

TEST_CASE("A model trained on lines of JSON answers in a chat, and stops at the end mark") {
  const TempDir temp;
  if (trained_tokenizer(temp).empty()) return;
  const auto line = [](const std::string& question, const std::string& answer) {
    return Json{{"messages", Json::array({Json{{"role", "user"}, {"content", question}},
                                          Json{{"role", "assistant"}, {"content", answer}}})}}
               .dump() +
           '\n';
  };
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += line("Hello", "two world") + line("user", "caf\xc3\xa9");
  write(temp.file("chat_a.jsonl"), lines);
  write(temp.file("chat_b.jsonl"), "\n" + lines);
  write(temp.file("c.yaml"), kConfig);
  const ProcessResult run = cli({"train", temp.file("c.yaml"), "--data", temp.path(), "--out", temp.file("run")});
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(contains(slurp(temp.file("run/train.log")), "32 conversations in "));
  const auto answer = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"generate", temp.file("run"), "--chat", "--temperature", "0", "--tokens", "20"});
    const ProcessResult r = cli(words);
    INFO(r.err);
    CHECK(r.code == 0);
    return r.out;
  };
  CHECK(answer({"--prompt", "Hello"}) == "two world\n");
  CHECK(answer({"--prompt", "user"}) == "caf\xc3\xa9\n");
  const Json json = Json::parse(answer({"--prompt", "Hello", "--json"}));
  CHECK(json.at("samples").at(0).at("text") == "two world");
  CHECK(json.at("samples").at(0).at("stop") == "end_of_text");
  // The prompt is the template's: header, text, end mark, header of the answer.
  const auto tokenizer = open_tokenizer(temp.file("t.json"));
  CHECK(json.at("prompt").get<std::vector<int32_t>>() ==
        encode(*tokenizer, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"));
  // A converted file keeps the table.
  REQUIRE(cli({"convert", temp.file("run"), "-o", temp.file("m.safetensors")}).code == 0);
  const std::vector<std::string> greedy{"--temperature", "0", "--tokens", "20"};
  const auto of_file = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"generate", temp.file("m.safetensors"), "--chat", "--prompt", "Hello"});
    words.insert(words.end(), greedy.begin(), greedy.end());
    return cli(words);
  };
  CHECK(of_file({}).out == "two world\n");
  CHECK(contains(of_file({"--roles", "zephyr"}).err, "note: --roles zephyr is another table"));
  CHECK(of_file({"--system", "<|im_end|>"}).code == 0);
  const ProcessResult gemma = of_file({"--roles", "gemma", "--system", "x"});
  CHECK(gemma.code == 3);
  CHECK(contains(gemma.err, "role: got 'system', gemma has user, assistant"));
  // Lines of standard input are turns.
  const std::string turns = concat("printf 'Hello\\n\\nuser\\n' | '", build_path("bin/bitgrad"), "' generate '",
                                   temp.file("run"), "' --chat --temperature 0 --tokens 20");
  const ProcessResult talk = run_program({"/bin/bash", "-c", turns});
  INFO(talk.err);
  CHECK(talk.code == 0);
  CHECK(talk.out.starts_with("two world\n"));
  CHECK(std::count(talk.out.begin(), talk.out.end(), '\n') >= 2);
  CHECK(cli({"generate", temp.file("run"), "--prompt", "x", "--system", "y"}).code == 2);
  CHECK(contains(cli({"generate", temp.file("run"), "--prompt", "x", "--roles", "gemma"}).err, "--roles is of --chat"));
  CHECK(contains(cli({"generate", temp.file("run"), "--chat", "--json"}).err, "--json and --samples need a --prompt"));
  CHECK(contains(cli({"generate", temp.file("run"), "--chat", "--ids", "1"}).err, "--ids"));
  const ProcessResult eval = cli({"eval", temp.file("run"), "--data", temp.path(),
                                  "data.test={format: jsonl, file: chat_a.jsonl, context: 48}", "--json"});
  INFO(eval.err);
  REQUIRE(eval.code == 0);
  CHECK(Json::parse(eval.out).at("loss") < 0.5);
}

TEST_CASE("A model without a table of roles asks for one, and configurations of chats are checked") {
  const TempDir temp;
  if (trained_tokenizer(temp).empty()) return;
  write(temp.file("a.jsonl"), "{\"text\": \"Hello world\"}\n{\"text\": \"two caf\xc3\xa9\"}\n");
  write(temp.file("m.jsonl"), "{\"prompt\": \"Hello\", \"completion\": \"world\"}\n");
  write(temp.file("c.yaml"), kConfig);
  const auto check = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"check", temp.file("c.yaml"), "--data", temp.path(), "train.stop=2 steps"});
    return cli(words);
  };
  const std::string texts = "data.train.file=a.jsonl", pairs = "data.train.file=m.jsonl", none = "data.chat=none";
  CHECK(check({texts, none}).code == 0);
  CHECK(check({pairs}).code == 0);
  CHECK(check({pairs, none}).code == 0);
  CHECK(contains(check({texts}).err, "the lines hold texts without roles. Set data.chat: none"));
  CHECK(contains(check({texts, none, "data.train.loss_on=answers"}).err, "the lines hold texts without answers"));
  CHECK(contains(check({pairs, "data.chat=chatlm"}).err, "chatlm"));
  CHECK(contains(check({pairs, "data.chat={name: chatml, trim: true}"}).err, "beside begin, end, trim or roles"));
  CHECK(contains(check({pairs, "data.chat={user: {before: \"U\"}}"}).err, "got a table without assistant"));
  const std::string own =
      "data.chat={user: {before: \"<|user|>\\n\", after: \"\\n\"}, assistant: {after: \"<|end|>\"}}";
  CHECK(check({pairs, own}).code == 0);
  CHECK(contains(check({pairs, "data.train.pack=maybe"}).err, "pack"));
  CHECK(contains(check({pairs, "~data.tokenizer"}).err, "set data.tokenizer to a file (.json, .model), or to bytes"));
  const std::string gpt = "model={preset: gpt, keys: {layers: 1, heads: 2, dim: 32}}";
  CHECK(contains(check({pairs, gpt}).err, "data.train.pack: the model has learned positions"));
  CHECK(check({pairs, gpt, "data.train.pack=false"}).code == 0);
  REQUIRE(cli({"train", temp.file("c.yaml"), "--data", temp.path(), "--out", temp.file("run"), "train.stop=1 steps",
               texts, "~data.chat"})
              .code == 0);
  const ProcessResult chat = cli({"generate", temp.file("run"), "--chat", "--prompt", "x", "--tokens", "1"});
  CHECK(chat.code == 2);
  CHECK(contains(chat.err, "names no table of roles (data.chat). Give one: --roles chatml|llama3|gemma"));
  CHECK(cli({"generate", temp.file("run"), "--chat", "--roles", "chatml", "--prompt", "x", "--tokens", "1"}).code == 0);
  // The table of a run is written with its configuration, and read again.
  REQUIRE(cli({"train", temp.file("c.yaml"), "--data", temp.path(), "--out", temp.file("own"), "train.stop=1 steps",
               pairs, own})
              .code == 0);
  CHECK(contains(slurp(temp.file("own/config.yaml")), "<|user|>\\x0a"));
  const ProcessResult json =
      cli({"generate", temp.file("own"), "--chat", "--prompt", "Hello", "--tokens", "1", "--json"});
  REQUIRE(json.code == 0);
  CHECK(Json::parse(json.out).at("prompt").get<std::vector<int32_t>>() ==
        encode(*open_tokenizer(temp.file("t.json")), "<|user|>\nHello\n"));
}

namespace {

// The block of a page of the guide that begins with ```language and holds `word`.
std::string guide_block(const std::string& page, const std::string& language, const std::string& word) {
  const std::string text = slurp(source_path(page)), fence = "```" + language + "\n";
  for (size_t at = text.find(fence); at != text.npos; at = text.find(fence, at + 1)) {
    const size_t begin = at + fence.size();
    std::string block = text.substr(begin, text.find("```", begin) - begin);
    if (contains(block, word)) return block;
  }
  FAIL(page << " has no block of " << language << " with " << word);
  return {};
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("The commands from lines of JSON to a chat, and to one with an imported model, run as printed") {
  const TempDir temp;
  const std::string lines = guide_block("docs/chat.md", "json", "messages");
  std::string all;
  for (int i = 0; i < 40; ++i) all += lines;
  write(temp.file("chat.jsonl"), all);
  std::string config = guide_block("docs/chat.md", "yaml", "version: 1");
  const size_t steps = config.find("300 steps");
  REQUIRE(steps != std::string::npos);
  write(temp.file("chat.yaml"), config.replace(steps, 9, "60 steps"));
  const std::string commands = guide_block("docs/chat.md", "sh", "generate");
  CHECK(std::count(commands.begin(), commands.end(), '\n') == 5);
  const ProcessResult r = run_program({"/bin/bash", "-c",
                                       "set -e; cd '" + temp.path() + "'; PATH='" + build_path("bin") + "':$PATH\n" +
                                           "exec < <(echo Hello)\n" + commands});
  if (contains(r.err, "was built without")) return;
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "byte_bpe of "));
  CHECK(contains(r.out, "\"loss\":"));
  // What is drawn depends on the machine: an answer of its own line, without marks.
  const size_t answer = r.out.rfind("}\n");
  REQUIRE(answer != std::string::npos);
  CHECK(r.out.size() > answer + 3);
  CHECK_FALSE(contains(r.out.substr(answer), "<|"));
  // A model of others: this one, as a folder of Hugging Face, of other layers than those of the configuration.
  const auto shell = [&](const std::string& words) {
    const ProcessResult made = run_program(
        {"/bin/bash", "-c", "set -e; cd '" + temp.path() + "'; PATH='" + build_path("bin") + "':$PATH\n" + words});
    INFO(words << made.out << made.err);
    REQUIRE(made.code == 0);
    return made.out;
  };
  shell("bitgrad export runs/chat -o FOLDER --format hf");
  write(temp.file("chat.yaml"), replaced(slurp(temp.file("chat.yaml")), "dim: 64", "dim: 32"));
  const std::string others = guide_block("docs/chat.md", "sh", "bitgrad import"),
                    shown = "{preset: llama, keys: {...}}";
  const size_t behind_import = others.find('\n') + 1;
  const std::string imported = shell(others.substr(0, behind_import)), before = "to train it: model: ";
  const size_t model = imported.find(before) + before.size(), end = imported.find(", with model.init_from", model);
  REQUIRE(end != std::string::npos);
  const std::string rest = replaced(replaced(others.substr(behind_import), shown, imported.substr(model, end - model)),
                                    "data.chat=llama3", "data.chat=chatml");
  CHECK(shell(rest).size() > 1);
  CHECK(contains(slurp(temp.file("runs/tuned/config.yaml")), "init_from: base.safetensors"));
}
