// Learned steps that carry no signal are fitted again: at the floor, or far below the fit with all codes at the ends.
#include "nn/step_signal.h"

#include <cmath>

#include "bitgrad/dtype/bf16.h"
#include "kernels/flag.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/spec_of.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr float kFloor = 0x1p-20f;

Tensor floats(const std::vector<double>& x) { return Tensor::from_elements({std::ssize(x)}, dtypes::fp32, x); }

// The learned parts after refit_steps.
std::vector<std::vector<double>> refitted(const QuantSpec& spec, const std::vector<std::vector<double>>& parts,
                                          const Tensor& x, int64_t step,
                                          const std::shared_ptr<int64_t>& told = std::make_shared<int64_t>(1)) {
  std::vector<Tensor> learned;
  for (const auto& part : parts) learned.push_back(floats(part));
  detail::refit_steps(spec, learned, kFloor, x, step, {"layers.0.weight", "weights", told});
  poll_errors();
  std::vector<std::vector<double>> out(learned.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = learned[i].elements();
  return out;
}

double step_after(const QuantSpec& spec, double step, const std::vector<double>& x, int64_t at) {
  return refitted(spec, {{step}}, Tensor::from_elements({1, std::ssize(x)}, dtypes::fp32, x), at)[0][0];
}

}  // namespace

TEST_CASE("a step at its floor is fitted at once, one far below its fit in steps that are multiples of 64") {
  const QuantSpec lsq = spec_of("lsq", dtypes::int4);
  const double fit = 2 * 2 / std::sqrt(7.0);  // mean abs 2
  for (const int64_t at : {0, 5, 63, 64, 128})
    for (const double fallen : {0x1p-20, 0x1p-21}) CHECK(step_after(lsq, fallen, {1, -2, 3}, at) == Approx(fit));
  CHECK(step_after(lsq, 1e-3f, {1, -2, 3}, 64) == Approx(fit));
  CHECK(step_after(lsq, 1e-3f, {1, -2, 3}, 65) == static_cast<double>(1e-3f));
  CHECK(step_after(lsq, 1e-3f, {1, -2, 0}, 64) == static_cast<double>(1e-3f));  // one code inside
  CHECK(step_after(lsq, 0.125, {1, -2, 3}, 64) == 0.125);                       // the fit is 12 times as large
  CHECK(step_after(lsq, 0x1p-20, {0, 0, 0}, 64) == 0x1p-20);                    // nothing to fit to
  const double nan = std::nan("");
  CHECK(step_after(lsq, 0x1p-20, {1, nan, 3}, 64) == 0x1p-20);
  CHECK(step_after(lsq, 1e-3f, {1, nan, 3}, 64) == static_cast<double>(1e-3f));
}

TEST_CASE("offsets follow their steps, and a clip returns to its first value") {
  const Tensor x = Tensor::from_elements({2, 2}, dtypes::fp32, std::vector<double>{3, -1, 5, 3});
  const auto plus = refitted(spec_of("lsq_plus", dtypes::uint4), {{0x1p-20}, {7}}, x, 1);
  CHECK(plus[0][0] == Approx(2 * 3 / std::sqrt(15.0)));
  CHECK(plus[1][0] == -1);
  CHECK(refitted(spec_of("lsq_plus", dtypes::int4), {{0x1p-20}, {7}}, x, 1)[1][0] == 0);
  // Far from all values, so that every code is at an end.
  CHECK(refitted(spec_of("lsq_plus", dtypes::int4), {{0.01f}, {1000}}, x, 64)[1][0] == 0);
  CHECK(refitted(spec_of("lsq_plus", dtypes::int4), {{0.01f}, {1000}}, x, 1)[1][0] == 1000);
  // Of zeros nothing can be fitted: their code is inside, so that a gradient passes.
  const Tensor zeros = Tensor::from_elements({1, 3}, dtypes::fp32, std::vector<double>{0, 0, 0});
  const auto none = refitted(spec_of("lsq_plus", dtypes::uint4), {{0x1p-20}, {0}}, zeros, 1);
  CHECK(none == std::vector<std::vector<double>>{{0x1p-20}, {-7 * 0x1p-20}});
  QuantSpec pact = spec_of("pact", dtypes::uint4);
  pact.first_clip = 6;
  CHECK(refitted(pact, {{0x1p-20}}, x, 1)[0][0] == 6);
  CHECK(refitted(pact, {{1e-3f}}, x, 64)[0][0] == 6);
  CHECK(refitted(pact, {{4}}, x, 64)[0][0] == 4);
}

TEST_CASE("each block has its own step, of values of any dtype") {
  // Rows and columns of mean abs 1, 2, 3.
  const std::vector<double> rows{1, -1, 2, -2, 3, -3};
  const auto rows_fit = refitted(spec_of("lsq", dtypes::int4, Granularity::channel(0)), {{0.5, 0x1p-20, 0x1p-20}},
                                 Tensor::from_elements({3, 2}, dtypes::fp32, rows), 1)[0];
  CHECK(rows_fit[0] == 0.5);
  CHECK(rows_fit[1] == Approx(4 / std::sqrt(7.0)));
  CHECK(rows_fit[2] == Approx(6 / std::sqrt(7.0)));
  const std::vector<double> columns{1, 2, -3, -1, -2, 3};
  const QuantSpec per_column = spec_of("lsq", dtypes::int4, Granularity::channel(1));
  for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
    const auto fit = refitted(per_column, {{0x1p-20, 0.5, 0x1p-20}}, Tensor::from_elements({2, 3}, dtype, columns), 1);
    CHECK(fit[0][0] == Approx(2 / std::sqrt(7.0)));
    CHECK(fit[0][1] == 0.5);
    CHECK(fit[0][2] == Approx(6 / std::sqrt(7.0)));
  }
  QuantParams params;
  params.granularity = Granularity::channel(1);
  params.scale = std::make_shared<const Tensor>(floats({0.5, 1, 2}));
  const Tensor sums =
      Tensor::from_elements({2, 3}, dtypes::int32, columns).with_quant(std::make_shared<const QuantParams>(params));
  const auto fit = refitted(per_column, {{0x1p-20, 0x1p-20, 0x1p-20}}, sums, 1)[0];
  for (const auto& [j, mean] : {std::pair{0, 0.5}, {1, 2.0}, {2, 6.0}})
    CHECK(fit[static_cast<size_t>(j)] == Approx(2 * mean / std::sqrt(7.0)));
}

TEST_CASE("of a large block 4096 elements are read, spread over it for any shape") {
  // In the second half one element in 8 is not 0, always in the same columns: the first elements are 0, and a stride
  // that 8 divides would see all or none.
  std::vector<double> x(size_t{64} * 4096);
  for (size_t i = x.size() / 2; i < x.size(); i += 8) x[i] = 16;
  const Tensor t = Tensor::from_elements({4096, 64}, dtypes::fp32, x);
  const double fit = refitted(spec_of("lsq", dtypes::int4), {{0x1p-20}}, t, 1)[0][0];
  CHECK(fit == Approx(2 / std::sqrt(7.0)).epsilon(0.05));
}

TEST_CASE("the warning names layer and number of steps, once") {
  const LogLines log;
  const auto told = std::make_shared<int64_t>(0);
  const Tensor x = Tensor::from_elements({3, 1}, dtypes::fp32, std::vector<double>{1, 2, 3});
  const QuantSpec spec = spec_of("lsq", dtypes::int4, Granularity::channel(0));
  refitted(spec, {{1, 1, 1}}, x, 1, told);
  CHECK(log.warnings.empty());
  for (int i = 0; i < 2; ++i) refitted(spec, {{0x1p-20, 1, 0x1p-20}}, x, 1, told);
  REQUIRE(log.warnings.size() == 1);
  CHECK(contains(log.warnings[0], "layers.0.weight: 2 of 3 learned steps of the weights carried no signal"));
}
