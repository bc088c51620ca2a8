// Softmax, layer norm and RMS norm as ops, and the arg max.
#include <cmath>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "kernels/rowwise.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

const std::vector<Shape> kShapes = {{4}, {1, 1}, {3, 7}, {2, 3, 5}, {2, 2, 1, 3}, {0, 4}};

// y, and the gradients of all inputs on fp32 edges, of an op over x in `dtype`.
std::vector<Tensor> run(const std::vector<Tensor>& in, const std::function<Var(const std::vector<Var>&)>& op) {
  std::vector<AccumulateSink> sinks(in.size());
  Tape tape;
  std::vector<Var> v;
  for (size_t i = 0; i < in.size(); ++i) v.push_back(tape.leaf(in[i], &sinks[i], dtypes::fp32));
  const Var y = op(v);
  std::vector<Tensor> out{y.value()};
  tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 99)});
  for (const AccumulateSink& s : sinks) out.push_back(s.grad());
  return out;
}

}  // namespace

TEST_CASE("softmax and the norms over the last axis pass the gradient check") {
  for (const Shape& shape : kShapes) {
    INFO(shape);
    const Tensor x = random_tensor(shape, dtypes::fp64, 1, -2, 2);
    const Tensor gamma = random_tensor({shape.cols()}, dtypes::fp64, 2, 0.5, 1.5),
                 beta = random_tensor({shape.cols()}, dtypes::fp64, 3);
    CHECK(gradcheck([](const auto& v) { return softmax(v[0]); }, {x}) == "");
    // A row of one element has variance 0: only a large eps leaves a slope that differences can see.
    CHECK(gradcheck([](const auto& v) { return layer_norm(v[0], v[1], v[2], 0.1f); }, {x, gamma, beta}) == "");
    CHECK(gradcheck([](const auto& v) { return layer_norm(v[0], v[1], {}, 0.1f); }, {x, gamma}) == "");
    CHECK(gradcheck([](const auto& v) { return rms_norm(v[0], v[1], 0.1f); }, {x, gamma}) == "");
  }
}

TEST_CASE("fp32 results are those of doubles to a few units in the last place") {
  const Tensor x = random_tensor({4, 300}, dtypes::fp32, 4, -5, 5), gamma = random_tensor({300}, dtypes::fp32, 5);
  const std::vector<double> p = x.elements(), g = gamma.elements();
  const std::vector<double> y = softmax(Var(x)).value().elements(),
                            z = layer_norm(Var(x), Var(gamma)).value().elements();
  const std::vector<double> w = rms_norm(Var(x), Var(gamma)).value().elements();
  for (size_t r = 0; r < 4; ++r) {
    double total = 0, mean = 0, squares = 0, deviations = 0;
    for (size_t i = 0; i < 300; ++i) {
      total += std::exp(p[r * 300 + i]);
      mean += p[r * 300 + i] / 300;
      squares += p[r * 300 + i] * p[r * 300 + i] / 300;
    }
    for (size_t i = 0; i < 300; ++i) deviations += (p[r * 300 + i] - mean) * (p[r * 300 + i] - mean) / 300;
    for (size_t i = 0; i < 300; ++i) {
      const double x_i = p[r * 300 + i];
      CHECK(std::fabs(y[r * 300 + i] - std::exp(x_i) / total) <= 3e-6 * std::exp(x_i) / total);
      CHECK(std::fabs(z[r * 300 + i] - (x_i - mean) / std::sqrt(deviations + 1e-5) * g[i]) <= 2e-6);
      CHECK(std::fabs(w[r * 300 + i] - x_i / std::sqrt(squares + 1e-5) * g[i]) <= 2e-6);
    }
  }
}

TEST_CASE("bf16 in gives bf16: what fp32 gives of the same values, rounded once, with fp32 gradients") {
  const Tensor narrow = random_tensor({3, 4, 33}, dtypes::bf16, 6, -3, 3);
  const Tensor wide = Tensor::from(narrow.to_vector(), narrow.shape());
  const Tensor gamma = random_tensor({33}, dtypes::fp32, 7), beta = random_tensor({33}, dtypes::fp32, 8);
  const auto rounded = [](const Tensor& t) {
    std::vector<float> v = t.to_vector();
    for (float& e : v) e = bf16_to_float(bf16_from_float(e));
    return v;
  };
  const auto norm = [](const auto& v) { return layer_norm(v[0], v[1], v[2]); };
  const std::vector<Tensor> a = run({narrow, gamma, beta}, norm), b = run({wide, gamma, beta}, norm);
  CHECK(a[0].dtype() == dtypes::bf16);
  CHECK(a[0].to_vector() == rounded(b[0]));
  for (size_t i = 1; i < a.size(); ++i) {
    CHECK(a[i].dtype() == dtypes::fp32);
    CHECK(a[i].to_vector() == b[i].to_vector());
  }
  const std::vector<Tensor> s = run({narrow}, [](const auto& v) { return softmax(v[0]); });
  CHECK(s[0].dtype() == dtypes::bf16);
  CHECK(s[0].to_vector() == rounded(softmax(Var(wide)).value()));
  // What backward keeps of softmax is its result, as it was rounded.
  const std::vector<float> y = s[0].to_vector(), gy = random_tensor(narrow.shape(), dtypes::fp32, 99).to_vector();
  std::vector<float> gx(y.size());
  on_cpu([&] {
    softmax_rows_backward({12, 33, {y.data(), dtypes::fp32}, {gy.data(), dtypes::fp32}, {gx.data(), dtypes::fp32}});
  });
  CHECK(s[1].to_vector() == gx);
}

TEST_CASE("gradients on bf16 edges of softmax and the norms are rounded once") {
  const Tensor x = random_tensor({5, 9}, dtypes::fp32, 9), gamma = random_tensor({9}, dtypes::fp32, 10);
  const Tensor seed = random_tensor({5, 9}, dtypes::fp32, 11);
  const std::vector<std::function<Var(const Var&, const Var&)>> ops = {
      [](const Var& v, const Var&) { return softmax(v); }, [](const Var& v, const Var& g) { return layer_norm(v, g); },
      [](const Var& v, const Var& g) { return rms_norm(v, g); }};
  for (const auto& op : ops) {
    AccumulateSink wide, narrow;
    Tape tape;
    const Var a = tape.leaf(x, &wide, dtypes::fp32), b = tape.leaf(x, &narrow, dtypes::bf16);
    tape.backward({op(a, Var(gamma)), op(b, Var(gamma))}, {seed, seed});
    for (int64_t i = 0; i < x.numel(); ++i)
      CHECK(narrow.grad().as<uint16_t>()[i] == bf16_from_float(wide.grad().as<float>()[i]));
  }
}

TEST_CASE("softmax and the norms name unsupported arguments") {
  const Tensor x = Tensor::zeros({2, 3}, dtypes::fp32), g = Tensor::zeros({3}, dtypes::fp32);
  CHECK(error_of([] {
          softmax(Var(Tensor::zeros({2, 3}, dtypes::int8)));
        }) == "[softmax] x must be fp32 or bf16 (or fp64), got [2,3] int8. Dequantize it first");
  CHECK(contains(error_of([] { softmax(Var(Tensor::scalar(1))); }),
                 "[softmax] x must have an axis to sum over, got [] fp32"));
  CHECK(error_of([&] { layer_norm(Var(x), Var(Tensor::zeros({2}, dtypes::fp32))); }) ==
        "[layer_norm] gamma must be [3] fp32, got [2] fp32");
  CHECK(error_of([&] { layer_norm(Var(x), Var(g), Var(Tensor::zeros({3}, dtypes::bf16))); }) ==
        "[layer_norm] beta must be [3] fp32, got [3] bf16");
  CHECK(error_of([&] { rms_norm(Var(x), Var(g), -1.0f); }) == "[rms_norm] eps must not be negative, got -1");
  CHECK(contains(error_of([&] {
                   rms_norm(Var(Tensor::zeros({2, 0}, dtypes::fp32)), Var(Tensor::zeros({0}, dtypes::fp32)));
                 }),
                 "[rms_norm] x must have an axis with elements, got [2,0] fp32"));
}
