// bitgrad tokenizer train: against BpeTrainer of the Python package tokenizers, and what it refuses.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/cli.h"
#include "apps/python.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/tokenizer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A text with many ties and words of few letters, characters of several bytes, digits and blanks.
std::string drawn_text(uint64_t seed) {
  static const std::vector<std::string> kParts{
      "a",    "b",  "aa",      "ab", "\xc3\xa9", "\xe6\x97\xa5",     " ", " ",   "1",    "23", "'s", "\n",
      "\n\n", "  ", "<|end|>", "c",  ".",        "\xf0\x9f\x99\x82", "z", "the", " the", "\t"};
  const RandomStream draws{seed, Purpose::kUser, 9, 0};
  std::string text;
  const size_t known = 3 + seed % (kParts.size() - 2);
  for (uint64_t i = 0; i < 200 + 150 * seed; ++i) text += kParts[draws.bits32(i) % known];
  return text;
}

struct Training {
  std::vector<std::string> texts, special;
  std::string out, split;
  int64_t vocabulary;

  ProcessResult run() const {
    std::vector<std::string> words{"tokenizer", "train"};
    words.insert(words.end(), texts.begin(), texts.end());
    words.insert(words.end(), {"-o", out, "--vocabulary", std::to_string(vocabulary), "--force"});
    for (const std::string& token : special) words.insert(words.end(), {"--special", token});
    if (!split.empty()) words.insert(words.end(), {"--split", split});
    return cli(words);
  }
  Json record() const { return {{"texts", texts}, {"file", out}, {"special", special}, {"vocabulary", vocabulary}}; }
};

bool lacks_library(const ProcessResult& r) { return contains(r.err, "was built without"); }

}  // namespace

TEST_CASE("byte-level BPE is that of BpeTrainer of the package tokenizers, on drawn texts and on Shakespeare") {
  const TempDir temp;
  std::vector<Training> all;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string name = temp.file("t" + std::to_string(seed));
    write(name + ".txt", drawn_text(seed));
    write(name + "b.txt", drawn_text(seed * 7 % 5));
    std::vector<std::string> special;
    if (seed % 3 > 0) special.push_back("<|endoftext|>");
    if (seed % 3 > 1) special.insert(special.end(), {"the", "<|end|>"});  // also texts of merges, and of the words
    all.push_back({{name + ".txt", name + "b.txt"},
                   special,
                   name + ".json",
                   seed % 4 == 1 ? "qwen2" : "",
                   static_cast<int64_t>(256 + special.size() + 15 * seed)});
  }
  const char* const data = std::getenv("BITGRAD_DATA");
  const std::string plays = concat(data == nullptr ? "" : data, "/text/tinyshakespeare.txt");
  if (std::filesystem::exists(plays))
    for (const int64_t vocabulary : {512, 2048})
      all.push_back({{plays}, {"<|endoftext|>"}, temp.file(concat("plays", vocabulary, ".json")), "", vocabulary});
  else
    WARN("skipped a text: no " + plays + ". Set BITGRAD_DATA");
  Json cases = Json::array();
  for (const Training& training : all) {
    const ProcessResult made = training.run();
    if (lacks_library(made)) return;
    INFO(made.err);
    REQUIRE(made.code == 0);
    cases.push_back(training.record());
  }
  write(temp.file("cases.json"), cases.dump());
  const std::string words = "ROMEO: a b' <|endoftext|> the  bab 123";
  const std::vector<std::string> found =
      lines_of(script_output("bpe_trainer.py", {temp.file("cases.json"), words}, "tokenizers"));
  if (found.empty()) return;
  REQUIRE(found.size() == all.size() + 1);
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(all[i].out);
    CHECK(found[i] == "equal");
  }
  CHECK(found.back() == joined(encode(*open_tokenizer(all[0].out), words), " "));
}

TEST_CASE("a trained tokenizer is reported, and trains a model") {
  const TempDir temp;
  std::string text;
  for (int i = 0; i < 60; ++i) text += concat("line ", i, " of the text that the tokenizer reads.\n");
  write(temp.file("a.txt"), text);
  const Training training{{temp.file("a.txt")}, {"<|endoftext|>", "<|im_start|>"}, temp.file("my.json"), "", 300};
  const ProcessResult made = training.run();
  if (lacks_library(made)) return;
  INFO(made.err);
  REQUIRE(made.code == 0);
  CHECK(contains(made.out, "byte_bpe of 300 ids, 2 special tokens, from " + std::to_string(text.size())));
  CHECK(contains(made.out, "the end of a text is id 0"));
  const auto tokenizer = open_tokenizer(training.out);
  CHECK(tokenizer->decode(encode(*tokenizer, text)) == text);
  CHECK(encode(*tokenizer, "<|im_start|>") == std::vector<int32_t>{1});
  CHECK(cli({"tokenize", temp.file("a.txt"), "-o", temp.file("set"), "--tokenizer", training.out}).code == 0);
  // A vocabulary that the text does not fill.
  Training large = training;
  large.vocabulary = 100000;
  const ProcessResult few = large.run();
  CHECK(few.code == 0);
  CHECK(contains(few.err, "ids, fewer than the 100000 of vocabulary"));
  for (const std::string kind : {"sentencepiece_bpe", "unigram"}) {
    const std::string out = temp.file(kind + ".model");
    const ProcessResult pieces = cli({"tokenizer", "train", temp.file("a.txt"), "-o", out, "--kind", kind,
                                      "--vocabulary", "290", "--special", "<|im_start|>", "--special", "a,\"b\""});
    if (lacks_library(pieces)) continue;
    INFO(kind << pieces.err);
    REQUIRE(pieces.code == 0);
    CHECK(contains(pieces.out, kind + " of 290 ids, 2 special tokens"));
    const auto opened = open_tokenizer(out);
    CHECK(opened->vocabulary() == 290);
    CHECK(opened->decode(encode(*opened, "  a line \xe2\x82\xac\n")) == "  a line \xe2\x82\xac\n");
    CHECK(opened->special(3));
    CHECK(opened->special(4));
    CHECK_FALSE(opened->special(5));
  }
}

TEST_CASE("tokenizer train says what it cannot train on") {
  const TempDir temp;
  write(temp.file("a.txt"), "some text, some more text");
  write(temp.file("empty.txt"), "");
  write(temp.file("bad.txt"), "fine\nnot \xff\n");
  const auto error = [&](std::vector<std::string> words, int code) {
    words.insert(words.begin(), {"tokenizer", "train"});
    if (std::find(words.begin(), words.end(), "-o") == words.end())
      words.insert(words.end(), {"-o", temp.file("x.json")});
    const ProcessResult r = cli(words);
    INFO(r.err);
    CHECK(r.code == code);
    CHECK_FALSE(std::filesystem::exists(temp.file("x.json")));
    return r.err;
  };
  const std::string a = temp.file("a.txt"), v = "--vocabulary", s = "--special";
  CHECK(contains(error({temp.file("none.txt"), v, "300"}, 3), "no such file, expected a text"));
  CHECK(contains(error({temp.file("empty.txt"), v, "300"}, 3), "got an empty text, expected at least one byte"));
  CHECK(contains(error({temp.file("bad.txt"), v, "300"}, 3), "bad.txt"));
  CHECK(contains(error({temp.file("bad.txt"), v, "300"}, 3), "line 2, byte 9: begins no well-formed UTF-8 character"));
  CHECK(contains(error({a, v, "257", s, "<a>", s, "<b>"}, 2),
                 "vocabulary: got 257, expected at least 258: 256 bytes and 2 special tokens"));
  CHECK(contains(error({a, v, "300", s, "<a>", s, "<a>"}, 2), "special: got '<a>' twice, expected each token once"));
  CHECK(contains(error({a, v, "300", s, ""}, 2), "special: got an empty text"));
  CHECK(contains(error({a, v, "300", s, "q"}, 2), "special: got 'q', which is the token of a byte"));
  CHECK(contains(error({a, v, "300", "--kind", "wordpiece"}, 2), "wordpiece"));
  CHECK(contains(error({a, v, "300", "-o", temp.file("x.model")}, 2),
                 "expected a name with .json at its end for --kind byte_bpe"));
  CHECK(contains(error({a, v, "300", "-o", temp.file("x.tokens.json")}, 2), "not .tokens.json"));
  // Lines of JSON: the texts in them.
  write(temp.file("a.jsonl"), "{\"text\": \"abc\"}\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"de\"}]}\n");
  const ProcessResult lines =
      cli({"tokenizer", "train", temp.file("a.jsonl"), v, "300", "-o", temp.file("lines.json")});
  CHECK(contains(lines.out, "from 7 bytes of text"));
  write(temp.file("a.jsonl"), "{\"text\": \"abc\"}\n{\"text\": }\n");
  CHECK(contains(error({temp.file("a.jsonl"), v, "300"}, 3), "a.jsonl line 2: "));
  write(temp.file("a.jsonl"), "{\"words\": \"abc\"}\n");
  CHECK(contains(error({temp.file("a.jsonl"), v, "300"}, 3), "got no text in members text, prompt, completion"));
  const auto line_error = [&](const std::string& line) {
    write(temp.file("a.jsonl"), "{\"text\": \"abc\"}\n\n" + line + '\n');
    return error({temp.file("a.jsonl"), v, "300"}, 3);
  };
  const std::string third = "a.jsonl line 3: ";
  CHECK(contains(line_error("{\"prompt\": \"a\", \"completion\": 7}"), third + "completion: got 7, expected a text"));
  CHECK(contains(line_error("[1]"), third + "got [1], expected an object"));
  CHECK(contains(line_error("{\"messages\": {}}"), third + "messages: got none, expected a list"));
  CHECK(contains(line_error("{\"messages\": [{\"content\": \"a\"}, {\"content\": [1]}]}"),
                 third + "messages.1: content: got [1], expected a text"));
  CHECK(contains(line_error("{\"messages\": [{\"content\": null}]}"), third + "messages.0: content: got null"));
  CHECK(contains(line_error("{\"messages\": [{\"role\": \"user\"}]}"), third + "messages.0: "));
  std::string values = "{\"text\": \"a\", \"x\": [0";
  for (int i = 0; i < 1'000'000; ++i) values += ",0";
  CHECK(contains(line_error(values + "]}"), third + "more than 1000000 values"));
  // gzip of {"text": "abcde"}, as format jsonl reads it.
  const std::string packed(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\x4a\x4c\x4a\x4e\x49\x55\xaa\xe5"
      "\x02\x00\x41\xe0\xf4\x02\x12\x00\x00\x00",
      38);
  write(temp.file("b.jsonl.gz"), packed);
  const ProcessResult unpacked =
      cli({"tokenizer", "train", temp.file("b.jsonl.gz"), v, "300", "-o", temp.file("unpacked.json")});
  INFO(unpacked.err);
  CHECK(contains(unpacked.out, "from 6 bytes of text"));
  write(temp.file("b.jsonl.gz"), packed.substr(0, 20));
  CHECK(contains(error({temp.file("b.jsonl.gz"), v, "300"}, 3), "b.jsonl.gz: truncated gzip stream"));
  const std::vector<std::string> unigram{"--kind", "unigram", "-o", temp.file("x.model")};
  const auto unigram_error = [&](std::vector<std::string> words, int code) {
    words.insert(words.end(), unigram.begin(), unigram.end());
    return error(words, code);
  };
  CHECK(contains(unigram_error({a, v, "300", "--split", "qwen2"}, 2), "split: got qwen2 for unigram"));
  if (const std::string text = unigram_error({a, v, "259"}, 2); !contains(text, "was built without")) {
    CHECK(contains(text, "vocabulary: got 259, expected at least 260: 256 bytes, <unk>, <s>, </s>"));
    CHECK(contains(unigram_error({a, v, "300", s, "</s>"}, 2), "which every model of SentencePiece has"));
    CHECK(contains(unigram_error({a, v, "5000"}, 3), "SentencePiece: "));
  }
  REQUIRE(cli({"tokenizer", "train", a, v, "260", "-o", temp.file("y.json")}).code == 0);
  CHECK(contains(error({a, v, "260", "-o", temp.file("y.json")}, 2), "--force"));
}
