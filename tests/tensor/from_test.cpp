// Tensors made of fp32 values, and read as them.
#include <bit>
#include <cmath>
#include <limits>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/tensor/tensor.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

using Floats = std::vector<float>;

TEST_CASE("a tensor is made of fp32 values in one call, and gives them back bit for bit") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Floats values{1.5f, -0.0f, 1e-40f, -3e38f, INFINITY, nan};
  const Tensor t = Tensor::from(values, {2, 3});
  CHECK(t.dtype() == dtypes::fp32);
  CHECK(t.shape() == Shape{2, 3});
  CHECK(t.kind() == MemoryKind::kActivation);
  const Floats back = t.to_vector();
  REQUIRE(back.size() == values.size());
  for (size_t i = 0; i < values.size(); ++i)
    CHECK(std::bit_cast<uint32_t>(back[i]) == std::bit_cast<uint32_t>(values[i]));
  CHECK(Tensor::from({1, 2, 3}, {3}).to_vector() == Floats{1, 2, 3});
  CHECK(Tensor::from({7}, {}).item() == 7);
  CHECK(Tensor::from({}, {0, 4}).to_vector().empty());
  CHECK(Tensor::from({1}, {1}, dtypes::fp32, MemoryKind::kBatch).kind() == MemoryKind::kBatch);
  CHECK(Tensor().to_vector().empty());
}

TEST_CASE("fp32 values become other dtypes: floats round to nearest even, integers and codes must be representable") {
  const Floats values{1, -1, 1, 1, -1, -1};
  for (const DType d : {dtypes::fp64, dtypes::bf16, dtypes::fp16, dtypes::int64, dtypes::int32, dtypes::int8,
                        dtypes::int4, dtypes::ternary, dtypes::bint1}) {
    const Tensor t = Tensor::from(values, {2, 3}, d);
    CHECK(t.dtype() == d);
    CHECK(t.to_vector() == values);
    CHECK(t.stride() == row_bytes_memory(d, 3));
  }
  CHECK(Tensor::from({1 + 0x1p-8f}, {1}, dtypes::bf16).item() == 1);
  CHECK(contains(error_of([] { Tensor::from({8}, {1}, dtypes::int4); }), "int4"));
  CHECK(contains(error_of([] { Tensor::from({0.5f}, {1}, dtypes::int8); }), "int8"));
  CHECK(error_of([] { Tensor::from({1, 2, 3}, {2, 2}); }) == "[Tensor::from] shape [2,2] needs 4 values, got 3");
}

TEST_CASE("to_vector and at give the values of every dtype, granularity and view") {
  for (const DType d : code_dtypes())
    for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1),
                                 Granularity::token(), Granularity::groups(16), Granularity::groups(2, 0)})
      for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) {
        const Tensor t = random_codes({4, 70}, d, 5, g, zero);
        INFO(t.describe());
        const std::vector<double> expected = t.values();
        const Floats values = t.to_vector();
        bool same = values.size() == expected.size();
        for (int64_t r = 0; r < 4; ++r)
          for (int64_t c = 0; c < 70; ++c) {
            const auto i = static_cast<size_t>(r * 70 + c);
            same = same && static_cast<double>(values[i]) == expected[i] && t.at({r, c}) == values[i];
          }
        CHECK(same);
        CHECK(t.row_slice(2, 4).at({1, 69}) == t.at({3, 69}));
      }
  const Tensor cube = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 3, 2});
  CHECK(cube.at({1, 2, 0}) == 10);
  CHECK(cube.at({-1, -1, -1}) == 11);
  CHECK(Tensor::scalar(3).at({}) == 3);
  CHECK(Tensor::from_elements({2}, dtypes::fp64, std::vector<double>{1 + 0x1p-30, 2}).at({0}) == 1);
  CHECK(cube.column_slice(1, 2).to_vector() == Floats{1, 3, 5, 7, 9, 11});
}

TEST_CASE("at reports which index is wrong, and what is allowed") {
  const Tensor t = Tensor::zeros({2, 3}, dtypes::fp32);
  CHECK(error_of([&] { t.at({2, 0}); }) == "[Tensor::at] index 2 of axis 0 of [2,3] fp32: expected -2 .. 1");
  CHECK(error_of([&] { t.at({0, -4}); }) == "[Tensor::at] index -4 of axis 1 of [2,3] fp32: expected -3 .. 2");
  CHECK(error_of([&] { t.at({0}); }) == "[Tensor::at] got 1 indices for [2,3] fp32, expected 2: one an axis");
  CHECK(contains(error_of([] { Tensor().at({0}); }), "the tensor is undefined"));
}
