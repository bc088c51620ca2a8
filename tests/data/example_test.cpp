// Examples whose targets are more than one class of a byte: values, classes of 16 and 32 bits, a class a position; and
// the first samples of a set.
#include <bit>
#include <fstream>
#include <limits>

#include "bitgrad/data/loader.h"
#include "bitgrad/data/samples.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"
#include "support/temp_dir.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;
using test::TempDir;

using Bytes = std::vector<uint8_t>;

void put(Bytes& out, uint64_t word, int bytes) {
  for (int shift = 8 * bytes - 8; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(word >> shift));
}
Bytes floats(const std::vector<uint32_t>& dims, const std::vector<float>& values) {
  Bytes out = test::idx_header(dims, 0x0D);
  for (const float v : values) put(out, std::bit_cast<uint32_t>(v), 4);
  return out;
}
Bytes doubles(const std::vector<uint32_t>& dims, const std::vector<double>& values) {
  Bytes out = test::idx_header(dims, 0x0E);
  for (const double v : values) put(out, std::bit_cast<uint64_t>(v), 8);
  return out;
}
Bytes integers(const std::vector<uint32_t>& dims, const std::vector<int64_t>& values, uint8_t type, int bytes) {
  Bytes out = test::idx_header(dims, type);
  for (const int64_t v : values) put(out, static_cast<uint64_t>(v), bytes);
  return out;
}

// Two files in a folder.
class Files {
 public:
  Files(const Bytes& images, const Bytes& targets, bool labels) {
    write("i", images);
    write("t", targets);
    spec_.format = "idx";
    spec_.root = folder_.path();
    spec_.images = "i";
    (labels ? spec_.labels : spec_.targets) = "t";
  }
  DatasetSpec spec_;
  std::unique_ptr<Dataset> open() const { return make_dataset(spec_); }
  std::string refusal(ErrorCode code = ErrorCode::kData) const {
    CHECK(error_code_of([&] { open(); }) == static_cast<int>(code));
    return error_of([&] { open(); });
  }

 private:
  void write(const std::string& name, const Bytes& bytes) const {
    std::ofstream(folder_.path() + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  TempDir folder_;
};

const std::vector<float> kVectors = {0.5f, -1.25f, 3.0f, 1e-30f, -7.5f, 0.0f};  // [2, 3]

TEST_CASE("Values as targets are read from idx files of any type, beside samples of fp32") {
  const Bytes vectors = floats({2, 3}, kVectors);
  struct Case {
    Bytes targets;
    Shape shape;
    std::vector<float> expected;
  };
  const std::vector<Case> cases = {{floats({2}, {1.5f, -2.5f}), {1}, {1.5f, -2.5f}},
                                   {floats({2, 2}, {1.5f, -2.5f, 0.0f, 1e-3f}), {2}, {1.5f, -2.5f, 0.0f, 1e-3f}},
                                   {doubles({2, 1, 2}, {0.1, 1.0 / 3, -4, 8}), {1, 2}, {0.1f, 1.0f / 3, -4, 8}},
                                   {integers({2, 3}, {0, 1, 255, 1, 0, 0}, 0x08, 1), {3}, {0, 1, 255, 1, 0, 0}},
                                   {integers({2}, {-128, 127}, 0x09, 1), {1}, {-128, 127}},
                                   {integers({2}, {-32768, 32767}, 0x0B, 2), {1}, {-32768, 32767}},
                                   {integers({2}, {-16777216, 1 << 20}, 0x0C, 4), {1}, {-16777216, 1 << 20}}};
  for (const Case& c : cases) {
    const Files files(vectors, c.targets, /*labels=*/false);
    const auto set = files.open();
    CHECK(set->sample_shape() == std::vector<int64_t>{3});
    CHECK(set->target_form() == TargetForm{.shape = c.shape, .classes = 0});
    CHECK(set->target_form().dtype() == dtypes::fp32);
    CHECK(set->target_form().outputs() == c.shape.cols());
    CHECK(set->classes() == 0);
    REQUIRE(set->size() == 2);
    std::vector<float> x(3), target(static_cast<size_t>(c.shape.numel())), seen, targets;
    for (int64_t i = 0; i < 2; ++i) {
      set->example(i, x.data(), target.data());
      seen.insert(seen.end(), x.begin(), x.end());
      targets.insert(targets.end(), target.begin(), target.end());
    }
    CHECK(seen == kVectors);
    CHECK(targets == c.expected);
    int32_t label = 0;
    CHECK(contains(error_of([&] { set->sample(0, x.data(), &label); }), "read it by example"));
  }
}

TEST_CASE("Samples of fp32 keep their axes, and the affine is applied to each value") {
  Files files(floats({2, 1, 3}, kVectors), integers({2}, {1, 0}, 0x08, 1), /*labels=*/true);
  files.spec_.affine = {3.0f, 0.1f};
  const auto set = files.open();
  CHECK(set->sample_shape() == std::vector<int64_t>{1, 3});
  std::vector<float> x(3);
  int32_t label = -1;
  set->sample(1, x.data(), &label);
  CHECK(label == 0);
  for (size_t i = 0; i < 3; ++i) {
    const float scaled = 3.0f * kVectors[3 + i];
    CHECK(x[i] == scaled + 0.1f);
  }
}

TEST_CASE("Classes of 16 and 32 bits, and classes by position, are read from idx files") {
  const Bytes vectors = floats({2, 3}, kVectors);
  for (const bool wide : {false, true}) {
    Files files(vectors, integers({2, 3}, {0, 300, 7, -100, 1023, 1}, wide ? 0x0C : 0x0B, wide ? 4 : 2), true);
    files.spec_.classes = 1024;
    const auto set = files.open();
    CHECK(set->target_form() == TargetForm{.shape = {3}, .classes = 1024});
    LoaderOptions options;
    options.micro = 2;
    options.shuffle = false;
    for (const bool samples : {true, false}) {
      options.samples = samples;
      Loader loader(*set, options);
      Batch batch;
      REQUIRE(loader.next(batch));
      CHECK(batch.target == Shape{3});
      CHECK(batch.values == nullptr);
      CHECK(std::vector<int32_t>(batch.labels, batch.labels + 6) ==
            std::vector<int32_t>{0, 300, 7, kIgnoredClass, 1023, 1});
      CHECK(batch.counted == 5);
      CHECK(batch.target_tensor().shape() == Shape{2, 3});
    }
    files.spec_.classes = 1023;
    CHECK(contains(files.refusal(), concat("label 4 at offset ", wide ? 28 : 20,
                                           ": got 1023, expected 0 .. 1022. If the set has more "
                                           "classes, write data.train.classes: 1024")));
  }
}

TEST_CASE("Samples of idx files may be of any type: bytes are pixels, all others values") {
  struct Case {
    Bytes samples;
    std::vector<float> expected;
  };
  const std::vector<float> numbers = {0, -128, 127, 5};
  const std::vector<int64_t> whole = {0, -128, 127, 5};
  const std::vector<Case> cases = {
      {integers({2, 1, 2}, {0, 255, 51, 102}, 0x08, 1), {0, 1, 51.0f / 255.0f, 102.0f / 255.0f}},
      {integers({2, 2}, whole, 0x09, 1), numbers},
      {integers({2, 2}, whole, 0x0B, 2), numbers},
      {integers({2, 2}, {-16777216, 1 << 20, 3, -4}, 0x0C, 4), {-16777216, 1 << 20, 3, -4}},
      {floats({2, 2}, {0, -128, 127, 5}), numbers},
      {doubles({2, 2}, {0.1, -1.0 / 3, 1e30, 5}), {0.1f, -1.0f / 3, 1e30f, 5}}};
  for (const Case& c : cases) {
    INFO("type " << int{c.samples[2]});
    Files files(c.samples, integers({2}, {1, 0}, 0x09, 1), true);
    const auto set = files.open();
    REQUIRE(set->features() == 2);
    std::vector<float> seen(4);
    int32_t labels[2] = {-1, -1};
    for (int64_t i = 0; i < 2; ++i) set->sample(i, seen.data() + 2 * i, labels + i);
    CHECK(seen == c.expected);
    CHECK(labels[0] == 1);
    CHECK(labels[1] == 0);
    // As `predict` reads it.
    const auto memory = memory_file(c.samples);
    const Samples samples = read_idx_samples("x", *memory);
    std::vector<float> predicted(4);
    SampleValues().write(samples.view(), 0, 2, predicted.data());
    CHECK(predicted == c.expected);
    if (c.samples[2] == 0x08) continue;
    files.spec_.normalize = {{1}, {2}};
    const auto normalized = files.open();
    normalized->sample(1, seen.data(), labels);
    CHECK(seen[1] == (c.expected[3] - 1) / 2);
  }
  const Bytes labels = integers({2}, {0, 1}, 0x08, 1);
  CHECK(contains(Files(integers({2, 1}, {0, 16777217}, 0x0C, 4), labels, true).refusal(),
                 "sample 1, value 0 at offset 16: got 16777217, which fp32 cannot represent exactly. Store float32."));
  CHECK(contains(Files(doubles({2, 1}, {0, 1e300}), labels, true).refusal(),
                 "sample 1, value 0 at offset 20: got 1e+300, expected a finite fp32."));
  CHECK(contains(Files(integers({2}, {0, 1}, 0x0C, 4), labels, true).refusal(),
                 "dimensions at offset 3: got 1, expected 2 (images) .. 4"));
}

TEST_CASE("Classes of idx files may be signed bytes, with positions that do not count") {
  const Bytes vectors = floats({2, 3}, kVectors);
  Files files(vectors, integers({2, 3}, {0, 3, -100, -100, 127, 1}, 0x09, 1), true);
  files.spec_.classes = 128;
  const auto set = files.open();
  std::vector<float> x(3);
  std::vector<int32_t> label(3);
  set->example(1, x.data(), label.data());
  CHECK(label == std::vector<int32_t>{kIgnoredClass, 127, 1});
  files.spec_.classes = 129;
  CHECK(contains(files.refusal(ErrorCode::kUsage), "classes: got 129, expected 1 .. 128 for labels of int8."));
  CHECK(contains(Files(vectors, integers({2}, {0, -1}, 0x09, 1), true).refusal(),
                 "label 1 at offset 9: got -1, expected 0 .. 9."));
  // The number of classes that would fit is that of the whole file.
  CHECK(contains(Files(vectors, integers({2}, {11, 12}, 0x09, 1), true).refusal(),
                 "label 0 at offset 8: got 11, expected 0 .. 9. If the set has more classes, write "
                 "data.train.classes: 13, and the same in data.valid and data.test"));
}

TEST_CASE("What targets of idx files cannot be is named") {
  const Bytes vectors = floats({2, 3}, kVectors);
  CHECK(contains(Files(vectors, integers({2}, {16777217, 0}, 0x0C, 4), false).refusal(),
                 "target 0 at offset 8: got 16777217, which fp32 cannot represent exactly"));
  CHECK(contains(Files(vectors, floats({2}, {0, std::numeric_limits<float>::infinity()}), false).refusal(),
                 "target 1 at offset 12: got inf, expected a finite fp32"));
  CHECK(contains(Files(vectors, doubles({2}, {1e300, 0}), false).refusal(), "target 0 at offset 8: got 1e+300"));
  CHECK(contains(Files(vectors, floats({3}, {0, 1, 2}), false).refusal(),
                 "images at offset 4: got 2, expected 3, the number of targets in"));
  CHECK(
      contains(Files(vectors, integers({2}, {0, 1}, 0x0D, 4), true).refusal(),
               "element type at offset 2: got 0x0d (float32), expected 0x08 (uint8) or 0x09 (int8) or 0x0b (int16) or "
               "0x0c (int32)"));
  CHECK(contains(Files(floats({2}, {0, 1}), floats({2}, {0, 1}), false).refusal(),
                 "dimensions at offset 3: got 1, expected 2 (images) .. 4"));
  Bytes cut = floats({2}, {0, 1});
  cut.pop_back();
  CHECK(
      contains(Files(vectors, cut, false).refusal(), "elements: got 2 in the header at offset 4, expected at most 1"));
  cut.resize(cut.size() + 2);
  CHECK(contains(Files(vectors, cut, false).refusal(), "trailing bytes: got more content at offset 16"));
  Files both(vectors, floats({2}, {0, 1}), false);
  both.spec_.labels = "t";
  CHECK(contains(both.refusal(ErrorCode::kUsage), "got both labels and targets, expected one of them"));
  both.spec_.labels = "";
  both.spec_.classes = 4;
  CHECK(contains(both.refusal(ErrorCode::kUsage), "classes: got 4, which is for labels; targets are values."));
}

TEST_CASE("Targets of each position of a text are the bytes that follow") {
  TempDir folder;
  std::ofstream(folder.path() + "/t", std::ios::binary) << "abcabdaabbccd";
  DatasetSpec spec;
  spec.format = "text";
  spec.file = folder.path() + "/t";
  spec.context = 4;
  spec.test_fraction = 0;
  const auto last = make_dataset(spec);
  CHECK(last->target_form() == TargetForm{.shape = {}, .classes = 4, .bytes_per_target = 1});
  spec.targets = "each";
  const auto each = make_dataset(spec);
  CHECK(each->target_form() == TargetForm{.shape = {4}, .classes = 4, .bytes_per_target = 1});
  REQUIRE(each->size() == last->size());
  for (int64_t i = 0; i < each->size(); ++i) {
    std::vector<int32_t> x(4), y(4), z(4);
    int32_t label = -1;
    last->sample_ids(i, x.data(), &label);
    each->example(i, y.data(), z.data());
    CHECK(x == y);
    CHECK(std::vector<int32_t>(z.begin(), z.end() - 1) == std::vector<int32_t>(x.begin() + 1, x.end()));
    CHECK(z.back() == label);
  }
  int32_t x[4], label;
  CHECK(contains(error_of([&] { each->sample_ids(0, x, &label); }), "targets are a class per position"));
  LoaderOptions options;
  options.micro = 3;
  Loader whole(*each, options);
  options.samples = false;
  Loader bare(*each, options);
  Batch a, b;
  for (int k = 0; k < 6; ++k) {
    REQUIRE((whole.next(a) && bare.next(b)));
    REQUIRE(a.size == b.size);
    CHECK(a.target == Shape{4});
    CHECK(std::equal(a.labels, a.labels + 4 * a.size, b.labels));
  }
  spec.targets = "all";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "targets: got 'all', expected last"));
}

// Two values a sample, from a program.
class Pairs final : public Dataset {
 public:
  explicit Pairs(int64_t classes = 0) : classes_(classes) {}
  std::string name() const override { return "pairs"; }
  int64_t size() const override { return 5; }
  std::vector<int64_t> sample_shape() const override { return {1}; }
  int64_t classes() const override { return classes_; }
  TargetForm target_form() const override { return {.shape = {2}, .classes = classes_}; }
  void example(int64_t index, void* x, void* target) const override {
    *static_cast<float*>(x) = static_cast<float>(index);
    if (classes_ > 0) {
      static_cast<int32_t*>(target)[0] = 1;
      static_cast<int32_t*>(target)[1] = static_cast<int32_t>(index);
    } else {
      static_cast<float*>(target)[0] = 0.5f;
      static_cast<float*>(target)[1] = static_cast<float>(-index);
    }
  }

 private:
  int64_t classes_;
};

TEST_CASE("Batches carry the shapes of samples and targets, and values where targets are values") {
  LoaderOptions options;
  options.micro = 3;
  options.shuffle = false;
  options.end_epoch = 1;
  const Pairs set;
  Loader loader(set, options);
  Batch batch;
  int64_t next = 0;
  while (loader.next(batch)) {
    CHECK(batch.labels == nullptr);
    CHECK(batch.sample == Shape{1});
    CHECK(batch.target == Shape{2});
    CHECK(batch.counted == 2 * batch.size);
    const Tensor x = batch.x_tensor(), targets = batch.target_tensor();
    CHECK(x.shape() == Shape{batch.size, 1});
    CHECK(x.data() == batch.x);
    REQUIRE(targets.shape() == Shape{batch.size, 2});
    CHECK(targets.data() == batch.values);
    Tensor copy;
    copy_targets(batch, copy);
    for (int64_t i = 0; i < batch.size; ++i, ++next) {
      CHECK(targets.at({i, 0}) == 0.5f);
      CHECK(copy.at({i, 1}) == static_cast<float>(-next));
    }
  }
  CHECK(next == 5);
  const Pairs classes(3);
  options.micro = 5;
  Loader wrong(classes, options);
  CHECK(contains(error_of([&] { wrong.next(batch); }), "label of sample 3 at position 1: got 3, expected 0 .. 2"));
}

TEST_CASE("A data set whose targets are not one class reports that it lacks example") {
  struct Lacks final : Dataset {
    std::string name() const override { return "lacks"; }
    int64_t size() const override { return 1; }
    std::vector<int64_t> sample_shape() const override { return {1}; }
    int64_t classes() const override { return 0; }
    TargetForm target_form() const override { return {.shape = {1}, .classes = 0}; }
  } set;
  float x = 0, target = 0;
  CHECK(contains(error_of([&] { set.example(0, &x, &target); }), "lacks: targets are not one class per sample"));
}

TEST_CASE("A limit uses the first samples of a set of any format") {
  DatasetSpec spec;
  spec.format = "digits";
  spec.size = 12;
  const auto all = make_dataset(spec);
  spec.limit = 5;
  const auto some = make_dataset(spec);
  CHECK(some->size() == 5);
  CHECK(some->stored().bytes == 5 * 784);
  std::vector<float> a(784), b(784);
  int32_t one = 0, other = 0;
  for (int64_t i = 0; i < 5; ++i) {
    all->sample(i, a.data(), &one);
    some->sample(i, b.data(), &other);
    CHECK((a == b && one == other));
  }
  CHECK(contains(error_of([&] { some->sample(5, b.data(), &other); }), "sample index: got 5, expected 0 .. 4"));
  CHECK(contains(error_of([&] { some->example(-1, b.data(), &other); }), "sample index: got -1, expected 0 .. 4"));
  for (const int64_t limit : {int64_t{-1}, int64_t{13}}) {
    spec.limit = limit;
    CHECK(error_of([&] { make_dataset(spec); }) ==
          concat("[data] limit: got ", limit, ", expected 1 .. 12, the samples of digits (train)."));
  }
}

}  // namespace
}  // namespace bitgrad
