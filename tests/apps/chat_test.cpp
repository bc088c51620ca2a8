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
