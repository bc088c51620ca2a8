// Sums, differences and products of shapes that broadcast.
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

struct Pair {
  Shape a, b, y;
};
const std::vector<Pair> kPairs = {
    {{3, 4}, {4}, {3, 4}},
    {{4}, {3, 4}, {3, 4}},
    {{3, 4}, {3, 1}, {3, 4}},
    {{3, 1}, {1, 4}, {3, 4}},
    {{2, 3, 4}, {1, 3, 1}, {2, 3, 4}},
    {{2, 3, 4}, {3, 4}, {2, 3, 4}},
    {{2, 1, 4}, {3, 1}, {2, 3, 4}},
    {{2, 3, 1, 5}, {2, 1, 4, 1}, {2, 3, 4, 5}},
    {{1, 1, 1, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}},
    {{2, 3}, {}, {2, 3}},
    {{1}, {1, 1, 1}, {1, 1, 1}},
    {{0, 3}, {3}, {0, 3}},
    {{1, 3}, {0, 1}, {0, 3}},
};
using Binary = Var (*)(const Var&, const Var&);
struct Named {
  Binary op;
  float (*value)(float, float);
};
const std::vector<Named> kOps = {
    {[](const Var& a, const Var& b) { return add(a, b); }, [](float a, float b) { return a + b; }},
    {[](const Var& a, const Var& b) { return sub(a, b); }, [](float a, float b) { return a - b; }},
    {[](const Var& a, const Var& b) { return mul(a, b); }, [](float a, float b) { return a * b; }}};

// Index into an operand of flat index i of `shape`.
int64_t place_in_operand(const Shape& operand, const Shape& shape, int64_t i) {
  int64_t at = 0, step = 1;
  for (int64_t back = 1; back <= shape.rank(); ++back) {
    const int64_t k = i % shape[-back];
    i /= shape[-back];
    if (back > operand.rank()) continue;
    if (operand[-back] != 1) at += k * step;
    step *= operand[-back];
  }
  return at;
}

// The sum of g over what each element of an operand was repeated to, row-major, in the order of family reduce.
std::vector<double> summed(const std::vector<float>& g, const Shape& operand, const Shape& shape) {
  std::vector<std::vector<float>> parts(static_cast<size_t>(operand.numel()));
  for (size_t i = 0; i < g.size(); ++i)
    parts[static_cast<size_t>(place_in_operand(operand, shape, static_cast<int64_t>(i)))].push_back(g[i]);
  std::vector<double> out;
  for (const auto& p : parts)
    out.push_back(p.size() == 1 ? p[0]
                                : on_cpu([&] { return kernels::sum(p.data(), static_cast<int64_t>(p.size())); }));
  return out;
}

}  // namespace

TEST_CASE("sums, differences and products of shapes that broadcast pass the gradient check") {
  for (const Pair& p : kPairs)
    for (const Named& op : kOps) {
      INFO(p.a << " and " << p.b);
      const std::vector<Tensor> in = {random_tensor(p.a, dtypes::fp64, 1), random_tensor(p.b, dtypes::fp64, 2)};
      CHECK(gradcheck([&](const auto& v) { return op.op(v[0], v[1]); }, in) == "");
    }
}

TEST_CASE("an element of the result is one rounded operation on those that it repeats, in fp32 and in bf16") {
  for (const Pair& p : kPairs)
    for (const DType dtype : {dtypes::fp32, dtypes::bf16})
      for (const Named& op : kOps) {
        const Tensor a = random_tensor(p.a, dtype, 3), b = random_tensor(p.b, dtype, 4);
        const Tensor y = op.op(Var(a), Var(b)).value();
        INFO(p.a << " and " << p.b << ' ' << dtype);
        REQUIRE(y.shape() == p.y);
        REQUIRE(y.dtype() == dtype);
        const std::vector<double> x = a.elements(), z = b.elements();
        std::vector<double> expected;
        for (int64_t i = 0; i < p.y.numel(); ++i) {
          const float v = op.value(static_cast<float>(x[static_cast<size_t>(place_in_operand(p.a, p.y, i))]),
                                   static_cast<float>(z[static_cast<size_t>(place_in_operand(p.b, p.y, i))]));
          expected.push_back(dtype == dtypes::bf16 ? bf16_to_float(bf16_from_float(v)) : v);
        }
        CHECK(y.elements() == expected);
      }
}

TEST_CASE("the gradient of a repeated operand is the sum over its repetitions in the order of family reduce") {
  std::vector<Pair> pairs = kPairs;
  pairs.push_back({{40, 60, 3}, {60, 1}, {40, 60, 3}});
  pairs.push_back({{2100, 3}, {3}, {2100, 3}});
  for (const Pair& p : pairs)
    for (const DType dtype : {dtypes::fp32, dtypes::bf16})
      for (const DType edge : {dtypes::fp32, dtypes::bf16}) {
        INFO(p.a << " and " << p.b << ' ' << dtype << ' ' << edge);
        const Tensor a = random_tensor(p.a, dtype, 5), b = random_tensor(p.b, dtype, 6);
        const Tensor seed = random_tensor(p.y, dtypes::fp32, 7);
        AccumulateSink sinks[4];
        Tape tape;
        const Var va = tape.leaf(a, &sinks[0], edge), vb = tape.leaf(b, &sinks[1], edge);
        const Var wa = tape.leaf(a, &sinks[2], edge), wb = tape.leaf(b, &sinks[3], edge);
        tape.backward({sub(va, vb), mul(wa, wb)}, {seed, seed});
        const std::vector<float> g = seed.to_vector();
        const std::vector<double> x = a.elements(), z = b.elements();
        std::vector<float> minus, times_a, times_b;
        for (int64_t i = 0; i < p.y.numel(); ++i) {
          const float gi = g[static_cast<size_t>(i)];
          minus.push_back(-gi);
          times_a.push_back(gi * static_cast<float>(x[static_cast<size_t>(place_in_operand(p.a, p.y, i))]));
          times_b.push_back(gi * static_cast<float>(z[static_cast<size_t>(place_in_operand(p.b, p.y, i))]));
        }
        const auto rounded = [&](std::vector<double> v) {
          if (edge == dtypes::bf16)
            for (double& e : v) e = bf16_to_float(bf16_from_float(static_cast<float>(e)));
          return v;
        };
        CHECK(sinks[0].grad().elements() == rounded(summed(g, p.a, p.y)));
        CHECK(sinks[1].grad().elements() == rounded(summed(minus, p.b, p.y)));
        CHECK(sinks[2].grad().elements() == rounded(summed(times_b, p.a, p.y)));
        CHECK(sinks[3].grad().elements() == rounded(summed(times_a, p.b, p.y)));
      }
}

TEST_CASE("equal shapes of any rank are added, others have at most four axes and fit") {
  const Tensor x = random_tensor({2, 1, 2, 1, 3}, dtypes::fp32, 8);
  CHECK(add(Var(x), Var(x)).shape() == Shape{2, 1, 2, 1, 3});
  CHECK(error_of([&] { add(Var(x), Var(Tensor::zeros({3}, dtypes::fp32))); }) ==
        "[add] at most 4 axes are broadcast: got [2,1,2,1,3] fp32 and [3] fp32. Reshape them to fewer");
  CHECK(error_of([] {
          sub(Var(Tensor::zeros({2, 3}, dtypes::fp32)), Var(Tensor::zeros({2}, dtypes::fp32)));
        }) == "[sub] operands differ: got [2,3] fp32 and [2] fp32");
  CHECK(error_of([] {
          mul(Var(Tensor::zeros({2, 3}, dtypes::fp32)), Var(Tensor::zeros({3}, dtypes::bf16)));
        }) == "[mul] operands differ: got [2,3] fp32 and [3] bf16");
  CHECK(contains(error_of([] {
                   add(Var(Tensor::zeros({2, 3}, dtypes::int4)), Var(Tensor::zeros({3}, dtypes::bf16)));
                 }),
                 "[add] a must be fp32 (or fp64), got [2,3] int4. Dequantize it first"));
}

TEST_CASE("functions of bf16 give bf16, gradients stay fp32") {
  const Tensor x = random_tensor({3, 5}, dtypes::bf16, 9, -3, 3);
  for (const auto f : {UnaryOp::gelu, UnaryOp::silu, UnaryOp::gelu_tanh, UnaryOp::relu}) {
    AccumulateSink sink;
    Tape tape;
    const Var y = unary(f, tape.leaf(x, &sink, dtypes::fp32));
    CHECK(y.dtype() == dtypes::bf16);
    const Tensor seed = random_tensor({3, 5}, dtypes::fp32, 10);
    tape.backward({y}, {seed});
    const std::vector<float> wide = x.to_vector(), g = seed.to_vector();
    std::vector<float> value(15), slope(15);
    on_cpu([&] {
      unary_forward(f, 15, wide.data(), value.data());
      unary_backward(f, 15, wide.data(), g.data(), slope.data());
    });
    for (float& v : value) v = bf16_to_float(bf16_from_float(v));
    CHECK(y.value().to_vector() == value);
    CHECK(sink.grad().to_vector() == slope);
  }
}
