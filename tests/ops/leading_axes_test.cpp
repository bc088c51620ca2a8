// Ops that act on the last axis keep the axes before it: rank 3 is, bit for bit, the flattened matrix.
#include "bitgrad/autograd/tape.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/quant/quantizer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/numbers.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;
using test::gradcheck;
using test::random_tensor;

struct Sizes {
  int64_t n, t, i, o;
};
// At and past edges of blocks, words and tiles.
const std::vector<Sizes> kSizes = {{1, 1, 1, 1}, {2, 3, 5, 4}, {3, 7, 64, 16}, {5, 13, 65, 33}, {4, 16, 130, 64}};

// Values and gradients of an op of x, the others and a weight of its output.
struct Seen {
  Shape shape;
  std::vector<std::vector<double>> numbers;
};
template <typename F>
Seen run(const std::vector<Tensor>& in, const Shape& gradient, F&& op) {
  Tape tape;
  std::vector<AccumulateSink> sinks(in.size());
  std::vector<Var> leaves;
  for (size_t i = 0; i < in.size(); ++i) leaves.push_back(tape.leaf(in[i], &sinks[i], dtypes::fp32));
  const Var y = op(leaves);
  Seen seen{y.shape(), {y.value().elements()}};
  tape.backward({y}, {random_tensor(gradient, dtypes::fp32, 99)});
  for (const AccumulateSink& sink : sinks) seen.numbers.push_back(sink.grad().elements());
  return seen;
}

TEST_CASE("linear keeps the axes before the features, bit for bit") {
  for (const Sizes& s : kSizes) {
    const Tensor x = random_tensor({s.n, s.t, s.i}, dtypes::fp32, 1), w = random_tensor({s.o, s.i}, dtypes::fp32, 2);
    const Tensor bias = random_tensor({s.o}, dtypes::fp32, 3);
    const auto op = [](const std::vector<Var>& v) { return linear(v[0], v[1], v[2]); };
    const Seen three = run({x, w, bias}, {s.n, s.t, s.o}, op);
    const Seen two = run({x.reshape({s.n * s.t, s.i}), w, bias}, {s.n * s.t, s.o}, op);
    CHECK(three.shape == Shape{s.n, s.t, s.o});
    CHECK(three.numbers == two.numbers);
  }
}

TEST_CASE("linear of codes keeps the axes before the features, with scales per tensor and per row, in every mode") {
  for (const Sizes& s : kSizes)
    for (const Granularity& granularity : {Granularity::tensor(), Granularity::token()})
      for (const ProductMode mode : {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8}) {
        const Tensor x = random_tensor({s.n, s.t, s.i}, dtypes::fp32, 1),
                     w = random_tensor({s.o, s.i}, dtypes::fp32, 2);
        QuantSpec of_x, of_w;
        of_x.dtype = dtypes::int8;
        of_x.scheme = of_w.scheme = "absmax";
        of_x.granularity = granularity;
        of_w.dtype = dtypes::int4;
        const RandomStream draws{7, Purpose::kGradient, 3, 1};
        const auto op = [&](const std::vector<Var>& v) {
          ProductModes modes;
          modes.gx = modes.gw = mode;
          modes.sr = mode == ProductMode::kInt8 ? &draws : nullptr;
          return linear(quantize(v[0], of_x), quantize(v[1], of_w), {}, modes);
        };
        const Seen three = run({x, w}, {s.n, s.t, s.o}, op);
        const Seen two = run({x.reshape({s.n * s.t, s.i}), w}, {s.n * s.t, s.o}, op);
        CHECK(three.shape == Shape{s.n, s.t, s.o});
        CHECK(three.numbers == two.numbers);
      }
}

TEST_CASE("norms keep the axes before the features, bit for bit, in training and evaluation") {
  for (const Sizes& s : kSizes)
    for (const bool training : {true, false})
      for (const bool full : {false, true}) {
        const Tensor x = random_tensor({s.n, s.t, s.i}, dtypes::fp32, 1);
        const int64_t features = full ? 1 : s.i;
        const Tensor gamma = random_tensor({features}, dtypes::fp32, 2),
                     beta = random_tensor({features}, dtypes::fp32, 3);
        const auto op = [&](const std::vector<Var>& v) {
          NormOptions options;
          options.training = training;
          options.running_mean = random_tensor({features}, dtypes::fp32, 4);
          options.running_var = random_tensor({features}, dtypes::fp32, 5, 0.5, 2);
          return full ? tensor_norm(v[0], v[1], v[2], options) : batch_norm(v[0], v[1], v[2], options);
        };
        if (training && x.numel() == features) {  // one value has no variance
          CHECK(contains(error_of([&] { op({x, gamma, beta}); }), "the variance of one value is not defined"));
          continue;
        }
        const Seen three = run({x, gamma, beta}, {s.n, s.t, s.i}, op);
        const Seen two = run({x.reshape({s.n * s.t, s.i}), gamma, beta}, {s.n * s.t, s.i}, op);
        CHECK(three.shape == Shape{s.n, s.t, s.i});
        CHECK(three.numbers == two.numbers);
      }
}

TEST_CASE("An embedding that is not flat gives the same rows with an axis of positions, bit for bit") {
  for (const Sizes& s : kSizes) {
    std::vector<double> numbers;
    for (int64_t p = 0; p < s.n * s.t; ++p) numbers.push_back(static_cast<double>(p * 7 % s.o));
    const Var ids(Tensor::from_elements({s.n, s.t}, dtypes::int32, numbers));
    const Tensor w = random_tensor({s.o, s.i}, dtypes::fp32, 1);
    const Seen three = run({w}, {s.n, s.t, s.i}, [&](const auto& v) { return embedding(ids, v[0], /*flat=*/false); });
    const Seen two = run({w}, {s.n, s.t * s.i}, [&](const auto& v) { return embedding(ids, v[0]); });
    CHECK(three.shape == Shape{s.n, s.t, s.i});
    CHECK(three.numbers == two.numbers);
  }
}

TEST_CASE("Sums of losses over rows accept leading axes, bit for bit") {
  for (const Sizes& s : kSizes) {
    std::vector<double> numbers;
    for (int64_t p = 0; p < s.n * s.t; ++p) numbers.push_back(static_cast<double>(p * 5 % s.i));
    const Tensor t = Tensor::from_elements({s.n, s.t}, dtypes::int32, numbers);
    const Tensor y = random_tensor({s.n, s.t, s.i}, dtypes::fp32, 1);
    using Loss = Var (*)(const Var&, const Tensor&);
    const Loss entropy = [](const Var& v, const Tensor& of) {
      return cross_entropy(v, of, Reduction::kSum, std::nullopt);
    };
    for (const Loss loss : {static_cast<Loss>(squared_hinge), entropy}) {
      const Seen three = run({y}, {}, [&](const auto& v) { return loss(v[0], t); });
      const Seen two =
          run({y.reshape({s.n * s.t, s.i})}, {}, [&](const auto& v) { return loss(v[0], t.reshape({s.n * s.t})); });
      CHECK(three.numbers == two.numbers);
    }
  }
}

TEST_CASE("gradients of ops over three axes are those of differences") {
  const Tensor x = random_tensor({2, 3, 4}, dtypes::fp64, 1), w = random_tensor({5, 4}, dtypes::fp64, 2);
  const Tensor b = random_tensor({5}, dtypes::fp64, 3), gamma = random_tensor({4}, dtypes::fp64, 4);
  CHECK(gradcheck([](const auto& v) { return linear(v[0], v[1], v[2]); }, {x, w, b}) == "");
  CHECK(gradcheck([](const auto& v) { return batch_norm(v[0], v[1], v[2], NormOptions{}); },
                  {x, gamma, random_tensor({4}, dtypes::fp64, 5)}) == "");
  const Var ids(Tensor::from_elements({2, 3}, dtypes::int32, std::vector<double>{0, 4, 1, 1, 0, 2}));
  CHECK(gradcheck([&](const auto& v) { return embedding(test::here(ids.value()), v[0], false); }, {w}) == "");
}

TEST_CASE("Linear and norms refuse vectors") {
  const Tensor x = random_tensor({4}, dtypes::fp32, 1), w = random_tensor({3, 4}, dtypes::fp32, 2);
  CHECK(error_of([&] { linear(Var(x), Var(w)); }) == "[linear] x and w must be matrices: got x [4] fp32, w [3,4] fp32");
  CHECK(contains(error_of([&] { batch_norm(Var(x), Var(x), Var(x), NormOptions{}); }),
                 "[batch_norm] x must be a matrix [n,f], got [4] fp32"));
}

}  // namespace
}  // namespace bitgrad
