// int8 by absmax with a scale per row, or per group of one: codes and scales from two reads (src/quant/quantizer.cpp)
// are those of fit and quantize_tensor, and the mask that it leaves out would have passed everything.
#include <cmath>
#include <limits>
#include <random>

#include "bitgrad/base/cpu.h"
#include "bitgrad/quant/quantizer.h"
#include "kernels/flag.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/expect_error.h"
#include "support/numbers.h"

namespace bitgrad {
namespace {

struct RestoreIsa {
  IsaLevel level = isa_cap();
  ~RestoreIsa() { set_isa_cap(level); }
};

// Rows of every size: ordinary, zeros, subnormal, near the ends of fp32; ties of codes.
Tensor rows_of(int64_t rows, int64_t cols) {
  Tensor x = Tensor::empty({rows, cols}, dtypes::fp32);
  std::mt19937 random(static_cast<uint32_t>(rows * 1000 + cols));
  std::uniform_real_distribution<float> uniform(-1, 1);
  constexpr float kSizes[] = {1.0f, 0.0f, 1e-44f, 3e38f, 1e-37f, 127.0f, 2.54f, 1e-3f};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const float size = kSizes[r % 8];
      x.as<float>()[r * cols + c] = c == 0 ? size : c == 1 && r % 16 == 5 ? 63.5f : uniform(random) * size;
    }
  return x;
}

QuantSpec spec_of(const Granularity& granularity) {
  QuantSpec spec;
  spec.dtype = dtypes::int8;
  spec.scheme = "absmax";
  spec.granularity = granularity;
  return spec;
}

void check(const QuantSpec& spec, const Tensor& x) {
  Tensor mask, plain_mask;
  QuantizeOptions options, plain;
  options.mask = &mask;
  plain.mask = &plain_mask;
  const Tensor got = quantize_dynamic(spec, x, options);
  const auto params = std::make_shared<const QuantParams>(find_quantizer(spec.scheme).fit(spec, x));
  const Tensor expected = quantize_tensor(spec, x, params, plain);
  CHECK((got.elements() == expected.elements()));
  REQUIRE(got.quant()->scale != nullptr);
  CHECK((test::bits_of(*got.quant()->scale) == test::bits_of(*expected.quant()->scale)));
  CHECK(got.quant()->scheme == expected.quant()->scheme);
  CHECK(got.quant()->granularity == expected.quant()->granularity);
  if (mask.defined()) return;
  for (const double bit : plain_mask.elements()) CHECK(bit == 1);
}

}  // namespace

TEST_CASE("absmax a row: codes, scales and gradients are those of fit and quantize_tensor") {
  const RestoreIsa restore;
  for (const IsaLevel level : test::isa_levels()) {
    set_isa_cap(level);
    for (const Granularity& g :
         {Granularity::token(), Granularity::channel(0), Granularity::channel(1), Granularity::tensor(),
          Granularity::groups(3), Granularity::groups(16), Granularity::groups(32), Granularity::groups(256)})
      for (const int64_t cols : {1, 7, 8, 16, 63, 64, 65, 72, 136, 2048, 2056, 5000}) {
        INFO(g << ", " << cols << " columns, level " << static_cast<int>(level));
        check(spec_of(g), rows_of(19, cols));
      }
  }
}

TEST_CASE("absmax a row: other roundings of scales and codes keep their own way") {
  const Tensor x = rows_of(9, 64).row_slice(4, 8);
  QuantSpec spec = spec_of(Granularity::token());
  spec.pow2 = true;
  check(spec, x);
  spec.pow2 = false;
  spec.eps = 0.5f;
  check(spec, x);
  spec.eps.reset();
  spec.div = true;
  check(spec, x);
  spec.div = false;
  spec.reduce_range = true;
  check(spec, x);
}

TEST_CASE("absmax a row: NaN and Inf raise the flag, and are an error without one") {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const Tensor x = rows_of(1, 64);
    x.as<float>()[63] = bad;
    const FlagWord word;
    uint32_t& flag = *word.word();
    QuantizeOptions options;
    options.flags = &flag;
    for (const Granularity& g : {Granularity::token(), Granularity::groups(32)}) {
      flag = 0;
      quantize_dynamic(spec_of(g), x, options);
      CHECK(flag != 0);
      CHECK(test::contains(test::error_of([&] { quantize_dynamic(spec_of(g), x); }), "NaN or Inf"));
    }
  }
}

}  // namespace bitgrad
