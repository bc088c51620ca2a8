// Ids and frames with a label of their own at each position, in files of numpy and idx and behind a mask of tokens;
// what is ignored counts nowhere.
#include <fstream>

#include "bitgrad/data/samples.h"
#include "bitgrad/run/trainer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"
#include "support/npy_bytes.h"
#include "support/numbers.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kN = 12, kT = 8, kWords = 20;

constexpr const char* kIds = R"yaml(version: 1
run: {seed: 2}
data: {train: {format: npy, images: ids.npy, labels: labels.npy, classes: 20}}
model: {layers: [embedding: {num: 20, dim: 16, flat: false}, linear: {out: 48}, attention: {heads: 2}, linear: {out: 20}]}
batch: {global: 4}
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs}
)yaml";

// The next id of each position; the first four are a prompt, and nothing follows the last.
class Answers {
 public:
  Answers() {
    for (int64_t i = 0; i < kN * kT; ++i) ids.push_back(static_cast<int32_t>((i * i + i / 3) % kWords));
    for (int64_t i = 0; i < kN * kT; ++i) {
      const bool counts = i % kT >= 4 && i % kT < kT - 1;
      labels.push_back(counts ? ids[static_cast<size_t>(i + 1)] : kIgnoredClass);
    }
    write("labels.npy", npy("<i4", kShape, bytes_of(labels)));
    write("ids.npy", npy("<i4", kShape, bytes_of(ids)));
  }
  void write(const std::string& name, const std::vector<uint8_t>& bytes) const {
    std::ofstream(folder_.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  template <typename T>
  std::vector<T> as(const std::vector<int32_t>& x) const {
    return std::vector<T>(x.begin(), x.end());
  }
  RunConfig config(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), "data.root=" + folder_.path());
    return small_config(overrides, kIds);
  }
  void check(const Dataset& data) const {
    CHECK(data.vocabulary() == kWords);
    CHECK(data.target_form() == TargetForm{.shape = {kT}, .classes = kWords});
    REQUIRE(data.size() == kN);
    int32_t x[kT], y[kT];
    for (int64_t i = 0; i < kN; ++i) {
      data.example(i, x, y);
      CHECK(std::equal(x, x + kT, ids.begin() + i * kT));
      CHECK(std::equal(y, y + kT, labels.begin() + i * kT));
    }
  }
  static constexpr const char* kShape = "(12, 8)";
  std::vector<int32_t> ids, labels;

 private:
  TempDir folder_;
};

std::vector<uint8_t> idx_ints(const std::vector<int32_t>& x) {
  std::vector<uint8_t> out = idx_header({kN, kT}, 0x0C);
  for (const int32_t v : x)
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(static_cast<uint32_t>(v) >> shift));
  return out;
}

}  // namespace

TEST_CASE("Ids of every integer type are read from npy, npz and idx, with labels of their own") {
  const Answers a;
  const auto opened = [&](std::vector<std::string> keys) {
    const RunConfig config = a.config(std::move(keys));
    return open_dataset(config, config.data.train);
  };
  a.check(*opened({}));
  a.write("ids.npy", npy("<i8", Answers::kShape, bytes_of(a.as<int64_t>(a.ids))));
  a.check(*opened({}));
  a.write("ids.npy", npy("<u2", Answers::kShape, bytes_of(a.as<uint16_t>(a.ids))));
  a.check(*opened({}));
  a.write("ids.npy", npy("|u1", Answers::kShape, bytes_of(a.as<uint8_t>(a.ids))));
  a.check(*opened({}));
  a.write("all.npz", zip({{"images.npy", npy("<i4", Answers::kShape, bytes_of(a.ids))},
                          {"labels.npy", npy("<i8", Answers::kShape, bytes_of(a.as<int64_t>(a.labels)))}}));
  a.check(*opened({"data.train={format: npz, file: all.npz, classes: 20}"}));
  a.write("ids.idx", idx_ints(a.ids));
  a.write("labels.idx", idx_ints(a.labels));
  a.check(*opened({"data.train={format: idx, images: ids.idx, labels: labels.idx, classes: 20}"}));
}

TEST_CASE("The label that is ignored may be any number, also a class") {
  const Answers a;
  for (const int32_t ignore : {255, 3}) {
    std::vector<int32_t> other = a.labels;
    for (int32_t& label : other)
      if (label == kIgnoredClass) label = ignore;
    a.write("other.npy", npy("<i4", Answers::kShape, bytes_of(other)));
    a.write("other.idx", idx_ints(other));
    a.write("ids.idx", idx_ints(a.ids));
    for (const char* train : {"npy, images: ids.npy, labels: other.npy", "idx, images: ids.idx, labels: other.idx"}) {
      const RunConfig config =
          a.config({concat("data.train={format: ", train, ", classes: 20, ignore_label: ", ignore, '}')});
      const auto data = open_dataset(config, config.data.train);
      int32_t x[kT], y[kT];
      data->example(1, x, y);
      for (int64_t p = 0; p < kT; ++p) {
        const int32_t label = a.labels[static_cast<size_t>(kT + p)];
        CHECK(y[p] == (label == ignore ? kIgnoredClass : label));
      }
    }
  }
}

TEST_CASE("What is ignored counts neither in the loss nor in the metrics of a run") {
  const KeepModes keep;
  const Answers a;
  Trainer trainer(a.config());
  const TrainOutcome outcome = trainer.run("");
  CHECK(outcome.optimizer_steps == 6);
  const RunConfig config = a.config();
  const auto data = open_dataset(config, config.data.train);
  StepResult sums;
  const Tensor x = Tensor::from_elements({kN, kT}, dtypes::int32, std::vector<double>(a.ids.begin(), a.ids.end()));
  const Tensor y =
      Tensor::from_elements({kN, kT}, dtypes::int32, std::vector<double>(a.labels.begin(), a.labels.end()));
  const StepResult r = trainer.learner().evaluate(x, y);
  CHECK(r.counted == kN * 3);
  const Evaluation e = evaluate(trainer.learner(), *data, 5);
  CHECK(e.loss == Approx(r.loss / static_cast<double>(kN * 3)).epsilon(1e-6));
  CHECK(e.accuracy == Approx(100.0 * static_cast<double>(r.correct) / static_cast<double>(kN * 3)));
}

TEST_CASE("Frames of values keep their axes on request, and linear layers act on the last one") {
  const KeepModes keep;
  const Answers a;
  std::vector<float> frames;
  for (int64_t i = 0; i < kN * kT * 6; ++i) frames.push_back(static_cast<float>(i % 13) / 13);
  a.write("frames.npy", npy("<f4", "(12, 8, 6)", bytes_of(frames)));
  const std::vector<std::string> keys{"data.train.images=frames.npy",
                                      "model.layers=[layer_norm: {}, linear: {out: 20}]"};
  CHECK(contains(error_of([&] { Trainer(a.config(keys)); }), "for samples of values by model.flat: false"));
  std::vector<std::string> flat = keys;
  flat.push_back("model.flat=false");
  const RunConfig config = a.config(flat);
  CHECK(parse_config(to_yaml(config), "again.yaml") == config);
  Trainer trainer(config);
  trainer.run("");
  CHECK(trainer.learner().model().parameters().back()->shape() == Shape{20});
  const Tensor x =
      Tensor::from_elements({1, kT, 6}, dtypes::fp32, std::vector<double>(frames.begin(), frames.begin() + kT * 6));
  CHECK(trainer.learner().predict(x).shape() == Shape{1, kT, 20});
}

TEST_CASE("Tokens behind a mask are read but are not targets") {
  const Answers a;
  const std::vector<uint16_t> tokens = a.as<uint16_t>(a.ids);
  a.write("a.bin", bytes_of(tokens));
  std::vector<uint8_t> mask;
  for (size_t i = 0; i < tokens.size(); ++i) mask.push_back(i % 5 < 2 ? 0 : 1);
  a.write("mask.bin", mask);
  const std::string tokens_of =
      "data.train={format: tokens, file: a.bin, stored: uint16, vocabulary: 20, context: 6, "
      "order: sequential";
  const auto opened = [&](const std::string& more) {
    const RunConfig config = a.config({tokens_of + more + "}"});
    return open_dataset(config, config.data.train);
  };
  const auto all = opened(""), some = opened(", mask: mask.bin");
  REQUIRE(all->size() == some->size());
  int32_t x[2][6], y[2][6];
  for (int64_t i = 0; i < all->size(); ++i) {
    all->example(i, x[0], y[0]);
    some->example(i, x[1], y[1]);
    CHECK(std::equal(x[0], x[0] + 6, x[1]));
    for (int64_t p = 0; p < 6; ++p) {
      const auto at = static_cast<size_t>(i * 6 + p + 1);
      CHECK(y[1][p] == (at < mask.size() && mask[at] == 0 ? kIgnoredClass : y[0][p]));
    }
  }
  // The same by bits beside the file, and by labels of an archive.
  std::vector<uint8_t> bits((mask.size() + 7) / 8);
  for (size_t i = 0; i < mask.size(); ++i) bits[i / 8] |= static_cast<uint8_t>(mask[i] << i % 8);
  a.write("a.mask", bits);
  CHECK(samples_record(*opened(", labels: mask")) == samples_record(*some));
  CHECK_FALSE(samples_record(*some) == samples_record(*all));
  CHECK(contains(error_of([&] { opened(", labels: bits"); }),
                 "data.train.labels: got 'bits', expected mask (the bits of NAME.mask"));
  mask.pop_back();
  a.write("mask.bin", mask);
  CHECK(contains(error_of([&] { opened(", mask: mask.bin"); }), "got 95 bytes, expected one for each of the 96 ids"));
  CHECK(contains(error_of([&] {
                   const RunConfig config = a.config({"data.tokenizer=bytes",
                                                      "data.train={format: tokens, file: a.bin, "
                                                      "context: 6, mask: mask.bin}"});
                   open_dataset(config, config.data.train);
                 }),
                 "mask: it is for stored ids"));
}

TEST_CASE("Ids and labels that do not fit are errors that name the place") {
  const Answers a;
  const auto error = [&](std::vector<std::string> keys) {
    return error_of([&] {
      const RunConfig config = a.config(std::move(keys));
      open_dataset(config, config.data.train);
    });
  };
  std::vector<int32_t> ids = a.ids;
  ids[11] = 20;
  a.write("ids.npy", npy("<i4", Answers::kShape, bytes_of(ids)));
  CHECK(contains(error({}), "sample 1, value 3 at byte offset 172: got id 20, expected 0 .. 19"));
  CHECK(error({"data.train.vocabulary=21"}) == "");
  a.write("ids.npy", npy("<f4", Answers::kShape, bytes_of(a.as<float>(a.ids))));
  CHECK(contains(error({}), "got '<f4', expected integers: the model begins with an embedding"));
  a.write("ids.npy", npy("<i4", Answers::kShape, bytes_of(a.ids)));
  CHECK(error({"model.layers=[linear: {out: 20}]"}) == "");  // a model of values reads them as values
  a.write("one.npy", npy("<i4", "(12,)", bytes_of(std::vector<int32_t>(12, 1))));
  CHECK(contains(error({"data.train.labels=one.npy", "data.train.ignore_label=1"}),
                 "ignore_label: got 1, which is for labels"));
}

TEST_CASE("Arrays of ids of a program are data of format memory") {
  const KeepModes keep;
  const Answers a;
  MemoryDatasetSpec spec;
  spec.samples = {"x", StoredAs::kInt32, Shape{kT}, kN, a.ids.data()};
  spec.targets = {"y", StoredAs::kInt32, Shape{kT}, kN, a.labels.data()};
  spec.classes = kWords;
  spec.vocabulary = kWords;
  const RunConfig config = a.config({"data.train={format: memory}"});
  Trainer memory(config, make_memory_dataset(spec), nullptr), file(a.config());
  memory.run("");
  file.run("");
  for (size_t i = 0; i < file.learner().model().parameters().size(); ++i)
    CHECK(bits_of(memory.learner().model().parameters()[i]->value()) ==
          bits_of(file.learner().model().parameters()[i]->value()));
}
