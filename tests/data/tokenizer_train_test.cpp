// Trained tokenizers, against what BpeTrainer of the Python package tokenizers made (tests/golden/tokenizers/make.py).
#include "bitgrad/data/tokenizer_train.h"

#include "bitgrad/base/file.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string bytes_of(const std::string& path) {
  const std::vector<uint8_t> bytes = file_system().read(path);
  return {bytes.begin(), bytes.end()};
}

// Nothing if the build has no library for it.
std::string trained_file(const TokenizerTraining& spec, const std::vector<std::string>& texts) {
  try {
    return train_tokenizer(spec, texts).file;
  } catch (const Error& e) {
    if (!contains(e.what(), "was built without")) throw;
    WARN(e.what());
    return {};
  }
}

}  // namespace

TEST_CASE("Vocabulary and merges of byte-level BPE are those of the package tokenizers") {
  const std::string folder = source_path("tests/golden/tokenizers/"), text = bytes_of(folder + "text.txt");
  const Json golden = Json::parse(bytes_of(folder + "trained.json"));
  CHECK(golden.size() == 2);
  for (const auto& [split, made] : golden.members()) {
    INFO(split);
    TokenizerTraining spec;
    spec.vocabulary = std::ssize(made.at("vocab").items());
    spec.special = made.at("special").get<std::vector<std::string>>();
    spec.split = split;
    const std::string file = trained_file(spec, {text});
    if (file.empty()) return;
    const Json model = Json::parse(file).at("model");
    std::vector<std::string> vocabulary(model.at("vocab").size());
    for (const auto& [token, id] : model.at("vocab").members()) vocabulary.at(id.get<size_t>()) = token;
    CHECK(vocabulary == made.at("vocab").get<std::vector<std::string>>());
    CHECK(model.at("merges") == made.at("merges"));
  }
}

TEST_CASE("No word crosses the end of a text, and the order of texts does not matter") {
  TokenizerTraining spec;
  spec.vocabulary = 257;
  // "ab" would be the most frequent pair of one text.
  const std::string file = trained_file(spec, {"xa", "bxa", "bxa", "b", "qq"});
  if (file.empty()) return;
  CHECK(contains(file, R"("merges":[["x","a"]])"));
  CHECK(trained_file(spec, {"b", "qq", "bxa", "xa", "bxa"}) == file);
}

TEST_CASE("What a tokenizer cannot be trained with is reported") {
  TokenizerTraining spec;
  spec.vocabulary = 300;
  const auto error = [&](const std::vector<std::string>& texts) {
    return error_of([&] { train_tokenizer(spec, texts); });
  };
  CHECK(contains(error({"", ""}), "got 2 empty texts, expected at least one byte"));
  CHECK(contains(error({}), "got 0 empty texts"));
  CHECK(contains(error({"a", "b\xe2\x82"}), "text 2 of 2, line 1, byte 1: begins no well-formed UTF-8 character"));
  spec.kind = "byte_pbe";
  CHECK(contains(error({"a"}), "Did you mean 'byte_bpe'?"));
  spec.kind = "byte_bpe";
  spec.split = "gpt3";
  CHECK(contains(error({"a"}), "split: got 'gpt3', expected gpt2 or qwen2"));
  spec.split = "";
  spec.special = {"\xff"};
  CHECK(contains(error({"a"}), "which is not UTF-8"));
  spec.special = {};
  spec.vocabulary = int64_t{1} << 40;
  CHECK(contains(error({"a"}), "expected at most 16777216"));
}
