// Optimizers against the expressions of docs/numerics.md section 6, written by hand, bit for bit.
#include "bitgrad/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/memory.h"
#include "kernels/reduce.h"
#include "nn/nn_support.h"
#include "optim/optim_support.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// Runs `steps` steps of both with the same gradients and compares the masters. by_hand(w, g, step) moves one element.
template <typename ByHand>
void check_against(const OptimizerSpec& spec, ByHand by_hand) {
  auto p = float_parameter("w", {5, 31});
  auto optimizer = make_optimizer(spec);
  optimizer->attach({p.get()});
  Floats w = floats(p->master());
  for (int step = 0; step < 6; ++step) {
    const Tensor g = random_tensor({5, 31}, dtypes::fp32, 100 + static_cast<uint64_t>(step), -3, 3);
    accumulate(*p, g);
    const float lr = 0.1f / static_cast<float>(step + 1);
    optimizer->step(lr, 7);
    for (size_t i = 0; i < w.size(); ++i) w[i] = by_hand(i, w[i], g.as<float>()[i] / 7.0f, lr, step);
    CHECK(floats(p->master()) == w);
    CHECK_FALSE(p->grad_sink().filled());
    CHECK(optimizer->steps() == step + 1);
  }
}

}  // namespace

TEST_CASE("plain SGD is w - lr * g, with weight decay in the gradient") {
  check_against(named("sgd"), [](size_t, float w, float g, float lr, int) { return w - lr * g; });
  OptimizerSpec decay = named("sgd");
  decay.weight_decay = 0.3f;
  check_against(decay, [](size_t, float w, float g, float lr, int) { return w - lr * (g + 0.3f * w); });
}

TEST_CASE("SGD with momentum and with Nesterov's form") {
  for (const bool nesterov : {false, true}) {
    OptimizerSpec spec = named("sgd");
    spec.momentum = 0.9f;
    spec.nesterov = nesterov;
    spec.weight_decay = 0.01f;
    Floats buffer(155, 0.0f);
    check_against(spec, [&](size_t i, float w, float g, float lr, int) {
      g = g + 0.01f * w;
      buffer[i] = 0.9f * buffer[i] + g;
      return w - lr * (nesterov ? g + 0.9f * buffer[i] : buffer[i]);
    });
  }
}

TEST_CASE("Adam and AdamW, with bias corrections by repeated product in double") {
  for (const bool decoupled : {false, true})
    for (const float decay : {0.0f, 0.05f}) {
      OptimizerSpec spec = named(decoupled ? "adamw" : "adam");
      spec.weight_decay = decay;
      spec.beta1 = 0.8;
      Floats m(155, 0.0f), v(155, 0.0f);
      check_against(spec, [&](size_t i, float w, float g, float lr, int step) {
        double p1 = 1, p2 = 1;
        for (int t = 0; t <= step; ++t) {
          p1 *= 0.8;
          p2 *= 0.999;
        }
        const float c1 = static_cast<float>(1 - p1), c2 = static_cast<float>(1 - p2);
        if (decay != 0 && decoupled) w = w - (lr * decay) * w;
        if (decay != 0 && !decoupled) g = g + decay * w;
        m[i] = m[i] + 0.2f * (g - m[i]);
        v[i] = v[i] + 0.001f * (g * g - v[i]);
        return w - lr * ((m[i] / c1) / (std::sqrt(v[i] / c2) + 1e-8f));
      });
    }
}

TEST_CASE("gradients are divided by the samples of the window once, over any number of microbatches") {
  auto a = float_parameter("w", {3, 4}), b = float_parameter("w", {3, 4});
  auto one = make_optimizer(named("sgd")), two = make_optimizer(named("sgd"));
  one->attach({a.get()});
  two->attach({b.get()});
  const Tensor g = Tensor::full({3, 4}, dtypes::fp32, 0.3),
               twice = Tensor::full({3, 4}, dtypes::fp32, static_cast<double>(0.3f + 0.3f));
  accumulate(*a, g);
  accumulate(*a, g);
  accumulate(*b, twice);
  one->step(0.5f, 3);
  two->step(0.5f, 3);
  CHECK(floats(a->master()) == floats(b->master()));
}

TEST_CASE(
    "the straight-through rule comes before the clips, the latent clamp after the update, and codes do not move") {
  for (const Granularity& granularity :
       {Granularity::tensor(), Granularity::channel(0), Granularity::groups(10), Granularity::groups(2, 0)}) {
    ParameterSpec spec = weight_spec(quant_spec(dtypes::int4, "symmetric"));
    spec.quant->granularity = granularity;
    spec.quant->ste = SteRule::kClip;
    spec.latent_clamp = 0.75f;
    Parameter p({5, 31}, spec);
    p.initialize("w", 4);
    for (int64_t i = 0; i < 155; i += 4)
      p.master().as<float>()[i] *= 9;  // out of the range of the fitted scales, so clipped
    OptimizerSpec how = named("sgd");
    how.clip_value = 0.2f;
    auto optimizer = make_optimizer(how);
    optimizer->attach({&p});
    const Tensor g = random_tensor({5, 31}, dtypes::fp32, 5), through = Tensor::empty({5, 31}, dtypes::fp32),
                 divided = Tensor::empty({5, 31}, dtypes::fp32);
    for (int64_t i = 0; i < 155; ++i) divided.as<float>()[i] = g.as<float>()[i] / 2.0f;
    find_quantizer("symmetric").leaf_backward(*spec.quant, *p.value().quant(), p.master(), divided, through);
    Floats expected = floats(p.master());
    int stopped = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      stopped += through.as<float>()[i] == 0;
      const float clipped = std::clamp(through.as<float>()[i], -0.2f, 0.2f);
      expected[i] = std::clamp(expected[i] - 0.5f * clipped, -0.75f, 0.75f);
    }
    CHECK(stopped > 20);
    const auto codes = p.value().elements();
    accumulate(p, g);
    optimizer->step(0.5f, 2);
    CHECK(floats(p.master()) == expected);
    CHECK(p.value().elements() == codes);
  }
}

TEST_CASE("clip_norm scales all gradients by one factor, only when the norm is larger") {
  auto a = float_parameter("a", {4, 5}), b = float_parameter("b", {7});
  const Tensor ga = random_tensor({4, 5}, dtypes::fp32, 6), gb = random_tensor({7}, dtypes::fp32, 7);
  Floats da = floats(ga), db = floats(gb);
  for (float& x : da) x = x / 2.0f;
  for (float& x : db) x = x / 2.0f;
  const float norm = on_cpu([&] {
    return static_cast<float>(
        std::sqrt(static_cast<double>(sum_squares(da.data(), 20)) + static_cast<double>(sum_squares(db.data(), 7))));
  });
  for (const float limit : {0.5f * norm, 2.0f * norm}) {
    const Floats wa = floats(a->master()), wb = floats(b->master());
    OptimizerSpec spec = named("sgd");
    spec.clip_norm = limit;
    auto optimizer = make_optimizer(spec);
    optimizer->attach({a.get(), b.get()});
    accumulate(*a, ga);
    accumulate(*b, gb);
    optimizer->step(0.25f, 2);
    CHECK(optimizer->last_norm() == norm);
    const bool clips = limit < norm;
    const float factor = limit / norm;
    for (size_t i = 0; i < wa.size(); ++i)
      CHECK(a->master().as<float>()[i] == wa[i] - 0.25f * (clips ? da[i] * factor : da[i]));
    for (size_t i = 0; i < wb.size(); ++i)
      CHECK(b->master().as<float>()[i] == wb[i] - 0.25f * (clips ? db[i] * factor : db[i]));
  }
}

TEST_CASE("the norm of a parameter of many blocks is that of its finished gradient as a whole") {
  for (const Shape& shape : {Shape{300, 512}, Shape{130, 1000}, Shape{2100, 33}, Shape{3, 50000}, Shape{1100, 1025}}) {
    auto p = float_parameter("w", shape);
    OptimizerSpec spec = named("sgd");
    spec.clip_norm = 1;
    spec.clip_value = 0.2f;
    auto optimizer = make_optimizer(spec);
    optimizer->attach({p.get()});
    const Tensor g = random_tensor(shape, dtypes::fp32, 8);
    accumulate(*p, g);
    Floats finished = floats(g);
    for (float& x : finished) x = std::clamp(x / 3.0f, -0.2f, 0.2f);
    optimizer->step(0.1f, 3);
    INFO(shape);
    const float squares = on_cpu([&] { return sum_squares(finished.data(), static_cast<int64_t>(finished.size())); });
    CHECK(optimizer->last_norm() == static_cast<float>(std::sqrt(static_cast<double>(squares))));
  }
}

TEST_CASE("a global norm beyond fp32 is an error, not a step of zeros") {
  auto p = float_parameter("w", {2, 3});
  OptimizerSpec spec = named("sgd");
  spec.clip_norm = 1.0f;
  auto optimizer = make_optimizer(spec);
  optimizer->attach({p.get()});
  accumulate(*p, Tensor::full({2, 3}, dtypes::fp32, 1e30));
  const Floats before = floats(p->master());
  const std::string text = error_of([&] { optimizer->step(0.1f, 1); });
  CHECK(contains(text, "the global norm of the gradients overflows fp32 at optimizer step 0"));
  CHECK(floats(p->master()) == before);
}

TEST_CASE("bf16 gradients passed in blocks equal the whole") {
  for (const Granularity& granularity :
       {Granularity::tensor(), Granularity::channel(0), Granularity::groups(32), Granularity::groups(7, 0)})
    for (const float clip_norm : {0.0f, 0.01f}) {
      const Shape shape{150, 1000};  // more than two blocks of 65536
      ParameterSpec spec = weight_spec(quant_spec(dtypes::int4, "symmetric"));
      spec.quant->granularity = granularity;
      spec.quant->ste = SteRule::kClip;
      Parameter whole(shape, spec);
      spec.grad = dtypes::bf16;
      Parameter blocks(shape, spec);
      OptimizerSpec how = named("adam");
      how.clip_norm = clip_norm;
      auto first = make_optimizer(how), second = make_optimizer(how);
      first->attach({&whole});
      second->attach({&blocks});
      whole.initialize("w", 8);
      blocks.initialize("w", 8);
      const Tensor narrow = random_tensor(shape, dtypes::bf16, 9),
                   wide = Tensor::from_elements(shape, dtypes::fp32, narrow.elements());
      for (int64_t i = 0; i < shape.numel(); i += 3)
        whole.master().as<float>()[i] *= 3, blocks.master().as<float>()[i] *= 3;
      accumulate(whole, wide);
      accumulate(blocks, narrow);
      reset_memory_peaks();
      const int64_t before = memory_now()[MemoryKind::kGrad];
      second->step(0.01f, 3);
      if (clip_norm == 0) CHECK(memory_peak_by_kind()[MemoryKind::kGrad] - before <= 4 * 66000);
      first->step(0.01f, 3);
      CHECK(first->last_norm() == second->last_norm());
      CHECK(bits_of(whole.master()) == bits_of(blocks.master()));
      CHECK(bits_of(first->state()[1].tensor) == bits_of(second->state()[1].tensor));
    }
}

TEST_CASE("a gradient that is not finite names the parameter, and nothing has moved") {
  for (const DType grad : {dtypes::fp32, dtypes::bf16})
    for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
      auto a = float_parameter("layers.0.bias", {3}), b = float_parameter("layers.1.weight", {2, 3}, grad);
      auto optimizer = make_optimizer(named("adam"));
      optimizer->attach({a.get(), b.get()});
      accumulate(*a, Tensor::full({3}, dtypes::fp32, 1));
      accumulate(*b, Tensor::from_elements({2, 3}, grad, std::vector<double>{0, 0, 0, 0, bad, 0}));
      const Floats wa = floats(a->master()), wb = floats(b->master());
      const std::string text = error_of([&] { optimizer->step(0.1f, 1); });
      CHECK(text.rfind(concat("[optimizer] the gradient of 'layers.1.weight' ([2,3] ", grad,
                              ") holds NaN or Inf at optimizer step 0. Nothing was updated."),
                       0) == 0);
      CHECK(error_code_of([&] { optimizer->step(0.1f, 1); }) == 5);
      CHECK(floats(a->master()) == wa);
      CHECK(floats(b->master()) == wb);
      CHECK(optimizer->steps() == 0);
      for (const auto& s : optimizer->state())
        CHECK(s.tensor.elements() == std::vector<double>(static_cast<size_t>(s.tensor.numel()), 0.0));
    }
}

TEST_CASE("parameters without a gradient are left alone") {
  auto a = float_parameter("a", {3}), b = float_parameter("b", {3});
  OptimizerSpec spec = named("adamw");
  spec.weight_decay = 0.5f;
  spec.clip_norm = 1;
  auto optimizer = make_optimizer(spec);
  optimizer->attach({a.get(), b.get()});
  const Floats before = floats(b->master());
  accumulate(*a, Tensor::full({3}, dtypes::fp32, 1));
  optimizer->step(0.1f, 1);
  CHECK(floats(b->master()) == before);
}
