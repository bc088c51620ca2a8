// bitgrad tokenize, and what follows it: training on the shards, and the perplexity of a text.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/io/sha256.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kText =
    "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows of "
    "outrageous fortune, or to take arms against a sea of troubles, and by opposing end them.";

constexpr const char* kConfig = R"yaml(version: 1
run: {name: shards, seed: 3}
data:
  train: {format: tokens, stored: shard, file: set_train_*.bin, context: 8, order: random}
  test: {format: tokens, stored: shard, file: set_val_*.bin, context: 8}
model:
  layers:
    - embedding: {num: 256, dim: 8, flat: false}
    - linear: {out: 256}
batch: {global: 4}
optim: {name: adamw, lr: 0.01}
train: {stop: 40 steps, eval: {every: 20 steps, batch: 4}}
)yaml";

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::vector<int32_t> ids_of(const std::string& path) {
  const std::string bytes = slurp(path);
  REQUIRE(bytes.size() >= 1024);
  int32_t head[3];
  std::memcpy(head, bytes.data(), sizeof head);
  const size_t each = head[0] == 20240520 ? 2 : 4;
  CHECK(head[1] == (each == 2 ? 1 : 7));
  CHECK(static_cast<size_t>(head[2]) * each == bytes.size() - 1024);
  std::vector<int32_t> ids(static_cast<size_t>(head[2]));
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(&ids[i], bytes.data() + 1024 + i * each, each);
  return ids;
}

struct Folder {
  Folder() { write(temp.file("a.txt"), kText); }
  ProcessResult tokenize(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "tokenize");
    return cli(arguments);
  }
  std::string file(const std::string& name) const { return temp.file(name); }
  TempDir temp;
};

}  // namespace

TEST_CASE("tokenize writes shards of the ids, and what made them") {
  const Folder f;
  const std::string text = kText;
  const ProcessResult r =
      f.tokenize({f.file("a.txt"), "-o", f.file("set"), "--tokenizer", "chars", "--val", "0.25", "--shard", "50"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto tokenizer = make_tokenizer("chars", text);
  std::vector<int32_t> ids;
  for (int shard = 0; std::filesystem::exists(f.file("set_train_00000" + std::to_string(shard) + ".bin")); ++shard)
    for (const int32_t id : ids_of(f.file("set_train_00000" + std::to_string(shard) + ".bin"))) ids.push_back(id);
  const auto cut = static_cast<size_t>(static_cast<double>(text.size()) * 0.75);
  CHECK(tokenizer->decode(ids) == text.substr(0, cut));
  const Json record = Json::parse(slurp(f.file("set.tokens.json")));
  CHECK(record.at("vocabulary") == tokenizer->vocabulary());
  CHECK(record.at("splits").at("val").at("text_bytes") == text.size() - cut);
  CHECK(record.at("splits").at("train").at("shards").size() == (cut + 49) / 50);
  const std::string dump = record.at("tokenizer").dump();
  CHECK(record.at("sha256") == sha256_hex(dump.data(), dump.size()));
  CHECK(tokenizer_difference(*open_tokenizer(f.file("set.tokens.json")), *tokenizer).empty());
  // Again: only with --force, and shards that are too many go.
  CHECK(f.tokenize({f.file("a.txt"), "-o", f.file("set"), "--tokenizer", "chars"}).code == 2);
  CHECK(f.tokenize({f.file("a.txt"), "-o", f.file("set"), "--tokenizer", "chars", "--force"}).code == 0);
  CHECK(ids_of(f.file("set_train_000000.bin")).size() == text.size());
  CHECK_FALSE(std::filesystem::exists(f.file("set_train_000001.bin")));
}

TEST_CASE("tokenize puts the end between documents, and cuts no character") {
  const Folder f;
  const std::string json = source_path("tests/golden/tokenizers/gpt2.json");
  write(f.file("b.txt"), "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
  const ProcessResult r =
      f.tokenize({f.file("a.txt"), f.file("b.txt"), f.file("a.txt"), "-o", f.file("set"), "--tokenizer", json});
  if (contains(r.err, "was built without")) return;
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto tokenizer = open_tokenizer(json);
  CHECK(tokenizer->decode(ids_of(f.file("set_train_000000.bin"))) ==
        concat(kText, "<|endoftext|>", slurp(f.file("b.txt")), "<|endoftext|>", kText));
  CHECK(f.tokenize({f.file("b.txt"), "-o", f.file("cut"), "--tokenizer", "bytes", "--val", "0.4"}).code == 0);
  CHECK(ids_of(f.file("cut_train_000000.bin")).size() == 6);
  CHECK(ids_of(f.file("cut_val_000000.bin")).size() == 6);
  const ProcessResult other =
      f.tokenize({f.file("a.txt"), f.file("b.txt"), "-o", f.file("end"), "--tokenizer", json, "--end", "!"});
  CHECK(other.code == 0);
  CHECK(tokenizer->decode(ids_of(f.file("end_train_000000.bin"))) == concat(kText, "!", slurp(f.file("b.txt"))));
}

TEST_CASE("tokenize reports unsupported requests") {
  const Folder f;
  const auto error = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", f.file("set")});
    const ProcessResult r = f.tokenize(arguments);
    CHECK(r.code != 0);
    CHECK_FALSE(std::filesystem::exists(f.file("set.tokens.json")));
    return r.err;
  };
  CHECK(contains(error({f.file("none.txt"), "--tokenizer", "bytes"}), "no such file, expected a text"));
  write(f.file("empty.txt"), "");
  CHECK(
      contains(error({f.file("empty.txt"), "--tokenizer", "bytes"}), "got an empty text, expected at least one byte"));
  for (const std::string& text : {f.file("none.txt"), f.file("empty.txt"), std::string("/dev/zero")})
    CHECK(f.tokenize({text, "--tokenizer", "bytes", "-o", f.file("set")}).code == 3);
  CHECK(contains(error({f.file("a.txt"), "--tokenizer", "byte"}), "Did you mean 'bytes'?"));
  CHECK(contains(error({f.file("a.txt"), "--tokenizer", f.file("none.json")}), "none.json"));
  CHECK(contains(error({f.file("a.txt"), "--tokenizer", "bytes", "--end", "xyz"}),
                 "--end: got 'xyz', which is not a token of bytes of 256 ids"));
  write(f.file("bad.txt"), "a\xff");
  CHECK(contains(error({f.file("bad.txt"), "--tokenizer", "chars"}), "begins no well-formed UTF-8 character"));
  write(f.file("a.gz"), "\x1f\x8b...");
  CHECK(contains(error({f.file("a.gz"), "--tokenizer", "bytes"}),
                 "got a file packed by gzip (.gz), expected a text. Unpack it first"));
}

TEST_CASE("A model trained on shards is evaluated on a text by its file alone") {
  const Folder f;
  REQUIRE(f.tokenize({f.file("a.txt"), "-o", f.file("set"), "--tokenizer", "bytes", "--val", "0.25"}).code == 0);
  write(f.file("c.yaml"), kConfig);
  const ProcessResult run = cli({"train", f.file("c.yaml"), "--data", f.temp.path(), "--out", f.file("run")});
  INFO(run.err);
  REQUIRE(run.code == 0);
  const std::string lines = slurp(f.file("run/metrics.jsonl"));
  const size_t at = lines.find("{\"event\":\"train\"");
  REQUIRE(at != std::string::npos);
  const Json train = Json::parse(lines.substr(at, lines.find('\n', at) - at));
  CHECK(std::fabs(train.at("tokens_per_s").get<double>() / train.at("samples_per_s").get<double>() - 8) < 1e-3);
  CHECK(contains(run.err, "bits/byte"));
  const Json summary = Json::parse(slurp(f.file("run/summary.json")));
  const double loss = summary.at("metrics").at("loss").get<double>();
  CHECK(std::fabs(summary.at("metrics").at("bits_per_byte").get<double>() - loss / std::log(2.0)) < 1e-9);
  CHECK(std::fabs(summary.at("metrics").at("perplexity").get<double>() - std::exp(loss)) < 1e-9 * std::exp(loss));
  REQUIRE(cli({"convert", f.file("run"), "-o", f.file("model.safetensors")}).code == 0);
  write(f.file("val.txt"),
        std::string(kText).substr(static_cast<size_t>(static_cast<double>(std::strlen(kText)) * 0.75)));
  for (const char* name : {"a.txt", "set_train_000000.bin", "set_val_000000.bin", "set.tokens.json"})
    std::filesystem::remove(f.file(name));
  for (const std::string model : {"run", "model.safetensors"}) {
    const ProcessResult e = cli({"eval", f.file(model), "--text", f.file("val.txt"), "--json"});
    INFO(e.err);
    REQUIRE(e.code == 0);
    CHECK(Json::parse(e.out).at("loss") == loss);
    const ProcessResult overlap = cli({"eval", f.file(model), "--text", f.file("val.txt"), "--stride", "1", "--json"});
    REQUIRE(overlap.code == 0);
    CHECK(Json::parse(overlap.out).at("samples") > Json::parse(e.out).at("samples"));
    // This model reads one position alone: more of them before it change nothing.
    CHECK(std::fabs(Json::parse(overlap.out).at("loss").get<double>() - loss) < 1e-5);
  }
  const ProcessResult other = cli({"eval", f.file("run"), "--text", f.file("none.txt")});
  CHECK(other.code == 3);
  CHECK(contains(other.err, "no such file"));
  REQUIRE(f.tokenize({f.file("val.txt"), "-o", f.file("set"), "--tokenizer", "chars", "--val", "0.5"}).code == 0);
  const ProcessResult differs = cli({"eval", f.file("run"), "--data", f.temp.path()});
  CHECK(differs.code == 3);
  CHECK(contains(differs.err, "differ: bytes of 256 ids, chars of"));
}

TEST_CASE("files of other kinds are not accepted as texts by any tokenizer or format of texts") {
  const Folder folder;
  const std::string pickle("\x80\x04\x95\x10\0\0\0}\x94.", 10), wide("a\0b\0c\0\n\0", 8);
  write(folder.file("a.pkl"), pickle);
  write(folder.file("w.txt"), wide);
  write(folder.file("odd.bin"), kText + std::string("\0\1\0", 3));
  for (const char* const tokenizer : {"bytes", "chars"}) {
    INFO(tokenizer);
    const ProcessResult r = folder.tokenize({folder.file("a.pkl"), "-o", folder.file("o"), "--tokenizer", tokenizer});
    CHECK(r.code == 3);
    CHECK(contains(r.err, "a.pkl: got a pickle of Python (.pkl), expected a text. Save tensors with safetensors"));
    const ProcessResult utf16 =
        folder.tokenize({folder.file("w.txt"), "-o", folder.file("o"), "--tokenizer", tokenizer});
    CHECK(utf16.code == 3);
    CHECK(contains(utf16.err, "w.txt: got a text in UTF-16 without a mark, expected UTF-8"));
  }
  CHECK_FALSE(std::filesystem::exists(folder.file("o.tokens.json")));
  const ProcessResult odd = folder.tokenize({folder.file("odd.bin"), "-o", folder.file("o"), "--tokenizer", "bytes"});
  CHECK(odd.code == 0);
  CHECK(contains(odd.err, "odd.bin: 3 of " + std::to_string(std::string(kText).size() + 3) + " bytes are not text"));
  for (const char* const form : {"{train: {format: text, ", "{tokenizer: bytes, train: {format: tokens, "}) {
    INFO(form);
    const auto check = [&](const std::string& file) {
      return cli({"check", folder.file("c.yaml"), "train={stop: 2 steps}",
                  std::string("data=") + form + "context: 8, file: '" + folder.file(file) + "'}}"});
    };
    write(folder.file("c.yaml"), kConfig);
    CHECK(contains(check("a.pkl").err, "a.pkl: got a pickle of Python (.pkl), expected a text"));
    CHECK(contains(check("odd.bin").err, "bytes are not text (zero and other control characters)"));
  }
}
