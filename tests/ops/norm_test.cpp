#include <cmath>

#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "kernels/reduce.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

using NormOp = Var (*)(const Var&, const Var&, const Var&, const NormOptions&);
struct Kind {
  NormOp op;
  bool per_column;
};
const std::vector<Kind> kKinds = {{batch_norm, true}, {tensor_norm, false}};

int64_t statistics_of(const Kind& kind, const Shape& shape) { return kind.per_column ? shape[1] : 1; }

NormOptions with_running(int64_t count, bool training, float momentum = 0.25f) {
  NormOptions o;
  o.eps = 1e-3f;
  o.momentum = momentum;
  o.training = training;
  o.running_mean = random_tensor({count}, dtypes::fp32, 31);
  o.running_var = random_tensor({count}, dtypes::fp32, 32, 0.5, 2);
  return o;
}

// The numbers of statistic j of x: a column, or all.
std::vector<float> block(const Tensor& x, bool per_column, int64_t j) {
  std::vector<float> out;
  for (int64_t i = 0; i < x.numel(); ++i)
    if (!per_column || i % x.cols() == j) out.push_back(x.as<float>()[i]);
  return out;
}

}  // namespace

TEST_CASE("the statistics of one value are an error in training, of every dtype") {
  for (const Kind& kind : kKinds)
    for (const DType dtype : {dtypes::fp32, dtypes::bf16, dtypes::fp64})
      for (const Shape& shape : {Shape{1, 1}, Shape{1, 4}, Shape{1, 1, 1, 4}}) {
        if (dtype == dtypes::fp64 && runs_on_device()) continue;  // the reference dtype of the CPU
        const int64_t count = kind.per_column ? shape.cols() : 1;
        const bool one = shape.numel() == count;
        const DType of_gamma = dtype == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
        const Var x(Tensor::full(shape, dtype, 0.5)), gamma(Tensor::full({count}, of_gamma, 1)),
            beta(Tensor::zeros({count}, of_gamma));
        INFO(shape << ' ' << dtype << (kind.per_column ? " batch norm" : " tensor norm"));
        kind.op(x, gamma, beta, with_running(count, /*training=*/false));
        const NormOptions training = with_running(count, true);
        const std::string error = error_of([&] { kind.op(x, gamma, beta, training); });
        CHECK((error.find("the variance of one value is not defined") != std::string::npos) == one);
      }
}

TEST_CASE("norms pass the gradient check in training and evaluation") {
  for (const Kind& kind : kKinds)
    for (const bool training : {true, false})
      for (const Shape& shape : {Shape{1, 1}, Shape{1, 4}, Shape{2, 1}, Shape{7, 3}, Shape{3, 5}}) {
        INFO(shape << (kind.per_column ? " batch norm" : " tensor norm") << (training ? " training" : " evaluation"));
        const int64_t count = statistics_of(kind, shape);
        if (training && shape.numel() == count) continue;              // an error, see below
        const NormOptions options = with_running(count, training, 0);  // momentum 0: forward stays a pure function
        CHECK(gradcheck([&](const auto& v) { return kind.op(v[0], v[1], v[2], options); },
                        {random_tensor(shape, dtypes::fp64, 33), random_tensor({count}, dtypes::fp64, 34, 0.5, 1.5),
                         random_tensor({count}, dtypes::fp64, 35)},
                        5e-6) == "");
      }
}

TEST_CASE("forward and running statistics have the documented order of operations") {
  for (const Kind& kind : kKinds)
    for (const Shape& shape : {Shape{2, 3}, Shape{37, 5}, Shape{1100, 2}}) {
      const int64_t count = statistics_of(kind, shape);
      const Tensor x = random_tensor(shape, dtypes::fp32, 36, -2, 3), gamma = random_tensor({count}, dtypes::fp32, 37),
                   beta = random_tensor({count}, dtypes::fp32, 38);
      NormOptions o = with_running(count, true);
      const Tensor old_mean = o.running_mean.clone(MemoryKind::kBuffer),
                   old_var = o.running_var.clone(MemoryKind::kBuffer);
      const Tensor y = kind.op(Var(x), Var(gamma), Var(beta), o).value();
      for (int64_t j = 0; j < count; ++j) {
        std::vector<float> v = block(x, kind.per_column, j);
        const auto n = static_cast<int64_t>(v.size());
        const float mean = on_cpu([&] { return kernels::sum(v.data(), n); }) / static_cast<float>(n);
        std::vector<float> squares = v;
        for (float& s : squares) s = (s - mean) * (s - mean);
        const float total = on_cpu([&] { return kernels::sum(squares.data(), n); });
        const float inv = 1.0f / std::sqrt(total / static_cast<float>(n) + o.eps);
        const float unbiased = total / static_cast<float>(std::max<int64_t>(n - 1, 1));
        CHECK(o.running_mean.as<float>()[j] == old_mean.as<float>()[j] + 0.25f * (mean - old_mean.as<float>()[j]));
        CHECK(o.running_var.as<float>()[j] == old_var.as<float>()[j] + 0.25f * (unbiased - old_var.as<float>()[j]));
        const std::vector<float> out = block(y, kind.per_column, j);
        bool equal = true;
        for (size_t i = 0; i < v.size(); ++i)
          equal = equal && out[i] == ((v[i] - mean) * inv) * gamma.as<float>()[j] + beta.as<float>()[j];
        CHECK(equal);
      }
    }
}

TEST_CASE("evaluation reads the running statistics and leaves them alone") {
  for (const Kind& kind : kKinds) {
    const int64_t count = kind.per_column ? 3 : 1;
    const Tensor x = random_tensor({4, 3}, dtypes::fp32, 41), gamma = random_tensor({count}, dtypes::fp32, 42),
                 beta = random_tensor({count}, dtypes::fp32, 43);
    const NormOptions o = with_running(count, false);
    const auto before = o.running_mean.elements();
    const Tensor y = kind.op(Var(x), Var(gamma), Var(beta), o).value();
    CHECK(o.running_mean.elements() == before);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t j = kind.per_column ? i % 3 : 0;
      const float inv = 1.0f / std::sqrt(o.running_var.as<float>()[j] + o.eps);
      CHECK(y.as<float>()[i] ==
            ((x.as<float>()[i] - o.running_mean.as<float>()[j]) * inv) * gamma.as<float>()[j] + beta.as<float>()[j]);
    }
    CHECK(kind.op(Var(Tensor::zeros({0, 3}, dtypes::fp32)), Var(gamma), Var(beta), o).shape() == Shape{0, 3});
  }
}

TEST_CASE("gradients of a norm in fp32 are near those of the double reference, on bf16 edges rounded once") {
  for (const Kind& kind : kKinds) {
    const int64_t count = kind.per_column ? 6 : 1;
    std::vector<Tensor> in = {random_tensor({40, 6}, dtypes::fp32, 44),
                              random_tensor({count}, dtypes::fp32, 45, 0.5, 1),
                              random_tensor({count}, dtypes::fp32, 46)};
    const Tensor seed = random_tensor({40, 6}, dtypes::fp32, 47);
    const auto run = [&](DType value, DType grad) {
      const DeviceGuard where(device_for(value));
      std::vector<AccumulateSink> sinks(3);
      Tape tape;
      std::vector<Var> v;
      for (size_t i = 0; i < 3; ++i)
        v.push_back(tape.leaf(Tensor::from_elements(in[i].shape(), value, in[i].elements()), &sinks[i], grad));
      tape.backward({kind.op(v[0], v[1], v[2], NormOptions{})},
                    {Tensor::from_elements(seed.shape(), value, seed.elements())});
      return std::vector<Tensor>{sinks[0].grad(), sinks[1].grad(), sinks[2].grad()};
    };
    const auto exact = run(dtypes::fp64, dtypes::fp64), wide = run(dtypes::fp32, dtypes::fp32),
               narrow = run(dtypes::fp32, dtypes::bf16);
    for (size_t i = 0; i < 3; ++i)
      for (int64_t e = 0; e < wide[i].numel(); ++e) {
        CHECK(std::fabs(wide[i].as<float>()[e] - exact[i].as<double>()[e]) <=
              1e-5 * std::max(1.0, std::fabs(exact[i].as<double>()[e])));
        CHECK(narrow[i].as<uint16_t>()[e] == bf16_from_float(wide[i].as<float>()[e]));
      }
  }
}

TEST_CASE("the gradient of a norm reuses the memory of a gradient that nobody else reads, and not of a shared one") {
  const Tensor x = random_tensor({640, 32}, dtypes::fp32, 1), seed = random_tensor({640, 32}, dtypes::fp32, 2);
  const Tensor bytes_of_seed = seed.clone(MemoryKind::kActivation);
  for (const Kind& kind : kKinds) {
    const int64_t count = statistics_of(kind, x.shape());
    const Tensor gamma = random_tensor({count}, dtypes::fp32, 3), beta = random_tensor({count}, dtypes::fp32, 4);
    // The gradients of one and of two norms that read x, whose results are added: both get the same gradient of the
    // sum.
    const auto gradient = [&](bool two, int64_t& peak) {
      AccumulateSink first, second;
      Tape tape;
      const Var a = tape.leaf(x, &first, dtypes::fp32), b = tape.leaf(x, &second, dtypes::fp32);
      const Var y = kind.op(relu(a), Var(gamma), Var(beta), {});
      const Var out = two ? add(y, kind.op(relu(b), Var(gamma), Var(beta), {})) : y;
      const int64_t before = memory_now().total;
      reset_memory_peaks();
      tape.backward({out}, {seed});
      peak = memory_at_peak().total - before;
      if (two) REQUIRE(second.grad().elements() == first.grad().elements());
      return first.grad().elements();
    };
    int64_t one_peak = 0, two_peak = 0;
    const auto one = gradient(false, one_peak);
    CHECK(gradient(true, two_peak) == one);
    CHECK(seed.elements() == bytes_of_seed.elements());
    // At the norm the seed's copy alone, at relu that and its own result, which the sink adds into a third.
    const int64_t bytes = x.numel() * 4;
    CHECK(one_peak < 3 * bytes);
  }
}

TEST_CASE("constant columns give beta, not NaN") {
  const Tensor x = Tensor::full({5, 2}, dtypes::fp32, 3), one = Tensor::full({2}, dtypes::fp32, 1),
               beta = Tensor::full({2}, dtypes::fp32, 0.5);
  CHECK(batch_norm(Var(x), Var(one), Var(beta), {}).value().elements() == std::vector<double>(10, 0.5));
}

TEST_CASE("what does not fit a norm is an error that names it") {
  const Var x = Tensor::zeros({2, 3}, dtypes::fp32), three = Tensor::zeros({3}, dtypes::fp32),
            one = Tensor::zeros({1}, dtypes::fp32);
  CHECK(error_of([&] { batch_norm(x, one, three, {}); }) == "[batch_norm] gamma must be [3] fp32, got [1] fp32");
  CHECK(error_of([&] { tensor_norm(x, one, three, {}); }) == "[tensor_norm] beta must be [1] fp32, got [3] fp32");
  CHECK(contains(error_of([&] {
                   batch_norm(Var(Tensor::zeros({2, 3}, dtypes::bint1)), three, three, {});
                 }),
                 "x must be fp32 (or fp64), got [2,3] bint1"));
  CHECK(contains(error_of([&] { batch_norm(three, three, three, {}); }), "x must be a matrix [n,f], got [3] fp32"));
  CHECK(contains(error_of([&] {
                   batch_norm(Var(Tensor::zeros({0, 3}, dtypes::fp32)), three, three, {});
                 }),
                 "x has no elements"));
  NormOptions o;
  o.training = false;
  CHECK(contains(error_of([&] { batch_norm(x, three, three, o); }), "evaluation needs running statistics"));
  o.running_mean = Tensor::zeros({3}, dtypes::fp32);
  CHECK(contains(error_of([&] { batch_norm(x, three, three, o); }),
                 "running statistics must be [3] fp32, got undefined"));
}
