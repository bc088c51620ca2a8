// What kernels of a device refuse, by name.
#include "both.h"
#include "kernels/elementwise.h"
#include "kernels/pointwise.h"
#include "kernels/quantize_problem.h"
#include "kernels/rowwise.h"
#include "support/expect_error.h"

namespace bitgrad::test {

using namespace kernels;
namespace {

TEST_CASE("Doubles stay on the CPU: kernels of a device refuse them") {
  const DeviceGuard guard(Device::cuda());
  const std::string refused = "] fp64 is the reference dtype of the CPU";
  double x = 1, y = 0;
  const auto unary = [&] { unary_forward(UnaryOp::relu, 1, {&x, dtypes::fp64}, {&y, dtypes::fp64}); };
  CHECK(contains(error_of(unary), refused));
  CHECK(error_code_of(unary) == static_cast<int>(ErrorCode::kDevice));
  CHECK(contains(error_of([] {
                   softmax_rows({1, 1, {nullptr, dtypes::fp64}, {nullptr, dtypes::fp64}});
                 }),
                 "[softmax_rows" + refused));
  PointwiseArgs args;
  args.a.dtype = args.b.dtype = args.y.dtype = dtypes::fp64;
  CHECK(contains(error_of([&] { pointwise(args); }), "[pointwise" + refused));
}

TEST_CASE("dequantize refuses fp64 and fp16, quantize a rule that does not fit the dtype") {
  const DeviceGuard guard(Device::cuda());
  const Placed<float> y(std::vector<float>(8));
  const Placed<uint8_t> codes(std::vector<uint8_t>(64));
  const auto error = [&](DType dtype) {
    return error_of([&] { dequantize({1, 8, dtype, codes.data(), 64, {}, y.data(), 8}); });
  };
  CHECK(contains(error(dtypes::fp64), "[dequantize] fp64 is the reference dtype of the CPU"));
  CHECK(contains(error(dtypes::fp16), "[dequantize] there is no kernel of dtype fp16 on cuda:0"));
  quantize_problem::Case c(1, 8, dtypes::nf4);
  CHECK(contains(error_of([&] { quantize(c.args); }), "does not fit dtype nf4"));
  c.args.dtype = dtypes::bf16;
  CHECK(contains(error_of([&] { quantize(c.args); }), "bf16 has no codes"));
}

}  // namespace
}  // namespace bitgrad::test
