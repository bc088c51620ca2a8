// Bop against a naive loop, and what it and parameters without a master refuse.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/memory.h"
#include "nn/nn_support.h"
#include "optim/moments.h"
#include "optim/optim_support.h"
#include "optim/reference_update.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

ParameterSpec sign_spec() {
  ParameterSpec spec = weight_spec(quant_spec(dtypes::bint1, "binary"));
  spec.master = MasterKind::kNone;
  spec.optimizer = "bop";
  return spec;
}
ParameterSpec code_spec(DType dtype = dtypes::int8, const std::string& scheme = "absmax") {
  ParameterSpec spec = weight_spec(quant_spec(dtype, scheme));
  spec.quant->granularity = Granularity::channel(0);
  spec.master = MasterKind::kNone;
  return spec;
}

std::string refusal(const ParameterSpec& spec, const std::string& run = "adam") {
  return error_of([&] {
    Parameter p({4, 64}, spec);
    p.initialize("layers.0.weight", 1);
    make_optimizer(named(run))->attach({&p});
  });
}

}  // namespace

TEST_CASE("Bop flips the signs that a naive loop flips") {
  for (const MomentKind moments : {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4}) {
    const Shape shape{9, 133};
    Parameter p(shape, sign_spec());
    p.initialize("w", 3);
    p.memory().add_layout(layouts::planes);
    OptimizerSpec spec = named("adam");
    spec.moments = moments;
    spec.base_lr = 0.02;
    spec.bop.gamma = 0.25f;
    spec.bop.threshold = 0.05f;
    auto optimizer = make_optimizer(spec);
    optimizer->attach({&p});
    Reference kept{spec, moments};
    kept.seed = 3;
    std::vector<float> m(static_cast<size_t>(shape.numel()), 0.0f);
    std::vector<double> w = p.value().elements();
    for (int step = 0; step < 8; ++step) {
      const Tensor g = random_tensor(shape, dtypes::fp32, 70 + static_cast<uint64_t>(step));
      const float lr = 0.02f / static_cast<float>(step + 1);
      const float gamma = static_cast<float>(static_cast<double>(0.25f) * (static_cast<double>(lr) / 0.02));
      accumulate(p, g);
      optimizer->step(lr, 2);
      int flips = 0;
      for (size_t i = 0; i < m.size(); ++i) {
        m[i] = m[i] + gamma * (g.as<float>()[i] / 2.0f - m[i]);
        if (std::fabs(m[i]) > 0.05f && (m[i] > 0) == (w[i] > 0)) {
          w[i] = -w[i];
          ++flips;
        }
      }
      kept.steps = static_cast<uint32_t>(step);
      kept.keep(m, 0, false, true);
      if (step == 0) CHECK(flips > 10);
      REQUIRE(p.value().elements() == w);
      CHECK(p.value().in_layout(layouts::planes).elements() == w);
      if (!detail::in_blocks(moments)) CHECK(floats(optimizer->state()[0].tensor) == m);
    }
    CHECK(optimizer->state()[0].name == "w.bop.m");
  }
}

TEST_CASE("at its threshold Bop keeps a weight, and a zero average flips nothing") {
  ParameterSpec spec = sign_spec();
  spec.init = {"constant", 1, 0};
  Parameter p({1, 4}, spec);
  p.initialize("w", 1);
  OptimizerSpec how = named("adam");
  how.bop.gamma = 1;
  how.bop.threshold = 0.5f;
  auto optimizer = make_optimizer(how);
  optimizer->attach({&p});
  const float above = std::nextafter(0.5f, 1.0f);
  accumulate(p,
             Tensor::from_elements({1, 4}, dtypes::fp32, std::vector<double>{0.5, static_cast<double>(above), -9, 0}));
  optimizer->step(0.1f, 1);
  CHECK(p.value().elements() == std::vector<double>{1, -1, 1, 1});
}

TEST_CASE("without masters codes, scales and moments are all the memory") {
  const MemoryAccount before = memory_now();
  for (const ParameterSpec& spec : {sign_spec(), code_spec()}) {
    Parameter p({256, 1024}, spec);
    p.initialize("w", 1);
    auto optimizer = make_optimizer(named("sgd"));
    optimizer->attach({&p});
    const MemoryAccount now = memory_now();
    CHECK(now[MemoryKind::kMaster] == before[MemoryKind::kMaster]);
    CHECK(now[MemoryKind::kValue] - before[MemoryKind::kValue] == 256 * 1024 * spec.quant->dtype.bits() / 8);
    CHECK(p.master().defined() == false);
    accumulate(p, Tensor::full({256, 1024}, dtypes::fp32, 0.1));
    reset_memory_peaks();
    const int64_t held = memory_now()[MemoryKind::kWorkspace];  // a device keeps words for flags
    optimizer->step(0.1f, 1);
    CHECK(memory_peak_by_kind()[MemoryKind::kWorkspace] - held <= 1 << 20);
  }
}

TEST_CASE("Bop refuses parameters without signs to flip, with an alternative") {
  CHECK(refusal(sign_spec()).empty());
  ParameterSpec spec = sign_spec();
  spec.master = MasterKind::kFp32;
  CHECK(refusal(spec) ==
        "[optimizer] parameter 'layers.0.weight': bop updates no master, got master fp32. Set master to none");
  spec = sign_spec();
  spec.quant->alpha = true;
  CHECK(contains(refusal(spec), "bop flips weights that are -1 and +1, got [4,64] bint1, scheme binary with alpha"));
  spec = code_spec();
  spec.optimizer = "bop";
  CHECK(contains(refusal(spec), "got [4,64] int8, scheme absmax. Give it dtype bint1, scheme binary without alpha"));
  CHECK(contains(refusal(ParameterSpec{}, "bop"), "got [4,64] fp32. Give it dtype bint1"));
  spec = sign_spec();
  spec.latent_clamp = 1.0f;
  CHECK(contains(refusal(spec), "bop has no values to clamp or decay"));
  spec = sign_spec();
  spec.weight_decay = 0.1f;
  CHECK(contains(refusal(spec), "bop has no values to clamp or decay"));
  spec = sign_spec();
  spec.quant->ste = SteRule::kApproxSign;
  CHECK(contains(refusal(spec), "its straight-through rule must be identity or clip"));
  CHECK(contains(error_of([] {
                   OptimizerSpec s = named("bop");
                   s.bop.gamma = 0;
                   make_optimizer(s);
                 }),
                 "bop.gamma must be in (0, 1], got 0"));
}

TEST_CASE("parameters without a master refuse schemes that cannot hold their updates") {
  for (const char* scheme : {"absmax", "affine", "minmax_offset", "symmetric_no_clip"})
    CHECK(refusal(code_spec(dtypes::int8, scheme)).empty());
  ParameterSpec spec = code_spec(dtypes::uint4, "affine");
  spec.quant->granularity = Granularity::groups(16);
  CHECK(refusal(spec).empty());
  spec = code_spec(dtypes::int4, "fixed");
  spec.quant->granularity = {};
  spec.quant->scale = 0.1f;
  CHECK(refusal(spec).empty());
  spec = code_spec();
  spec.quant->granularity = {};
  CHECK(
      refusal(spec) ==
      "[optimizer] parameter 'layers.0.weight': without a master scales are fitted row by row, got granularity tensor. "
      "Use channel(0) or groups along a row, scheme fixed, or a master");
  spec.quant->granularity = Granularity::groups(2, 0);
  CHECK(contains(refusal(spec), "got granularity group(0,2)"));
  spec = sign_spec();
  spec.optimizer = "";
  CHECK(contains(refusal(spec), "codes of kind int or uint, got bint1. Use optimizer bop, or a master"));
  CHECK(contains(refusal(code_spec(dtypes::nf4, "codebook")), "codes of kind int or uint, got nf4. Use a master"));
  // s = (max - min) / 255 of symmetric maps the largest value to half a code beyond the last.
  CHECK(contains(refusal(code_spec(dtypes::int8, "symmetric")), "does not reproduce the values of its own codes"));
  CHECK(contains(refusal(code_spec(dtypes::ternary, "ternary")), "does not reproduce the values of its own codes"));
  spec = code_spec();
  spec.quant->ste = SteRule::kNone;
  CHECK(contains(refusal(spec), "must be identity or clip"));
}
