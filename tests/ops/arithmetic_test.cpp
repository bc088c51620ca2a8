#include "bitgrad/ops/ops.h"
#include "kernels/reduce.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

const std::vector<Shape> kShapes = {{}, {1}, {7}, {1, 1}, {3, 5}, {2, 3, 4}};

}  // namespace

TEST_CASE("add, mul, sum and reshape pass the gradient check") {
  for (const Shape& shape : kShapes) {
    const std::vector<Tensor> two = {random_tensor(shape, dtypes::fp64, 1), random_tensor(shape, dtypes::fp64, 2)};
    CHECK(gradcheck([](const auto& v) { return add(v[0], v[1]); }, two) == "");
    CHECK(gradcheck([](const auto& v) { return mul(v[0], v[1]); }, two) == "");
    CHECK(gradcheck([](const auto& v) { return times(v[0], -2.5f); }, {two[0]}) == "");
    CHECK(gradcheck([](const auto& v) { return sum(v[0]); }, {two[0]}) == "");
    CHECK(gradcheck([&](const auto& v) { return reshape(v[0], {1, shape.numel()}); }, {two[0]}) == "");
  }
}

TEST_CASE("times is each number by the factor, rounded once") {
  const Tensor x = random_tensor({3, 5}, dtypes::fp32, 1, -4, 4);
  const std::vector<float> in = x.to_vector(), y = times(Var(x), 1.7f).value().to_vector();
  for (size_t i = 0; i < in.size(); ++i) CHECK(y[i] == in[i] * 1.7f);
  CHECK(contains(error_of([&] { times(Var(x), INFINITY); }), "factor: got inf, expected a finite number."));
}

TEST_CASE("one input read several times gets the sum of its gradients") {
  const Tensor x = random_tensor({4, 3}, dtypes::fp64, 3);
  CHECK(gradcheck([](const auto& v) { return mul(v[0], v[0]); }, {x}) == "");
  CHECK(gradcheck([](const auto& v) { return add(v[0], v[0]); }, {x}) == "");
  CHECK(gradcheck(
            [](const auto& v) {
              const Var y = mul(v[0], v[0]);
              return add(mul(y, v[0]), add(y, mul(y, y)));
            },
            {x}) == "");
  CHECK(gradcheck([](const auto& v) { return mul(sum(v[0]), sum(mul(v[0], v[0]))); }, {x}) == "");
}

// [cpu]: differences of fp64
TEST_CASE("a wrong gradient fails the gradient check", "[cpu]") {
  // detach hides one factor, so the gradient of x*x is x in place of 2x.
  const std::string found =
      gradcheck([](const auto& v) { return mul(v[0], v[0].detach()); }, {random_tensor({3}, dtypes::fp64, 4, 0.5, 1)});
  CHECK(contains(found, "input 0 element 0: gradient "));
  CHECK(gradcheck([](const auto& v) { return sum(v[0]); }, {Tensor::zeros({2}, dtypes::fp32)}) ==
        "input 0 is [2] fp32, expected fp64");
}

TEST_CASE("add and mul in fp32 are one rounding an element, the sum has the order of the reduce family") {
  const Tensor a = random_tensor({3, 700}, dtypes::fp32, 5), b = random_tensor({3, 700}, dtypes::fp32, 6);
  const Tensor y = add(Var(a), Var(b)).value(), z = mul(Var(a), Var(b)).value();
  bool equal = true;
  for (int64_t i = 0; i < a.numel(); ++i)
    equal = equal && y.as<float>()[i] == a.as<float>()[i] + b.as<float>()[i] &&
            z.as<float>()[i] == a.as<float>()[i] * b.as<float>()[i];
  CHECK(equal);
  CHECK(sum(Var(a)).value().item() ==
        static_cast<double>(on_cpu([&] { return kernels::sum(a.as<float>(), a.numel()); })));
}

TEST_CASE("empty tensors add up to nothing") {
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(Tensor::zeros({0, 4}, dtypes::fp32), &sink, dtypes::fp32);
  const Var y = sum(mul(add(x, x), x));
  CHECK(y.value().item() == 0);
  tape.backward(y);
  CHECK(sink.filled());
  CHECK(sink.grad().shape() == Shape{0, 4});
}

TEST_CASE("reshape keeps the numbers and the codes, and refuses what a packed axis cannot do") {
  const Tensor x = random_tensor({2, 6}, dtypes::fp32, 7);
  CHECK(reshape(Var(x), {3, 4}).value().elements() == x.elements());
  const Tensor codes = random_tensor({4, 3}, dtypes::int4, 8);
  CHECK(reshape(Var(codes), {2, 2, 3}).value().elements() == codes.elements());
  CHECK(contains(error_of([&] { reshape(Var(codes), {6, 2}); }), "packed last axis cannot change from 3 to 2"));
  CHECK(contains(error_of([&] {
                   reshape(Var(x), {5, 2});
                 }),
                 "shape [5,2] has 10 elements, the tensor [2,6] fp32 has 12"));
}

TEST_CASE("operands that do not fit are errors that name both") {
  const Var a = Tensor::zeros({2, 3}, dtypes::fp32), b = Tensor::zeros({3, 2}, dtypes::fp32);
  CHECK(error_of([&] { add(a, b); }) == "[add] operands differ: got [2,3] fp32 and [3,2] fp32");
  CHECK(error_of([&] {
          on_cpu([] { mul(Tensor::zeros({2, 3}, dtypes::fp32), Tensor::zeros({2, 3}, dtypes::fp64)); });
        }) == "[mul] operands differ: got [2,3] fp32 and [2,3] fp64");
  CHECK(error_of([&] {
          add(a, Var(Tensor::zeros({2, 3}, dtypes::int8)));
        }) == "[add] b must be fp32 (or fp64), got [2,3] int8. Dequantize it first");
  CHECK(contains(error_of([&] {
                   sum(Var(Tensor::zeros({2, 3}, dtypes::bf16)));
                 }),
                 "[sum] x must be fp32 (or fp64), got [2,3] bf16"));
  const Tensor wide = Tensor::zeros({2, 4}, dtypes::fp32);
  CHECK(contains(error_of([&] { sum(Var(wide.column_slice(0, 2))); }), "x must be dense, got a view of [2,2] fp32"));
  CHECK(contains(error_of([&] { add(a, Var()); }), "[add] input 1 is undefined"));
}
