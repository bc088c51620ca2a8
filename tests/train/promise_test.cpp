// The promise: the codes and masters after N = A microbatches are bit-equal to those of a twin that makes its codes
// anew from the masters before every microbatch. docs/numerics.md section 6.
#include "bitgrad/ops/ops.h"
#include "bitgrad/train/learner.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/label_loss.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kFeatures = 20, kHidden = 17, kClasses = 4, kRows = 6;

struct Case {
  QuantSpec weights;
  DType grad = dtypes::fp32;
  std::string optimizer = "adam";
  int64_t accumulate = 1, every = 1;
};

std::unique_ptr<Learner> make_learner(const Case& c) {
  LayerSpec first, norm, activation, second, last;
  first.kind = second.kind = "linear";
  first.attributes["out"] = kHidden;
  second.attributes["out"] = kClasses;
  second.attributes["bias"] = false;
  first.weight = second.weight = weight_spec(c.weights, c.grad);
  first.attributes["bias"] = true;
  norm.kind = "batch_norm";
  activation.kind = "quantize";
  activation.activation = ActivationQuant{quant_spec(dtypes::int4, "symmetric", Rounding::kStochastic)};
  last.kind = "tensor_norm";
  OptimizerSpec optimizer;
  optimizer.name = c.optimizer;
  if (c.optimizer == "sgd") optimizer.momentum = 0.9f;
  auto learner = std::make_unique<Learner>(
      make_sequential({first, norm, activation, second, last}, kFeatures), find_loss("squared_hinge"), optimizer,
      RequantPolicy{c.accumulate, c.every}, [](int64_t) { return 0.05f; }, 11);
  learner->plan({.input = {.sample = {kFeatures}}, .outputs = kClasses, .train_samples = kRows});
  return learner;
}

Tensor batch(int64_t i) { return random_tensor({kRows, kFeatures}, dtypes::fp32, 1000 + static_cast<uint64_t>(i)); }
std::vector<int32_t> labels(int64_t i) {
  std::vector<int32_t> out;
  for (int64_t r = 0; r < kRows; ++r) out.push_back(static_cast<int32_t>((r * 5 + i) % kClasses));
  return out;
}

// Codes, scales and masters of every parameter, as bits.
std::vector<std::vector<uint32_t>> state_of(Learner& learner) {
  std::vector<std::vector<uint32_t>> out;
  for (const Parameter* p : learner.model().parameters()) {
    out.push_back(bits_of(p->master()));
    out.push_back(bits_of(p->value()));
    if (!p->value().quant()) continue;
    for (const auto& part : {p->value().quant()->scale, p->value().quant()->zero, p->value().quant()->offset})
      if (part) out.push_back(bits_of(*part));
  }
  return out;
}

void requantize_all(Learner& learner) {
  for (Parameter* p : learner.model().parameters()) p->requantize(learner.state().seed, learner.state().step);
}

// States after every optimizer step; `anew`: codes are made from the masters before every microbatch.
std::vector<std::vector<std::vector<uint32_t>>> train(const Case& c, int64_t microbatches, bool anew) {
  auto learner = make_learner(c);
  std::vector<std::vector<std::vector<uint32_t>>> out;
  for (int64_t i = 0; i < microbatches; ++i) {
    if (anew) requantize_all(*learner);
    if (learner->microbatch(batch(i), labels(i)).stepped) out.push_back(state_of(*learner));
  }
  return out;
}

std::vector<Case> all_cases() {
  register_dtype(
      {"promise_test_nf3", 3, DTypeKind::kCodebook, 0, 0, {-1.0f, -0.5f, -0.2f, 0.0f, 0.15f, 0.3f, 0.6f, 1.0f}});
  std::vector<Case> out;
  for (const DType d : code_dtypes()) {
    Case c;
    c.weights = usual_weight_spec(d);
    out.push_back(c);
    if (!can_round_stochastically(c.weights)) continue;
    c.weights.rounding = Rounding::kStochastic;
    c.grad = dtypes::bf16;
    out.push_back(c);
  }
  const auto add = [&](DType d, const std::string& scheme, Rounding rounding, const Granularity& g = {}) {
    Case c;
    c.weights = quant_spec(d, scheme, rounding);
    c.weights.granularity = g;
    c.optimizer = "sgd";
    out.push_back(c);
  };
  for (const Rounding r : {Rounding::kNearest, Rounding::kStochastic}) {
    add(dtypes::int4, "absmax", r, Granularity::channel(0));
    add(dtypes::int8, "affine", r, Granularity::groups(8));
    add(dtypes::int3, "minmax_offset", r, Granularity::groups(8));
    add(dtypes::int1, "minmax_offset", r);
  }
  Case xnor;
  xnor.weights = quant_spec(dtypes::bint1, "binary");
  xnor.weights.alpha = true;
  xnor.weights.granularity = Granularity::channel(0);
  out.push_back(xnor);
  return out;
}

std::string describe(const Case& c) {
  return concat(c.weights.dtype, ' ', c.weights.scheme, " per ", c.weights.granularity,
                c.weights.rounding == Rounding::kStochastic ? " stochastic" : " nearest", ", gradients ", c.grad, ", ",
                c.optimizer, ", A ", c.accumulate, ", N ", c.every);
}

}  // namespace

TEST_CASE("codes and masters after N = A microbatches equal those of a loop that requantizes before every one") {
  for (Case c : all_cases())
    for (const int64_t a : {2, 4, 8}) {
      c.accumulate = c.every = a;
      const auto mine = train(c, 3 * a, false), twin = train(c, 3 * a, true);
      REQUIRE(mine.size() == 3);
      if (mine != twin) FAIL_CHECK("the twin differs: " << describe(c));
      // The steps did something: masters move, and within three steps some code does.
      if (mine[0][0] == mine[2][0]) FAIL_CHECK("the master did not move: " << describe(c));
    }
}

TEST_CASE("requantizing every 2A microbatches trains too, on older codes in between") {
  for (Case c : all_cases()) {
    c.accumulate = 2;
    c.every = 4;
    auto learner = make_learner(c);
    const Parameter& w = *learner->model().parameters()[0];
    std::vector<std::vector<uint32_t>> masters, codes;
    for (int64_t i = 0; i < 8; ++i) {
      learner->microbatch(batch(i), labels(i));
      masters.push_back(bits_of(w.master()));
      codes.push_back(bits_of(w.value()));
    }
    INFO(describe(c));
    CHECK(masters[1] != masters[0]);
    CHECK(masters[3] != masters[1]);
    CHECK(codes[2] == codes[0]);
    CHECK(codes[5] == codes[3]);
    // After a requantization the codes are those of the masters.
    const auto before = bits_of(w.value());
    const_cast<Parameter&>(w).requantize(learner->state().seed, learner->state().step);
    CHECK(bits_of(w.value()) == before);
  }
  // With N = 2A the twin that requantizes all the time must differ, or the test above could not fail.
  Case c;
  c.weights = quant_spec(dtypes::int4, "symmetric");
  c.accumulate = 2;
  c.every = 4;
  CHECK(train(c, 8, false) != train(c, 8, true));
}

TEST_CASE("an int4 weight has bf16 gradients and an fp32 master") {
  Case c;
  c.weights = quant_spec(dtypes::int4, "symmetric");
  c.grad = dtypes::bf16;
  c.accumulate = c.every = 2;
  auto learner = make_learner(c);
  learner->microbatch(batch(0), labels(0));
  Parameter& w = *learner->model().parameters()[0];
  CHECK(w.value().dtype() == dtypes::int4);
  CHECK(w.grad().dtype() == dtypes::bf16);
  CHECK(w.grad_sink().filled());
  CHECK(w.master().dtype() == dtypes::fp32);
}

TEST_CASE("a learner equals a loop written by hand with the library's ops") {
  // One linear of int4 weights, SGD: codes from masters, forward, backward, w -= lr * (g / samples), in plain code.
  for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
    const QuantSpec quant = quant_spec(dtypes::int4, "symmetric", rounding);
    LayerSpec spec;
    spec.kind = "linear";
    spec.attributes["out"] = kClasses;
    spec.attributes["bias"] = false;
    spec.weight = weight_spec(quant);
    const int64_t a = 4;
    Learner learner(
        make_sequential({spec}, kFeatures), find_loss("softmax_cross_entropy"), OptimizerSpec{}, {a, a},
        [](int64_t) { return 0.5f; }, 3);
    Parameter& w = *learner.model().parameters()[0];
    const Tensor master = w.master().clone(MemoryKind::kMaster);
    AccumulateSink sink;
    for (int64_t i = 0; i < 3 * a; ++i) {
      learner.microbatch(batch(i), labels(i));
      const RandomStream draws{3, Purpose::kRequantize, site_id("layers.0.weight"), static_cast<uint32_t>(i / a)};
      QuantizeOptions options;
      options.sr = &draws;
      const Tensor codes = quantize_dynamic(quant, master, options);
      {
        Tape tape;
        tape.backward(label_loss(linear(Var(batch(i)), tape.leaf(codes, &sink, dtypes::fp32)), labels(i)));
      }
      if ((i + 1) % a != 0) continue;
      const Tensor g = Tensor::empty(master.shape(), dtypes::fp32),
                   through = Tensor::empty(master.shape(), dtypes::fp32);
      for (int64_t e = 0; e < g.numel(); ++e)
        g.as<float>()[e] = sink.grad().as<float>()[e] / static_cast<float>(a * kRows);
      find_quantizer("symmetric").leaf_backward(quant, *codes.quant(), master, g, through);
      for (int64_t e = 0; e < g.numel(); ++e)
        master.as<float>()[e] = master.as<float>()[e] - 0.5f * through.as<float>()[e];
      sink.clear();
      CHECK(bits_of(w.master()) == bits_of(master));
    }
  }
}
