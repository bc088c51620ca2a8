// Runs on text: keys of the configuration, what fits what, and an embedding that trains.
#include <fstream>

#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/config_support.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kText =
    "no plan survives contact with the enemy; no text survives contact with a reader, who is 1 of many.";

// 98 bytes, so 80 for training with windows that run across epochs.
constexpr const char* kSmallText = R"yaml(version: 1
run: {name: small_text, seed: 7}
data:
  root: /nowhere
  train: {format: text, file: a.txt, context: 4, test_fraction: 0.18}
  test: {format: text, file: a.txt, context: 4, test_fraction: 0.18}
model:
  layers:
    - embedding: {num: 30, dim: 5}
    - linear: {out: 12}
    - relu: {}
    - linear: {out: 25}
quant:
  weights: {dtype: int4, scheme: symmetric, granularity: group(4), rounding: stochastic}
  requantize_every: 1
batch: {global: 9, micro: 9}
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs}
checkpoint: {every: 1 epochs}
log: {every: 3 steps}
)yaml";

class TextFile {
 public:
  TextFile() { std::ofstream(folder_.file("a.txt")) << kText; }
  RunConfig config(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), "data.root=" + folder_.path());
    return small_config(overrides, kSmallText);
  }
  const TempDir& folder() const { return folder_; }

 private:
  TempDir folder_;
};

std::string without(std::string text, const std::string& part, const std::string& other = "") {
  const size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), other);
}

}  // namespace

TEST_CASE("the table of a text is updated inside backward, unless that is off") {
  const KeepModes keep;
  const TextFile file;
  Trainer fused(file.config()), apart(file.config({"optim.fused=off"}));
  CHECK(fused.run("").state_hash == apart.run("").state_hash);
  CHECK(fused.learner().fused_updates().at(0).path == "layers.0.weight");
  CHECK(fused.learner().fused_updates().at(0).why_not.empty());
  CHECK_FALSE(apart.learner().fused_updates().at(0).why_not.empty());
}

TEST_CASE("a text is learned") {
  const KeepModes keep;
  const TextFile file;
  Trainer trainer(file.config({"train.stop=150 epochs", "~data.test"}));
  const double before = trainer.evaluate_held_out().accuracy;
  trainer.run("");
  CHECK(before < 40);
  CHECK(trainer.evaluate_held_out().accuracy > 95);
}

TEST_CASE("keys of texts and of embeddings reach the library, and read back") {
  const TextFile file;
  const RunConfig c = file.config();
  CHECK(c.data.root == file.folder().path());
  CHECK(c.data.train.file == "a.txt");
  CHECK(c.data.train.context == 4);
  CHECK(c.data.train.split == "train");
  CHECK(c.data.test->split == "test");
  CHECK(c.layers[0].attributes.integer("num") == 30);
  CHECK(c.layers[0].attributes.integer("dim") == 5);
  CHECK(c.layers[0].weight.quant->dtype == dtypes::int4);
  CHECK(c.layers[0].weight.init == Init{"normal", 0, 1});
  CHECK(c.layers[1].weight.init == Init{"glorot_uniform"});
  CHECK((parse_config(to_yaml(c), "r.yaml") == c));
  CHECK_FALSE(contains(to_yaml(c), "affine"));
  CHECK(contains(to_yaml(c), "- embedding: {num: 30, dim: 5, flat: true, scale: 1, weights: {dtype: int4,"));
  // Own keys over those of quant.weights; the first values of a table are those of quant.weights where it says any.
  const RunConfig own =
      file.config({"model.layers.0.embedding.weights={dtype: nf4, granularity: group(5)}", "quant.weights.init=zeros"});
  CHECK(own.layers[0].weight.quant->dtype.name() == "nf4");
  CHECK(own.layers[0].weight.init == Init{"zeros", 0, 0});
  CHECK((parse_config(to_yaml(own), "r.yaml") == own));
  CHECK(file.config({"model.layers.0.embedding.weights.init=he_normal"}).layers[0].weight.init.name == "he_normal");
  const RunConfig plain = file.config({"~quant.weights"});
  CHECK(plain.layers[0].weight.quant == std::nullopt);
  CHECK((parse_config(to_yaml(plain), "r.yaml") == plain));
}

TEST_CASE("what does not fit a text is found at its key") {
  const auto places_of = [](const std::string& text) { return places(text); };
  const std::string good = kSmallText;
  CHECK(places_of(good) == "");
  CHECK(contains(text_error(without(good, "model:", "  affine: [2, -1]\nmodel:")),
                 "7:11: error: data.affine is for pixels, data.train of format text has ids"));
  CHECK(contains(
      text_error(without(good, "file: a.txt, context: 4, test_fraction: 0.18}\nmodel",
                         "file: b.txt, context: 4, test_fraction: 0.18}\nmodel")),
      "6:30: error: data.test.file (b.txt) must be data.train.file (a.txt): ids are assigned from the file's bytes"));
  CHECK(contains(
      text_error(without(good, "context: 4, test_fraction: 0.18}\nmodel", "context: 5, test_fraction: 0.18}\nmodel")),
      "data.test.context (5) must be data.train.context (4): samples are of one length"));
  CHECK(contains(text_error(without(good, ", test_fraction: 0.18}\nmodel", "}\nmodel")),
                 "data.test.test_fraction (0.1) must be data.train.test_fraction (0.18): it splits the file once"));
  CHECK(contains(text_error(without(good, "context: 4, ")), "missing required key 'data.train.context'"));
  CHECK(contains(text_error(without(good, "context: 4, ", "size: 4, context: 4, ")),
                 "data.train.size requires data.train.format digits, not text"));
}

TEST_CASE("a model for pictures on a text, and one for texts on pictures, are errors that name both") {
  const std::string good = kSmallText;
  CHECK(contains(text_error(without(good, "    - embedding: {num: 30, dim: 5}\n")),
                 "9:7: error: model.layers.0.linear: linear: needs codes or fp32 input, got int32. Put quantize or "
                 "dequantize before it. data.train of format text has ids (int32): expected an embedding layer first, "
                 "got linear"));
  std::string pictures = kSmall;
  pictures.replace(pictures.find("    - quantize"), 0, "    - embedding: {num: 3, dim: 2}\n");
  CHECK(
      contains(text_error(pictures),
               "5:7: error: model.layers.0.embedding: embedding: needs ids, int32 or int64 without scales, got fp32."));
  CHECK(contains(text_error(pictures),
                 "data.train of format digits has values (fp32), which are not ids of an embedding: got embedding"));
  const TextFile file;
  CHECK(contains(error_of([&] { Trainer(file.config({"data.test={format: digits, size: 20}"})); }),
                 "[data] data.train (" + file.folder().file("a.txt") +
                     " (train)) has int32, data.test (digits (test)) "
                     "fp32"));
  CHECK(contains(error_of([&] { Trainer(file.config({"model.layers.0.embedding.num=24"})); }),
                 "num: got 24, expected at least 25, the number of different ids in the data"));
  CHECK(contains(error_of([&] { Trainer(file.config({"model.layers.3.linear.out=24"})); }),
                 "the last layer returns 24 values, the data has 25 classes"));
}
