// f(gate) * up against the two ops that it stands for, and against doubles.
#include "bitgrad/autograd/tape.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::vector<UnaryOp> kFunctions = {UnaryOp::silu, UnaryOp::gelu, UnaryOp::relu, UnaryOp::sigmoid, UnaryOp::relu2};
// At and past the edges of vectors and of pieces of work.
const std::vector<Shape> kShapes = {{1}, {3}, {2, 16}, {5, 17}, {2, 3, 33}, {4, 9, 130}, {0, 4}, {3, 70000}};

struct Ran {
  Tensor y;
  std::vector<Tensor> g;
};
template <typename F>
Ran run(const std::vector<Tensor>& in, const F& f, DType edge = dtypes::fp32) {
  std::vector<AccumulateSink> sinks(in.size());
  Tape tape;
  std::vector<Var> leaves;
  for (size_t i = 0; i < in.size(); ++i) leaves.push_back(tape.leaf(in[i], &sinks[i], edge));
  const Var y = f(leaves);
  tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 9)});
  Ran out{y.value(), {}};
  for (const AccumulateSink& s : sinks) out.g.push_back(s.grad());
  return out;
}

// gate and up side by side along the last axis.
Tensor joined(const Tensor& gate, const Tensor& up) { return concatenate({Var(gate), Var(up)}, -1).value(); }

}  // namespace

TEST_CASE("gated is f(gate) * up bit for bit, and so are its gradients") {
  for (const UnaryOp f : kFunctions)
    for (const Shape& shape : kShapes) {
      INFO(unary_name(f) << ' ' << shape);
      const Tensor gate = random_tensor(shape, dtypes::fp32, 1, -4, 4), up = random_tensor(shape, dtypes::fp32, 2);
      const Ran two = run({gate, up}, [&](const auto& v) { return mul(unary(f, v[0]), v[1]); });
      const Ran halves = run({joined(gate, up)}, [&](const auto& v) { return gated(f, v[0]); });
      CHECK(halves.y.shape() == shape);
      CHECK((bits_of(halves.y) == bits_of(two.y)));
      CHECK((bits_of(halves.g[0]) == bits_of(joined(two.g[0], two.g[1]))));
    }
}

TEST_CASE("gated passes the gradient check") {
  for (const UnaryOp f : {UnaryOp::silu, UnaryOp::gelu, UnaryOp::tanh})
    for (const Shape& shape : {Shape{2, 3, 10}, Shape{3, 8}})
      CHECK(gradcheck([&](const auto& v) { return gated(f, v[0]); }, {random_tensor(shape, dtypes::fp64, 3, -2, 2)}) ==
            "");
}

TEST_CASE("gated names unsupported arguments") {
  const Tensor x = random_tensor({2, 3}, dtypes::fp32, 1);
  CHECK(contains(error_of([&] { gated(UnaryOp::silu, x); }),
                 "[gated] x is gate and up side by side: the last axis must be even, got [2,3] fp32"));
  CHECK(contains(error_of([&] {
                   gated(UnaryOp::silu, random_tensor({2, 4}, dtypes::int8, 1));
                 }),
                 "[gated] x must be fp32 or bf16 (or fp64), got [2,4] int8"));
}
