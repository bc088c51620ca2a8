// Lines of JSON: what each kind becomes, how conversations are packed into windows, and every error.
#include <algorithm>
#include <fstream>
#include <map>

#include "bitgrad/base/json.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/tokenizer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

DatasetSpec jsonl_spec(const std::string& file, int64_t context, const std::string& chat = "") {
  DatasetSpec spec;
  spec.format = "jsonl";
  spec.file = file;
  spec.context = context;
  spec.tokenizer = "bytes";
  spec.keys["end"] = int64_t{0};  // no text has the byte 0
  if (!chat.empty()) spec.chat = ChatTable{.name = chat};
  return spec;
}

// The ids of a window, and those of its targets with a dot in place of what is none.
struct Window {
  std::string ids, targets;
  friend bool operator==(const Window&, const Window&) = default;
};
Window window_of(const Dataset& set, int64_t index) {
  const auto n = static_cast<size_t>(set.sample_shape()[0]);
  std::vector<int32_t> x(n), target(n);
  set.example(index, x.data(), target.data());
  Window w;
  for (size_t i = 0; i < n; ++i) {
    w.ids += x[i] == 0 ? '_' : static_cast<char>(x[i]);
    w.targets += target[i] == kIgnoredClass ? '.' : static_cast<char>(target[i]);
  }
  return w;
}

std::string chat_line(const std::vector<std::pair<std::string, std::string>>& messages) {
  Json list = Json::array();
  for (const auto& [role, content] : messages) list.push_back({{"role", role}, {"content", content}});
  return Json{{"messages", list}}.dump() + '\n';
}

ChatTable small_table() {
  ChatTable table;
  table.user = {"U", "|"};
  table.assistant = {"A", "|"};
  return table;
}

}  // namespace

TEST_CASE("Each kind of line becomes ids with the targets that count") {
  const TempDir temp;
  DatasetSpec spec = jsonl_spec(temp.file("a.jsonl"), 10);
  spec.split = "test";
  const auto only = [&](const std::string& text) {
    write(spec.file, text);
    const auto set = make_dataset(spec);
    REQUIRE(set->size() == 1);
    CHECK(set->target_form().shape == Shape{10});
    return window_of(*set, 0);
  };
  CHECK(only("{\"text\": \"abc\"}") == Window{"abc_______", "bc........"});
  CHECK(only("\n \r\n{\"prompt\": \"ab\", \"completion\": \"cd\"}\n") == Window{"abcd______", ".cd......."});
  spec.keys["loss_on"] = "all";
  CHECK(only("{\"prompt\": \"ab\", \"completion\": \"cd\"}") == Window{"abcd______", "bcd......."});
  spec.chat = small_table();
  const std::string turns = chat_line({{"user", "x"}, {"assistant", "yz"}, {"user", "q"}, {"assistant", "w"}}),
                    short_turns = chat_line({{"user", "x"}, {"assistant", "yz"}});
  CHECK(only(short_turns) == Window{"Ux|Ayz|___", "x|Ayz|...."});
  spec.keys["loss_on"] = "answers";
  CHECK(only(short_turns) == Window{"Ux|Ayz|___", "...yz|...."});
  CHECK(only("{\"prompt\": \"x\", \"completion\": \"yz\"}") == Window{"Ux|Ayz|___", "...yz|...."});
  // Longer than a window: the first ids go.
  CHECK(only(turns) == Window{"Ayz|Uq|Aw|", "yz|....w|."});
  spec.keys["loss_on"] = "last_answer";
  CHECK(only(turns).targets == ".......w|.");
}

TEST_CASE("Longer conversations are cut, omitted or refused, and each is counted") {
  const TempDir temp;
  DatasetSpec spec = jsonl_spec(temp.file("a.jsonl"), 6);
  spec.chat = small_table();
  spec.split = "test";
  write(spec.file, chat_line({{"user", "x"}, {"assistant", "y"}}) +
                       chat_line({{"user", "long"}, {"assistant", "yes"}}) + chat_line({{"user", "x"}}));
  const auto notes = [&] { return make_dataset(spec)->notes(); };
  const std::string none = "1 of 3 lines have no id that is a target and are omitted";
  const std::string mark = "bytes of 256 ids has no special token for |: the marks of data.chat are read as text";
  CHECK(make_dataset(spec)->size() == 2);
  REQUIRE(notes().size() == 3);
  CHECK(notes()[0] ==
        "1 of 3 lines have more ids than context = 6 and lost their first ones, 5 in all (too_long: cut)");
  CHECK(notes()[1] == none);
  CHECK(notes()[2].starts_with(mark));
  CHECK(window_of(*make_dataset(spec), 1) == Window{"|Ayes|", ".yes|."});
  spec.keys["too_long"] = "skip";
  CHECK(make_dataset(spec)->size() == 1);
  CHECK(notes()[0] == "1 of 3 lines have more ids than context = 6 and are omitted (too_long: skip)");
  spec.keys["too_long"] = "error";
  CHECK(error_code_of(notes) == 3);
  CHECK(contains(error_of(notes), "a.jsonl line 2: got 11 ids, expected at most 6 (context)"));
}

TEST_CASE("Packed windows hold each conversation once, whole, first-fit in the drawn order, and keep them apart") {
  const TempDir temp;
  const RandomStream draws{5, Purpose::kUser, 1, 0};
  DatasetSpec spec = jsonl_spec(temp.file("a.jsonl"), 24);
  spec.chat = small_table();
  std::map<std::string, int> wanted;
  std::string lines;
  int64_t ids = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string text(1 + draws.bits32(i) % 17, static_cast<char>('a' + i % 26));
    lines += chat_line({{"user", std::to_string(i % 10)}, {"assistant", text}});
    const std::string whole = "U" + std::to_string(i % 10) + "|A" + text + "|";
    ++wanted[whole];
    ids += std::ssize(whole);
  }
  write(spec.file, lines);
  const auto set = make_dataset(spec);
  CHECK(set->document_end() == 0);
  CHECK(set->epoch_order().kind == EpochOrder::Kind::kShuffled);
  CHECK(set->size() >= ids / 24);
  CHECK(set->size() <= 2 * ids / 24);
  std::map<std::string, int> found;
  int64_t targets = 0;
  for (int64_t w = 0; w < set->size(); ++w) {
    const Window window = window_of(*set, w);
    for (size_t at = 0; at < window.ids.size() && window.ids[at] != '_';) {
      const size_t end = std::min(window.ids.find('_', at), window.ids.size());
      ++found[window.ids.substr(at, end - at)];
      // Within a conversation, the answer and its mark; nothing across a border.
      const size_t answer = window.ids.find('A', at);
      for (size_t p = at; p < end; ++p)
        CHECK(window.targets[p] == (p >= answer && p + 1 < end ? window.ids[p + 1] : '.'));
      at = end + 1;
    }
    for (const char c : window.targets) targets += c != '.';
  }
  CHECK(found == wanted);
  CHECK(targets == ids - int64_t{4} * 200);
  // The same windows each time; for evaluation in the order of the file; without packing one each.
  const auto again = make_dataset(spec);
  CHECK(samples_record(*again) == samples_record(*set));
  spec.split = "test";
  const auto ordered = make_dataset(spec);
  CHECK(ordered->epoch_order().kind == EpochOrder::Kind::kSequential);
  CHECK(window_of(*ordered, 0).ids.starts_with("U0|A"));
  CHECK_FALSE(samples_record(*ordered) == samples_record(*set));
  spec.keys["pack"] = false;
  const auto apart = make_dataset(spec);
  CHECK(apart->size() == 200);
  CHECK(apart->document_end() == -1);
}

TEST_CASE("First-fit fills the first window with room, exactly full ones included") {
  const TempDir temp;
  DatasetSpec spec = jsonl_spec(temp.file("a.jsonl"), 8);
  spec.split = "test";  // in the order of the file
  std::string lines;
  for (const char* text : {"aaaaa", "bbbbbb", "cc", "ddd", "ee", "ffffffff"})
    lines += Json{{"text", text}}.dump() + '\n';
  write(spec.file, lines);
  const auto set = make_dataset(spec);
  REQUIRE(set->size() == 4);
  CHECK(window_of(*set, 0) == Window{"aaaaa_cc", "aaaa..c."});
  CHECK(window_of(*set, 1) == Window{"bbbbbb__", "bbbbb..."});
  CHECK(window_of(*set, 2) == Window{"ddd_ee__", "dd..e..."});
  CHECK(window_of(*set, 3) == Window{"ffffffff", "fffffff."});
}

TEST_CASE("The id that keeps conversations apart occurs in none of them") {
  const TempDir temp;
  DatasetSpec spec = jsonl_spec(temp.file("a.jsonl"), 16);
  spec.chat = small_table();
  write(spec.file, chat_line({{"user", "x"}, {"assistant", "y"}}));
  const auto open = [&] { make_dataset(spec); };
  spec.keys["end"] = int64_t{'x'};
  CHECK(contains(error_of(open), "end: got 120, which a conversation contains"));
  spec.keys["end"] = int64_t{256};
  CHECK(contains(error_of(open), "end: got 256, expected an id below 256"));
  spec.keys["end"] = int64_t{-1};
  CHECK(contains(error_of(open), "pack: no special token of bytes of 256 ids is free to keep conversations apart"));
  spec.keys["pack"] = false;
  CHECK(make_dataset(spec)->size() == 1);
}

TEST_CASE("Several files are read in the order of their names, and errors name file and line") {
  const TempDir temp;
  DatasetSpec spec = jsonl_spec(temp.file("c_*.jsonl"), 16);
  spec.split = "test";
  write(temp.file("c_2.jsonl"), "{\"text\": \"two\"}\n");
  write(temp.file("c_1.jsonl"), "{\"text\": \"one\"}\n");
  CHECK(window_of(*make_dataset(spec), 0).ids == "one_two_________");
  std::string before = "{\"text\": \"two\"}";
  const auto error = [&](const std::string& line) {
    write(temp.file("c_2.jsonl"), before + "\n\n" + line);
    const auto open = [&] { make_dataset(spec); };
    CHECK(error_code_of(open) == 3);
    CHECK(contains(error_of(open), temp.file("c_2.jsonl") + " line 3: "));
    return error_of(open);
  };
  CHECK(contains(error("{\"text\": \"a\""), "parse error"));
  CHECK(contains(error("[1]"), "got [1], expected an object"));
  CHECK(contains(error("{}"), "expected either messages, prompt and completion, or text"));
  CHECK(contains(error("{\"text\": 7}"), "text: got 7, expected a text"));
  CHECK(contains(error("{\"text\": \"a\", \"messages\": []}"), "got members text, messages, expected either"));
  CHECK(contains(error("{\"prompt\": \"a\"}"), "got members prompt, expected either"));
  CHECK(contains(error("{\"prompt\": \"a\", \"completion\": \"b\"}"),
                 "got prompt and completion, " + temp.file("c_1.jsonl") + " line 1 has text: lines are of one kind"));
  CHECK(contains(error("{\"text\": \"a\", \"tools\": [1]}"), "tools: a table of roles has no place for it"));
  CHECK(contains(error(std::string(40, '[')), "16"));
  spec.chat = ChatTable{.name = "chatml"};
  before.clear();
  write(temp.file("c_1.jsonl"), chat_line({{"user", "a"}, {"assistant", "b"}}));
  CHECK(contains(error(chat_line({{"robot", "x"}})), "role: got 'robot', chatml has system, user, assistant, tool"));
  CHECK(contains(error("{\"messages\": []}"), "messages: got none"));
  CHECK(contains(error("{\"messages\": [{\"role\": \"user\"}]}"), "messages.0: "));
  CHECK(contains(error("{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}"),
                 "messages.0: content: got [1], expected a text"));
  CHECK(contains(error("{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": [1]}]}"),
                 "messages.0: tool_calls: a table of roles"));
  const auto weighted = [](const std::string& weight) {
    return "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", "
           "\"weight\": " +
           weight + "}]}";
  };
  for (const std::string weight : {"0", "0.5", "\"1\"", "true"})
    CHECK(
        contains(error(weighted(weight)), "messages.1: weight: got " + weight + ", expected 1 or none: loss_on says"));
  for (const std::string weight : {"1", "1.0", "null"}) {
    write(temp.file("c_2.jsonl"), weighted(weight));
    CHECK(make_dataset(spec)->size() == 2);
  }
  // A line that would take gigabytes.
  std::string values = "{\"text\": \"a\", \"x\": [0";
  for (int i = 0; i < 1'000'000; ++i) values += ",0";
  CHECK(contains(error(values + "]}"), "more than 1000000 values"));
}

TEST_CASE("A pattern that no file fits is an error of the format") {
  const TempDir temp;
  const DatasetSpec spec = jsonl_spec(temp.file("c_*.jsonl"), 16);
  const auto open = [&] { make_dataset(spec); };
  CHECK(error_code_of(open) == 3);
  CHECK(contains(error_of(open), "[data.jsonl] '" + spec.file + "': got no file, expected at least one that fits c_*"));
}

TEST_CASE("Lines are read with the tokenizer of the model, which data.tokenizer must be") {
  const TempDir temp;
  DatasetSpec spec = jsonl_spec(temp.file("a.jsonl"), 16);
  write(spec.file, "{\"text\": \"abc\"}\n");
  spec.of_model = make_tokenizer("bytes", "");
  for (const std::string name : {"bytes", "", "gone.json"}) {
    spec.tokenizer = name;
    CHECK(make_dataset(spec)->tokenizer() == spec.of_model);
  }
  spec.tokenizer = "chars";
  const auto open = [&] { make_dataset(spec); };
  CHECK(error_code_of(open) == 3);
  CHECK(contains(error_of(open), "[data.jsonl] tokenizer: got chars, the model was trained with bytes of 256 ids."));
  spec.tokenizer = source_path("tests/golden/tokenizers/qwen2.json");
  CHECK(contains(error_of(open), "[data.jsonl] tokenizer: " + spec.tokenizer + " and the model's differ: "));
}

TEST_CASE("What does not fit lines of JSON is an error, and members that are not read are named") {
  const TempDir temp;
  DatasetSpec spec = jsonl_spec(temp.file("a.jsonl"), 16);
  write(spec.file, "{\"id\": 1, \"text\": \"abc\", \"source\": {}}\n{\"text\": \"d\", \"id\": 2}\n");
  REQUIRE(make_dataset(spec)->notes().size() == 2);
  CHECK(make_dataset(spec)->notes()[0] == "1 of 2 lines have no id that is a target and are omitted");
  CHECK(make_dataset(spec)->notes()[1] == "members of lines that are not read: id, source");
  DatasetSpec chats = jsonl_spec(temp.file("m.jsonl"), 64, "chatml");
  write(chats.file,
        "{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": \"Eve\"},"
        " {\"role\": \"assistant\", \"content\": \"b\", \"refusal\": null, \"weight\": 1}]}\n");
  const std::vector<std::string> notes = make_dataset(chats)->notes();
  CHECK(std::find(notes.begin(), notes.end(),
                  "members of lines that are not read: id, messages.*.name, messages.*.refusal") != notes.end());
  const auto open = [&] { make_dataset(spec); };
  spec.tokenizer = "chars";
  CHECK(contains(error_of(open), "tokenizer: got chars, expected a file (.json, .model) or bytes"));
  spec.tokenizer = "";
  CHECK(contains(error_of(open), "tokenizer: got none"));
  spec.tokenizer = "bytes";
  spec.chat = small_table();
  CHECK(contains(error_of(open), "a.jsonl line 1: data.chat: got a table, the lines hold texts without roles"));
  spec.chat.reset();
  write(spec.file, "");
  CHECK(contains(error_of(open), "got no line with a target"));
  write(spec.file, chat_line({{"user", "a"}, {"assistant", "b"}}));
  CHECK(contains(error_of(open), "a.jsonl line 1: the lines hold messages, and data.chat names no table of roles"));
}
