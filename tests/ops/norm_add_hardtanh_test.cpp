// The end of a residual unit as one op: batch norm, sum and hardtanh.
#include <algorithm>

#include "bitgrad/base/cpu.h"
#include "bitgrad/ops/ops.h"
#include "ops/norm.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Problem {
  Shape shape;
  bool training, b_tracked, b_is_x;
  DType gy;
};

NormOptions running(int64_t count, bool training) {
  NormOptions o;
  o.training = training;
  o.running_mean = random_tensor({count}, dtypes::fp32, 31);
  o.running_var = random_tensor({count}, dtypes::fp32, 32, 0.5, 2);
  return o;
}

// Output, gradients of all leaves and running statistics, of the one op or of the three that it stands for.
std::vector<std::vector<double>> results(bool one, const Problem& p) {
  const int64_t count = p.shape[p.shape.rank() - 1];
  const NormOptions options = running(count, p.training);
  AccumulateSink sinks[4];
  Tape tape;
  const Var a = tape.leaf(random_tensor(p.shape, dtypes::fp32, 1, -2, 2), &sinks[0], dtypes::fp32);
  const Var x = mul(a, a);  // so that gradients of several readers meet
  const Tensor other = random_tensor(p.shape, dtypes::fp32, 2, -1.5, 1.5);
  const Var b = p.b_is_x ? x : p.b_tracked ? tape.leaf(other, &sinks[1], dtypes::fp32) : Var(other);
  const Var gamma = tape.leaf(random_tensor({count}, dtypes::fp32, 3, 0.3, 1.5), &sinks[2], dtypes::fp32);
  const Var beta = tape.leaf(random_tensor({count}, dtypes::fp32, 4), &sinks[3], dtypes::fp32);
  if (one) REQUIRE(normalizes_before_hardtanh(x, b));
  Var y =
      one ? batch_norm_add_hardtanh(x, gamma, beta, b, options) : add_hardtanh(batch_norm(x, gamma, beta, options), b);
  y.want_grad(p.gy);
  const Var z = mul(y, Var(Tensor::full({1}, dtypes::fp32, 0.7)));
  tape.backward({z, x}, {random_tensor(z.shape(), dtypes::fp32, 21), random_tensor(x.shape(), dtypes::fp32, 22)});
  std::vector<std::vector<double>> out{y.value().values(), options.running_mean.values(), options.running_var.values()};
  for (const AccumulateSink& sink : sinks)
    if (sink.filled()) out.push_back(sink.grad().values());
  return out;
}

}  // namespace

// [cpu]: not fused on devices
TEST_CASE("batch norm, sum and hardtanh as one op have the bits of the three, forward and backward, on every ISA",
          "[cpu]") {
  const IsaLevel before = isa_cap();
  for (const Shape& shape : {Shape{64, 16}, Shape{2, 24, 24, 16}, Shape{16, 32}, Shape{12, 64}, Shape{3, 128},
                             Shape{2, 64}, Shape{130, 192}, Shape{2, 320}})
    for (int i = 0; i < 8; ++i) {
      const Problem p{shape, i % 2 == 0, i / 2 % 2 == 0, i / 4 == 1, i % 4 == 3 ? dtypes::bf16 : dtypes::fp32};
      for (const IsaLevel level : isa_levels({IsaLevel::kScalar, IsaLevel::kAvx2, before})) {
        set_isa_cap(level);
        INFO(shape << " case " << i << " cap " << static_cast<int>(level));
        const auto found = results(true, p), expected = results(false, p);
        REQUIRE(found.size() == expected.size());
        for (size_t k = 0; k < found.size(); ++k) {
          INFO("result " << k << ", first difference at "
                         << std::mismatch(found[k].begin(), found[k].end(), expected[k].begin()).first -
                                found[k].begin());
          CHECK((found[k] == expected[k]));  // without the numbers
        }
      }
      set_isa_cap(before);
    }
}

// [cpu]: not fused on devices
TEST_CASE("batch norm joins sum and hardtanh where rows fill whole words of bits", "[cpu]") {
  const auto joins = [](const Shape& x, const Shape& b, DType dtype = dtypes::fp32) {
    return normalizes_before_hardtanh(Var(Tensor::zeros(x, dtype)), Var(Tensor::zeros(b, dtypes::fp32)));
  };
  CHECK(joins({64, 16}, {64, 16}));
  CHECK_FALSE(joins({65, 16}, {65, 16}));
  CHECK_FALSE(joins({33, 5}, {33, 5}));
  CHECK_FALSE(joins({64, 16}, {16}));
  CHECK_FALSE(joins({64, 16}, {64, 16}, dtypes::fp64));
}
