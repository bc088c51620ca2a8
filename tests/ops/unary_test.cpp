#include "bitgrad/ops/unary.h"
#include "bitgrad/base/math.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<UnaryOp> all_ops() {
  std::vector<UnaryOp> out;
  for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i) out.push_back(static_cast<UnaryOp>(i));
  return out;
}

// Gradient of sum of f at x, in the edge's dtype.
double slope(UnaryOp op, double x) {
  AccumulateSink sink;
  Tape tape;
  tape.backward(sum(unary(op, tape.leaf(Tensor::full({1}, dtypes::fp32, x), &sink, dtypes::fp32))));
  return sink.grad().item();
}
double value(UnaryOp op, double x) { return unary(op, Var(Tensor::full({1}, dtypes::fp32, x))).value().item(); }

}  // namespace

TEST_CASE("every pointwise function passes the gradient check") {
  for (const UnaryOp op : all_ops()) {
    INFO(unary_name(op));
    for (const Shape& shape : {Shape{}, Shape{1, 1}, Shape{5, 7}, Shape{2, 3, 2}}) {
      Tensor x = random_tensor(shape, dtypes::fp64, 11, -3, 3);
      // Not on a kink, where there is no derivative to compare with.
      for (int64_t i = 0; i < x.numel(); ++i)
        for (const double kink : {-1.0, 0.0, 1.0})
          if (std::fabs(x.as<double>()[i] - kink) < 1e-3) x.as<double>()[i] += 0.01;
      CHECK(gradcheck([&](const auto& v) { return unary(op, v[0]); }, {x}) == "");
    }
  }
}

TEST_CASE("fp32 functions are our own, and slopes at kinks are as the list says") {
  CHECK(value(UnaryOp::tanh, 0.7) == static_cast<double>(math::tanh(0.7f)));
  CHECK(value(UnaryOp::sigmoid, -1.5) == static_cast<double>(1.0f / (1.0f + math::exp(1.5f))));
  CHECK(value(UnaryOp::relu, -2) == 0);
  CHECK(value(UnaryOp::hardtanh, -2) == -1);
  CHECK(slope(UnaryOp::relu, 0) == 0);
  CHECK(value(UnaryOp::relu2, 1.5) == 2.25);
  CHECK(value(UnaryOp::relu2, -2) == 0);
  CHECK(slope(UnaryOp::relu2, 1.5) == 3);
  CHECK(slope(UnaryOp::relu2, 0) == 0);
  CHECK(slope(UnaryOp::hardtanh, 1) == 1);
  CHECK(slope(UnaryOp::hardtanh, -1) == 1);
  CHECK(slope(UnaryOp::hardtanh, 1.0000001) == 0);
  const float t = math::tanh(0.7f);
  CHECK(slope(UnaryOp::tanh, 0.7) == static_cast<double>(1.0f - t * t));
}

namespace {

// Output and gradients of a and b (b undefined: a twice) of one op, or of the two that it stands for.
std::vector<std::vector<double>> of_sum(bool one, const Tensor& a, const Tensor& b, DType gy, bool b_tracked = true) {
  AccumulateSink sinks[2];
  Tape tape;
  const Var va = tape.leaf(a, &sinks[0], dtypes::fp32);
  const Var inner = mul(va, va);  // so that gradients of several readers meet
  const Var vb = !b.defined() ? inner : b_tracked ? tape.leaf(b, &sinks[1], dtypes::fp32) : Var(b);
  Var y = one ? add_hardtanh(inner, vb) : unary(UnaryOp::hardtanh, add(inner, vb));
  y.want_grad(gy);
  const Var z = mul(y, Var(Tensor::full({1}, dtypes::fp32, 0.7)));
  tape.backward({z, inner}, {random_tensor(z.shape(), dtypes::fp32, 21), random_tensor(a.shape(), dtypes::fp32, 22)});
  std::vector<std::vector<double>> out{y.value().values(), sinks[0].grad().values()};
  if (sinks[1].filled()) out.push_back(sinks[1].grad().values());
  return out;
}

}  // namespace

TEST_CASE("add_hardtanh equals add and hardtanh bit for bit: one reader or two, constants, other shapes and dtypes") {
  for (const Shape& shape : {Shape{1}, Shape{5, 13}, Shape{3, 4, 4, 16}, Shape{0, 3}}) {
    const Tensor a = random_tensor(shape, dtypes::fp32, 11, -1, 1), b = random_tensor(shape, dtypes::fp32, 12, -2, 2),
                 row = random_tensor({shape[shape.rank() - 1]}, dtypes::fp32, 13, -2, 2);
    for (const DType gy : {dtypes::fp32, dtypes::bf16}) {
      INFO(shape << ' ' << gy);
      CHECK(of_sum(true, a, b, gy) == of_sum(false, a, b, gy));
      CHECK(of_sum(true, a, Tensor(), gy) == of_sum(false, a, Tensor(), gy));
      CHECK(of_sum(true, a, b, gy, false) == of_sum(false, a, b, gy, false));
      CHECK(of_sum(true, a, row, gy) == of_sum(false, a, row, gy));
    }
  }
  CHECK(gradcheck([](const auto& v) { return add_hardtanh(v[0], v[1]); },
                  {random_tensor({5, 7}, dtypes::fp64, 1, -0.4, 0.4),
                   random_tensor({5, 7}, dtypes::fp64, 2, 0.7, 0.9)}) == "");
  CHECK(error_of([&] {
          add_hardtanh(Var(Tensor::zeros({2, 3}, dtypes::fp32)), Var(Tensor::zeros({2, 4}, dtypes::fp32)));
        }) == error_of([&] {
          add(Var(Tensor::zeros({2, 3}, dtypes::fp32)), Var(Tensor::zeros({2, 4}, dtypes::fp32)));
        }));
}

// [cpu]: a device saves the fp32 sum, not a bit mask
TEST_CASE("add_hardtanh keeps one bit an element", "[cpu]") {
  AccumulateSink sink;
  Tape tape;
  const Tensor x = Tensor::full({64, 100}, dtypes::fp32, 0.25);
  const Var in = tape.leaf(x, &sink, dtypes::fp32);
  const int64_t before = memory_now()[MemoryKind::kSaved];
  const Var y = add_hardtanh(in, Var(x));
  CHECK(memory_now()[MemoryKind::kSaved] - before == 64 * 100 / 8);
}

TEST_CASE("codes and views are refused by name") {
  CHECK(error_of([] {
          relu(Var(Tensor::zeros({2, 2}, dtypes::uint4)));
        }) == "[relu] x must be fp32 (or fp64), got [2,2] uint4. Dequantize it first");
  CHECK(contains(error_of([] {
                   sigmoid(Var(Tensor::zeros({2, 4}, dtypes::fp32).column_slice(1, 3)));
                 }),
                 "[sigmoid] x must be dense"));
}
