// Learned steps of weights: their gradient by the formula of LSQ (docs/numerics.md section 3), written by hand, and
// what the optimizer does with it.
#include <algorithm>
#include <cmath>

#include "nn/nn_support.h"
#include "optim/optim_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Lsq {
  std::unique_ptr<Parameter> p;
  Parameter* step;
};

Lsq make(const Shape& shape, const Granularity& granularity, MasterKind master = MasterKind::kFp32,
         DType grad = dtypes::fp32, float lr_factor = 1.0f) {
  ParameterSpec spec = weight_spec(quant_spec(dtypes::int3, "lsq"), grad);
  spec.quant->granularity = granularity;
  spec.master = master;
  spec.learned.lr_factor = lr_factor;
  spec.learned.weight_decay = 0.0f;
  spec.init = {"normal", 0, 1};  // some numbers lie outside the codes
  auto p = std::make_unique<Parameter>(shape, spec);
  p->initialize("w", 6);
  Parameter* step = p->learned()[0].get();
  return {std::move(p), step};
}

// Gradients of the steps, in double: sums / samples / sqrt(n * Qp).
std::vector<double> by_hand(const Parameter& p, const std::vector<double>& g, double samples) {
  const auto x = p.master().elements();
  const auto s = p.value().quant()->scale->elements();
  const size_t block = x.size() / s.size();
  std::vector<double> out(s.size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    const double u = x[i] / s[i / block];
    const double term = u <= -4 ? -4 : (u >= 3 ? 3 : std::rint(u) - u);
    out[i / block] += g[i] / samples * term;
  }
  for (double& sum : out) sum /= std::sqrt(static_cast<double>(block) * 3.0);
  return out;
}

bool near(double a, double b, double scale) { return std::fabs(a - b) <= 2e-5 * scale; }

}  // namespace

TEST_CASE("a learned step is a parameter beside its weight, with its own path, rate, decay and floor") {
  const Lsq w = make({6, 40}, Granularity::channel(0), MasterKind::kFp32, dtypes::fp32, 0.125f);
  CHECK(w.p->learned().size() == 1);
  CHECK(w.step->path() == "w.step");
  CHECK(w.step->shape() == Shape{6});
  CHECK_FALSE(w.step->low_bit());
  CHECK(w.step->spec().lr_factor == 0.125f);
  CHECK(w.step->spec().weight_decay == 0.0f);
  CHECK(w.step->spec().floor == 0x1p-20f);
  // The first steps are 2 mean abs x / sqrt Qp, and the first codes were made with them.
  const auto x = w.p->master().elements();
  for (size_t r = 0; r < 6; ++r) {
    double mean = 0;
    for (size_t c = 0; c < 40; ++c) mean += std::fabs(x[r * 40 + c]) / 40;
    CHECK(near(w.step->value().elements()[r], 2 * mean / std::sqrt(3.0), 1.0));
  }
  CHECK(w.p->value().quant()->scale->elements() == w.step->value().elements());
  CHECK(w.p->value().quant()->scale->data() != w.step->value().data());
}

TEST_CASE("the optimizer gives learned steps LSQ's gradient, for every form of master and gradient") {
  for (const Granularity& granularity : {Granularity::tensor(), Granularity::channel(0)})
    for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16})
      for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
        const Shape shape{230, 301};  // two blocks of rows where they are taken
        const Lsq w = make(shape, granularity, master, grad, 0.5f);
        INFO(granularity << ", master " << enum_name(master) << ", gradients " << grad.name());
        auto optimizer = make_optimizer(named("sgd"));
        optimizer->attach({w.p.get()});
        for (int step = 0; step < 2; ++step) {
          const Tensor g = random_tensor(shape, grad, 30 + static_cast<uint64_t>(step), -1, 2);
          const auto expected = by_hand(*w.p, g.elements(), 4);
          const auto before = w.step->value().elements(), scale = w.p->value().quant()->scale->elements();
          accumulate(*w.p, g);
          optimizer->step(0.25f, 4);
          CHECK_FALSE(w.p->grad_sink().filled());
          for (size_t j = 0; j < expected.size(); ++j) {
            const double moved = w.step->value().elements()[j] - before[j];
            CHECK(near(moved, -0.125 * expected[j], 1.0));
            CHECK(moved != 0);
          }
          // The codes keep the steps that made them until they are made anew.
          CHECK(w.p->value().quant()->scale->elements() == scale);
          w.p->requantize(6, step + 1);
          CHECK(w.p->value().quant()->scale->elements() == w.step->value().elements());
        }
      }
}

TEST_CASE("the global norm and the value clip include learned steps") {
  const Shape shape{8, 16};
  const Tensor g = random_tensor(shape, dtypes::fp32, 40, 2, 3);
  const Lsq free = make(shape, Granularity::tensor()), bound = make(shape, Granularity::tensor());
  const double ds = by_hand(*free.p, g.elements(), 1)[0];
  double squares = ds * ds;
  const auto u = free.p->master().elements();
  const double s = free.p->value().quant()->scale->elements()[0];
  for (size_t i = 0; i < u.size(); ++i) {
    const double v = u[i] / s;
    if (v > -4 && v < 3) squares += g.elements()[i] * g.elements()[i];
  }
  OptimizerSpec spec = named("sgd");
  spec.clip_norm = 0.5f;
  auto optimizer = make_optimizer(spec);
  optimizer->attach({free.p.get()});
  const double before = free.step->value().elements()[0];
  accumulate(*free.p, g);
  optimizer->step(0.01f, 1);
  CHECK(near(static_cast<double>(optimizer->last_norm()), std::sqrt(squares), std::sqrt(squares)));
  CHECK(near(before - free.step->value().elements()[0], 0.01 * ds * 0.5 / std::sqrt(squares), 0.1));
  spec = named("sgd");
  spec.clip_value = static_cast<float>(std::fabs(ds) / 2);
  optimizer = make_optimizer(spec);
  optimizer->attach({bound.p.get()});
  accumulate(*bound.p, g);
  optimizer->step(0.01f, 1);
  CHECK(near(std::fabs(before - bound.step->value().elements()[0]), 0.01 * std::fabs(ds) / 2, 0.1));
}

TEST_CASE("a gradient of a learned step that overflows is an error before anything moves") {
  for (const DType grad : {dtypes::fp32, dtypes::bf16})
    for (const float clip_value : {0.0f, 1.0f})
      for (const float clip_norm : {0.0f, 1.0f}) {
        const Shape shape{8, 16};
        const Lsq w = make(shape, Granularity::tensor(), MasterKind::kFp32, grad);
        const auto plain = float_parameter("plain", {4});
        OptimizerSpec spec = named("sgd");
        spec.clip_value = clip_value;
        spec.clip_norm = clip_norm;
        auto optimizer = make_optimizer(spec);
        optimizer->attach({plain.get(), w.p.get()});
        const auto x = w.p->master().elements();
        const double s = w.step->value().elements()[0];
        std::vector<double> numbers;  // finite; their terms all have one sign and add up past fp32
        for (const double v : x) {
          const double u = v / s, term = u <= -4 ? -4 : (u >= 3 ? 3 : std::rint(u) - u);
          numbers.push_back(term < 0 ? -0x1p127 : 0x1p127);
        }
        const Tensor g = Tensor::from_elements(shape, grad, numbers);
        const auto step = w.step->value().elements(), other = plain->value().elements();
        accumulate(*w.p, g);
        accumulate(*plain, Tensor::full({4}, dtypes::fp32, 1));
        CHECK(contains(error_of([&] { optimizer->step(0.1f, 1); }),
                       "[optimizer] the gradient of 'w.step' ([1] fp32) holds NaN or Inf at optimizer step 0"));
        CHECK(w.p->master().elements() == x);
        CHECK(w.step->value().elements() == step);
        CHECK(plain->value().elements() == other);
        CHECK(optimizer->steps() == 0);
      }
}

TEST_CASE("gradients in bf16 are widened in workspace memory") {
  const auto p = float_parameter("w", {512, 256}, dtypes::bf16);
  auto optimizer = make_optimizer(named("sgd"));
  optimizer->attach({p.get()});
  accumulate(*p, random_tensor({512, 256}, dtypes::bf16, 50));
  reset_memory_peaks();
  const int64_t before = memory_now()[MemoryKind::kGrad];
  optimizer->step(0.1f, 1);
  CHECK(memory_peak_by_kind()[MemoryKind::kGrad] == before);
}

TEST_CASE("a step stays at its floor, and a frozen weight has frozen steps") {
  const Lsq w = make({4, 8}, Granularity::tensor(), MasterKind::kFp32, dtypes::fp32, 1e6f);
  auto optimizer = make_optimizer(named("sgd"));
  optimizer->attach({w.p.get()});
  CHECK(optimizer->state().empty());
  for (const double sign : {1.0, -1.0}) {
    Tensor g = Tensor::empty({4, 8}, dtypes::fp32);
    for (int64_t i = 0; i < 32; ++i) {
      const double u = w.p->master().elements()[static_cast<size_t>(i)] / w.step->value().elements()[0];
      g.as<float>()[i] = static_cast<float>(sign * (u < 0 ? 1 : -1) * (std::rint(u) - u));
    }
    accumulate(*w.p, g);
    optimizer->step(1.0f, 1);
    CHECK(w.step->value().as<float>()[0] >= 0x1p-20f);
  }
  ParameterSpec spec = weight_spec(quant_spec(dtypes::int3, "lsq"));
  spec.frozen = true;
  Parameter frozen({4, 8}, spec);
  frozen.initialize("w", 6);
  auto adam = make_optimizer(named("adam"));
  adam->attach({&frozen, frozen.learned()[0].get()});
  CHECK(adam->state().empty());
  Tape tape;
  CHECK_FALSE(frozen.read().tracked());
}

TEST_CASE("a scheme with learned parts needs a master") {
  ParameterSpec spec = weight_spec(quant_spec(dtypes::int4, "lsq"));
  spec.quant->granularity = Granularity::channel(0);
  spec.master = MasterKind::kNone;
  Parameter p({4, 8}, spec);
  p.initialize("w", 1);
  CHECK(error_of([&] { make_optimizer(named("adam"))->attach({&p}); }) ==
        "[optimizer] parameter 'w': scheme lsq learns from the position of the master between the codes. Use master "
        "fp32 or "
        "bf16");
}
