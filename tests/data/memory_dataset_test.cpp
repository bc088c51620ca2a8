// Arrays of a program as a data set.
#include "bitgrad/data/samples.h"

#include <cmath>

#include "bitgrad/data/loader.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("arrays give the examples of a file of the same bytes, and report how they are stored") {
  const std::vector<uint8_t> pixels{0, 255, 51, 102, 3, 4, 9, 8, 7, 6, 5, 4};
  const std::vector<int32_t> labels{1, 0};
  MemoryDatasetSpec spec;
  spec.samples = {"x", StoredAs::kUint8, {1, 2, 3}, 2, pixels.data()};
  spec.targets = {"y", StoredAs::kInt32, {}, 2, labels.data()};
  spec.normalize = {{0.1f, 0.2f, 0.3f}, {0.5f, 0.6f, 0.7f}};
  const auto data = make_memory_dataset(spec);
  CHECK(data->classes() == 2);
  CHECK(data->sample_shape() == std::vector<int64_t>{1, 2, 3});
  std::vector<float> x(6);
  int32_t label = -1;
  data->sample(1, x.data(), &label);
  CHECK(label == 0);
  CHECK(x[4] == (5.0f / 255.0f - 0.2f) / 0.6f);
  const StoredSamples stored = data->stored();
  CHECK(stored.codes == pixels.data());  // not copied
  REQUIRE(stored.tables == 3);
  CHECK(stored.numbers[1 * 256 + 5] == x[4]);
  CHECK(stored.bytes == 12);
  spec.classes = 7;
  CHECK(make_memory_dataset(spec)->classes() == 7);
}

TEST_CASE("values, ids and positions of arrays; what does not fit is named") {
  const std::vector<float> values{1, 2, 3, 4}, targets{0.5f, 1.5f};
  const std::vector<int32_t> ids{0, 3, 2, 1}, classes{0, -100, 1, 1};
  MemoryDatasetSpec spec;
  spec.samples = {"x", StoredAs::kFloat, {2}, 2, values.data()};
  spec.targets = {"y", StoredAs::kFloat, {}, 2, targets.data()};
  CHECK(make_memory_dataset(spec)->target_form().shape == Shape{1});
  CHECK(make_memory_dataset(spec)->stored().form == StoredAs::kFloat);
  spec.affine = {2.0f, 0.0f};
  CHECK(make_memory_dataset(spec)->stored().codes == nullptr);
  spec.affine = {1.0f, 0.0f};
  const auto wrong = [&] { return error_of([&] { make_memory_dataset(spec); }); };
  spec.targets.count = 1;
  CHECK(wrong() == "[data.memory] got 2 samples and 1 targets, expected as many, 1 or more");
  spec.targets = {"y", StoredAs::kInt32, {2}, 2, classes.data()};
  CHECK(make_memory_dataset(spec)->target_form() == TargetForm{{2}, 2});
  spec.targets = {"y", StoredAs::kInt32, {}, 2, classes.data()};
  CHECK(wrong() == "[data.memory] y: sample 1, value 0: got -100, expected 0 or more");
  spec.targets = {"y", StoredAs::kInt32, {}, 2, ids.data()};
  spec.classes = 3;
  CHECK(contains(wrong(), "y: sample 1, value 0: got 3, expected 0 .. 2"));
  spec.classes = 0;
  spec.vocabulary = 4;
  CHECK(contains(wrong(), "x: got fp32 values, the model expects ids"));
  spec.samples = {"x", StoredAs::kInt32, {2}, 2, ids.data()};
  std::vector<int32_t> x(2), y(1);
  make_memory_dataset(spec)->sample_ids(1, x.data(), y.data());
  CHECK(x == std::vector<int32_t>{2, 1});
  spec.vocabulary = 3;
  CHECK(contains(wrong(), "x: sample 0, value 1: got 3, expected 0 .. 2"));
  spec.vocabulary = 0;
  CHECK(contains(wrong(), "integers require a model of ids"));
  const std::vector<float> infinite{1, INFINITY};
  spec.samples = {"x", StoredAs::kFloat, {1}, 2, infinite.data()};
  CHECK(contains(wrong(), "x: sample 1, value 0: got inf, expected a finite fp32"));
}
