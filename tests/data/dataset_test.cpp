#include "bitgrad/data/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "data/image_dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;

constexpr int kUsage = static_cast<int>(ErrorCode::kUsage);

class Squares final : public Dataset {
 public:
  explicit Squares(int64_t n) : n_(n) {}
  std::string name() const override { return "squares"; }
  int64_t size() const override { return n_; }
  std::vector<int64_t> sample_shape() const override { return {2, 3, 4}; }
  int64_t classes() const override { return 2; }
  void sample(int64_t index, float* x, int32_t* label) const override {
    for (int i = 0; i < 24; ++i) x[i] = static_cast<float>(index * index);
    *label = static_cast<int32_t>(index % 2);
  }

 private:
  int64_t n_;
};

std::unique_ptr<data::ImageDataset> all_pixel_values(std::array<float, 2> affine) {
  TrackedBytes pixels(256, MemoryKind::kDataset);
  TrackedBytes labels(2, MemoryKind::kDataset);
  for (int p = 0; p < 256; ++p) pixels.data()[p] = static_cast<uint8_t>(p);
  labels.data()[0] = 3;
  labels.data()[1] = 250;
  return std::make_unique<data::ImageDataset>("ramp", std::vector<int64_t>{8, 16}, 256, affine, std::move(pixels),
                                              std::move(labels));
}

TEST_CASE("The built-in formats are listed with the keys that they read") {
  const std::vector<std::string> names = dataset_formats();
  REQUIRE(names.size() >= 3);
  CHECK(names[0] == "idx");
  CHECK(names[1] == "digits");
  CHECK(names[2] == "text");
  CHECK(find_dataset_format("text")->required == std::vector<std::string>{"file", "context"});
  CHECK(find_dataset_format("text")->ids);
  CHECK_FALSE(find_dataset_format("digits")->ids);
  const DatasetFormat* idx = find_dataset_format("idx");
  REQUIRE(idx != nullptr);
  CHECK(idx->required == std::vector<std::string>{"images", "labels"});
  CHECK(idx->optional == std::vector<std::string>{"classes", "targets"});
  CHECK_FALSE(idx->summary.empty());
  CHECK(find_dataset_format("digits")->required == std::vector<std::string>{"size"});
  CHECK(find_dataset_format("") == nullptr);
  CHECK(find_dataset_format("IDX") == nullptr);
}

TEST_CASE("An unknown format is an error that lists the known ones and names the nearest") {
  const auto make = [](const char* format) {
    DatasetSpec spec;
    spec.format = format;
    make_dataset(spec);
  };
  CHECK(error_code_of([&] { make("digit"); }) == kUsage);
  CHECK(contains(error_of([&] { make("digit"); }), "unknown format 'digit'"));
  CHECK(contains(error_of([&] { make("digit"); }), "Known: idx, digits"));
  CHECK(contains(error_of([&] { make("digit"); }), "Did you mean 'digits'?"));
  CHECK(contains(error_of([&] { make("idz"); }), "Did you mean 'idx'?"));
  CHECK_FALSE(contains(error_of([&] { make("parquet"); }), "Did you mean"));
  CHECK_FALSE(contains(error_of([&] { make(""); }), "Did you mean"));
}

TEST_CASE("A required key that is missing is named") {
  DatasetSpec spec;
  spec.format = "idx";
  spec.images = "a";
  CHECK(error_code_of([&] { make_dataset(spec); }) == kUsage);
  CHECK(contains(error_of([&] { make_dataset(spec); }), "format idx: got no key 'labels'"));
  spec.format = "digits";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "format digits: got no key 'size'"));
}

TEST_CASE("A key that the format does not know is an error with the nearest one") {
  DatasetSpec spec;
  spec.format = "csv";
  spec.file = "a";
  spec.keys["targett"] = "y";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "[csv] unknown attribute 'targett'. Did you mean 'target'?"));
}

TEST_CASE("A program registers a format of its own, which gets its keys and keeps its address") {
  static int calls = 0;
  if (find_dataset_format("squares") == nullptr) {
    DatasetFormat squares{"squares", {}, {}, "square numbers", [](const DatasetSpec& spec) {
                            ++calls;
                            return std::make_unique<Squares>(spec.keys.integer("count"));
                          }};
    squares.keys = {{.name = "count", .range = "[1, 1000]", .standard = "!", .doc = "numbers"}};
    register_dataset(std::move(squares));
  }
  const DatasetFormat* before = find_dataset_format("squares");
  for (int i = 0; i < 100; ++i) {
    register_dataset(
        {"many_" + std::to_string(i), {}, {}, "", [](const DatasetSpec&) { return std::make_unique<Squares>(1); }});
  }
  CHECK(find_dataset_format("squares") == before);
  DatasetSpec spec;
  spec.format = "squares";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "attribute 'count' is missing"));
  CHECK(calls == 0);
  spec.keys["count"] = 7;
  const std::unique_ptr<Dataset> made = make_dataset(spec);
  CHECK(made->size() == 7);
  CHECK(made->features() == 24);
  CHECK(made->memory_bytes() == 0);
  CHECK(contains(error_of([&] {
                   register_dataset({"squares", {}, {}, "", before->create});
                 }),
                 "'squares' is registered already"));
  CHECK(contains(error_of([&] {
                   register_dataset({"idx", {}, {}, "", before->create});
                 }),
                 "'idx' is registered already"));
  CHECK(contains(error_of([&] { register_dataset({"", {}, {}, "", before->create}); }), "empty name"));
  CHECK(contains(error_of([&] { register_dataset({"none", {}, {}, "", nullptr}); }), "no create function"));
  CHECK(find_dataset_format("none") == nullptr);
  register_dataset({"nothing", {}, {}, "", [](const DatasetSpec&) { return std::unique_ptr<Dataset>(); }});
  spec = {};
  spec.format = "nothing";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "returned nothing"));
  register_dataset({"no_ids", {}, {}, "", [](const DatasetSpec&) { return std::make_unique<Squares>(1); }, true});
  spec.format = "no_ids";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "its data set returns fp32, the format says ids."));
  int32_t id = 0, label = 0;
  CHECK(contains(error_of([&] { made->sample_ids(0, &id, &label); }), "samples are fp32: this data set has no ids."));
}

TEST_CASE("A pixel p becomes a*(p/255)+b with each operation rounded to fp32 once") {
  constexpr std::array<std::array<float, 2>, 4> kAffines{
      {{1.0f, 0.0f}, {2.0f, -1.0f}, {1.0f / 0.3081f, -0.1307f / 0.3081f}, {-0.7f, 3.3f}}};
  for (const std::array<float, 2>& affine : kAffines) {
    const auto set = all_pixel_values(affine);
    std::vector<float> x(256);
    std::array<int32_t, 2> labels{};
    set->sample(0, x.data(), &labels[0]);
    set->sample(1, x.data() + 128, &labels[1]);
    CHECK(labels[0] == 3);
    CHECK(labels[1] == 250);
    for (int p = 0; p < 256; ++p) {
      // Double holds each fp32 quotient and product before its rounding closely enough to round to the same fp32.
      const float unit = static_cast<float>(static_cast<double>(p) / 255.0);
      const float scaled = static_cast<float>(static_cast<double>(affine[0]) * static_cast<double>(unit));
      const float expected = static_cast<float>(static_cast<double>(scaled) + static_cast<double>(affine[1]));
      REQUIRE(x[static_cast<size_t>(p)] == expected);
    }
  }
  const auto set = all_pixel_values({2.0f, -1.0f});
  CHECK(set->features() == 128);
  CHECK(set->memory_bytes() == 258);
}

TEST_CASE("A sample index out of range and an affine that cannot be used are errors") {
  const auto set = all_pixel_values({1.0f, 0.0f});
  std::vector<float> x(128);
  int32_t label = 0;
  for (const int64_t index : {int64_t{-1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    CHECK(contains(error_of([&] { set->sample(index, x.data(), &label); }), "expected 0 .. 1"));
  }
  DatasetSpec spec;
  spec.format = "digits";
  spec.size = 1;
  for (const std::array<float, 2>& affine :
       {std::array<float, 2>{0.0f, 1.0f}, std::array<float, 2>{1.0f, std::nanf("")},
        std::array<float, 2>{std::numeric_limits<float>::infinity(), 0.0f}}) {
    spec.affine = affine;
    CHECK(error_code_of([&] { make_dataset(spec); }) == kUsage);
    CHECK(contains(error_of([&] { make_dataset(spec); }), "affine"));
  }
}

TEST_CASE("Bytes with an owner are counted while it lives, and move without being counted twice") {
  const int64_t before = memory_now()[MemoryKind::kDataset];
  {
    TrackedBytes a(1000, MemoryKind::kDataset);
    CHECK(memory_now()[MemoryKind::kDataset] == before + 1000);
    TrackedBytes b = std::move(a);
    CHECK(b.size() == 1000);
    CHECK(a.data() == nullptr);  // NOLINT: a moved-from owner is empty
    a = TrackedBytes(10, MemoryKind::kDataset);
    CHECK(memory_now()[MemoryKind::kDataset] == before + 1010);
    b = TrackedBytes();
    CHECK(memory_now()[MemoryKind::kDataset] == before + 10);
  }
  CHECK(memory_now()[MemoryKind::kDataset] == before);
}

// Sample `index` as a device makes it of what is stored.
void check_stored(const Dataset& set) {
  INFO(set.name());
  const StoredSamples stored = set.stored();
  REQUIRE(stored.codes != nullptr);
  const int64_t features = set.features();
  REQUIRE(stored.bytes >= (set.size() - 1) * stored.stride + features);
  std::vector<float> x(static_cast<size_t>(features));
  std::vector<int32_t> ids(static_cast<size_t>(features));
  int64_t wrong = 0;
  for (int64_t i = 0; i < set.size(); ++i) {
    int32_t label = -1;
    const bool numbers = set.vocabulary() == 0;
    numbers ? set.sample(i, x.data(), &label) : set.sample_ids(i, ids.data(), &label);
    wrong += label != static_cast<const uint8_t*>(stored.labels)[i];
    for (int64_t c = 0; c < features; ++c) {
      const uint8_t code = static_cast<const uint8_t*>(stored.codes)[i * stored.stride + c];
      const auto at = static_cast<size_t>(c);
      wrong += numbers ? x[at] != stored.numbers[code] : ids[at] != code;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("The stored form that data sets report gives their samples") {
  check_stored(*all_pixel_values({2.0f, -1.0f}));
  DatasetSpec digits;
  digits.format = "digits";
  digits.size = 9;
  check_stored(*make_dataset(digits));
  CHECK(Squares(3).stored().codes == nullptr);
}

}  // namespace
}  // namespace bitgrad
