// Transforms of samples: pure functions of seed, epoch and index, whatever batches, threads and resumes there are.
#include "bitgrad/data/transform.h"

#include <cmath>
#include <map>

#include "bitgrad/data/loader.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;

// Sample i is i, i + 0.5, i + 1; its class is i % 2.
class Ramp final : public Dataset {
 public:
  explicit Ramp(bool ids = false) : ids_(ids) {}
  std::string name() const override { return "ramp"; }
  int64_t size() const override { return 13; }
  std::vector<int64_t> sample_shape() const override { return {3}; }
  int64_t classes() const override { return 2; }
  int64_t vocabulary() const override { return ids_ ? 20 : 0; }
  void sample(int64_t index, float* x, int32_t* label) const override {
    for (int i = 0; i < 3; ++i) x[i] = static_cast<float>(index) + 0.5f * static_cast<float>(i);
    *label = static_cast<int32_t>(index % 2);
  }
  void sample_ids(int64_t, int32_t*, int32_t*) const override {}

 private:
  bool ids_;
};

using Transforms = std::vector<std::shared_ptr<const Transform>>;
Transforms noises() { return {make_transform("noise", {{"sd", 0.25}}), make_transform("noise", {{"sd", 2.0}})}; }

// All samples of epochs 0 .. 2, by (epoch, index), read from a place on.
using Samples = std::map<std::pair<int64_t, int64_t>, std::vector<float>>;
Samples read(int64_t micro, int prefetch, const Transforms& transforms, int64_t epoch = 0, int64_t position = 0) {
  const Ramp set;
  LoaderOptions options;
  options.micro = micro;
  options.prefetch = prefetch;
  options.seed = 11;
  options.epoch = epoch;
  options.position = position;
  options.end_epoch = 3;
  options.transforms = transforms;
  Loader loader(set, options);
  Samples samples;
  for (Batch b; loader.next(b);)
    for (int64_t i = 0; i < b.size; ++i)
      samples[{b.epoch, b.ids[i]}] = std::vector<float>(b.x + 3 * i, b.x + 3 * i + 3);
  return samples;
}

TEST_CASE("Noise is its formula over draws of seed, epoch, place and index") {
  const Samples seen = read(4, 2, noises());
  CHECK(seen.size() == 39);
  for (const auto& [key, x] : seen)
    for (int64_t i = 0; i < 3; ++i) {
      const auto& [epoch, index] = key;
      float expected = static_cast<float>(index) + 0.5f * static_cast<float>(i);
      for (int64_t place = 0; place < 2; ++place) {
        const RandomStream draws{11, Purpose::kTransform,
                                 site_id(place == 0 ? "data.train.transforms.0" : "data.train.transforms.1"),
                                 static_cast<uint32_t>(epoch)};
        const float noise = (place == 0 ? 0.25f : 2.0f) * draws.normal(static_cast<uint64_t>(index * 3 + i));
        expected = expected + noise;
      }
      CHECK(x[static_cast<size_t>(i)] == expected);
    }
  // Anew in each epoch and for each sample.
  CHECK(seen.at({0, 5}) != seen.at({1, 5}));
}

TEST_CASE("Transformed samples do not depend on batches, prefetching or where a run begins") {
  const Samples all = read(4, 2, noises());
  for (const int64_t micro : {1, 5, 13})
    for (const int prefetch : {0, 3}) CHECK(read(micro, prefetch, noises()) == all);
  for (const auto& [key, x] : read(4, 1, noises(), 1, 6)) CHECK(all.at(key) == x);
  CHECK(read(4, 0, {}) != all);
}

TEST_CASE("The spread of noise is sd") {
  const auto noise = make_transform("noise", {{"sd", 3.0}});
  constexpr int64_t kCount = 40000;
  std::vector<float> x(kCount, 0.0f);
  noise->apply(transform_stream(1, 0, 0), 7, Shape{kCount}, x.data());
  double mean = 0, square = 0;
  for (const float v : x) mean += static_cast<double>(v), square += static_cast<double>(v) * static_cast<double>(v);
  mean /= kCount;
  CHECK(std::fabs(mean) < 5 * 3.0 / std::sqrt(kCount));
  CHECK(std::fabs(square / kCount - 9) < 5 * 9 * std::sqrt(2.0 / kCount));
}

TEST_CASE("What a transform is not given, or cannot be given, is named") {
  CHECK(error_of([] { make_transform("noice", {}); }) ==
        "[transform] unknown transform 'noice'. Did you mean 'noise'? Known: noise");
  CHECK(error_of([] { make_transform("noise", {}); }) ==
        "[transform noise] attribute 'sd' is missing: a number in (0, 1e30]");
  CHECK(contains(error_of([] { make_transform("noise", {{"sd", 0}}); }), "sd: got 0, expected a number in (0, 1e30]"));
  CHECK(contains(error_of([] { make_transform("noise", {{"sd", NAN}}); }), "sd: got nan"));
  CHECK(contains(error_of([] { make_transform("noise", {{"sd", 1}, {"s", 1}}); }), "unknown attribute 's'"));
  CHECK(contains(error_of([] {
                   register_transform({"noise", "", {}, [](const auto&) { return nullptr; }});
                 }),
                 "a transform 'noise' exists already"));
  CHECK(contains(error_of([] { register_transform({"x", "", {}, {}}); }), "'x' has no make function"));
  CHECK(contains(error_of([] { register_transform({"", "", {}, {}}); }), "register_transform"));
  LoaderOptions options;
  options.transforms = noises();
  const Ramp ids(/*ids=*/true);
  CHECK(contains(error_of([&] { const Loader loader(ids, options); }),
                 "ramp: transforms need values, its samples are ids"));
}

TEST_CASE("A transform of a program is made by its name, with its defaults") {
  struct Scale final : Transform {
    explicit Scale(double by) : by(static_cast<float>(by)) {}
    void apply(const RandomStream&, int64_t, const Shape& sample, float* x) const override {
      for (int64_t i = 0; i < sample.numel(); ++i) x[i] *= by;
    }
    float by;
  };
  register_transform({"scale_for_test",
                      "multiplies",
                      {{"by", Key::Type::kNumber, "[0, 10]", "2", "the factor"}},
                      [](const Attributes& keys) { return std::make_shared<Scale>(keys.number("by")); }});
  const Samples seen = read(4, 0, {make_transform("scale_for_test", {})});
  CHECK(seen.at({2, 5}) == std::vector<float>{10, 11, 12});
  CHECK(find_transform("scale_for_test")->doc == "multiplies");
}

}  // namespace
}  // namespace bitgrad
