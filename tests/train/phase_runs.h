// Small learners whose quantization changes over time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/small_learner.h"

namespace bitgrad::test {

inline LayerQuant held(DType dtype, const std::string& scheme, const Granularity& granularity = Granularity::channel(0),
                       Rounding rounding = Rounding::kNearest) {
  LayerQuant quant;
  quant.recipe = concat(dtype, ' ', scheme);
  quant.weight.emplace();
  quant.weight->dtype = dtype;
  quant.weight->scheme = scheme;
  quant.weight->granularity = granularity;
  quant.weight->rounding = rounding;
  return quant;
}

inline LayerQuant with_input(LayerQuant quant, DType dtype, const std::string& scheme,
                             const Granularity& granularity = Granularity::tensor(), const std::string& observer = "") {
  quant.input.emplace();
  quant.input->dtype = dtype;
  quant.input->scheme = scheme;
  quant.input->granularity = granularity;
  if (observer.empty()) return quant;
  quant.observer.emplace();
  quant.observer->name = observer;
  quant.observer->momentum = 0.9f;
  return quant;
}

inline LayerQuant with_master(LayerQuant quant, MasterKind master) {
  quant.master = master;
  return quant;
}

inline PrepareSpec all_layers(const LayerQuant& quant) {
  PrepareSpec spec;
  spec.all = quant;
  return spec;
}

inline constexpr QuantMode kOn{}, kOff{QuantSwitch::kOff, true}, kFrozen{QuantSwitch::kFrozen, false},
    kFixedRanges{QuantSwitch::kOn, false};

struct PhaseRun {
  std::string name;
  std::vector<QuantPhase> phases;
  int64_t accumulate = 1, every = 1;
  MomentKind moments = MomentKind::kFp32;
  std::string optimizer = "adam";
  DType grad = dtypes::fp32;
  bool fused = true;
};

// 5 -> 24 -> batch norm -> relu -> dropout -> 10 -> relu -> 3, in fp32 but for the phases.
inline std::shared_ptr<Sequential> phase_model(DType grad = dtypes::fp32) {
  LayerSpec dropout = plain_spec("dropout");
  dropout.attributes["p"] = 0.2;
  std::vector<LayerSpec> layers{linear_spec(24, dtypes::fp32, ""),
                                plain_spec("batch_norm"),
                                plain_spec("relu"),
                                dropout,
                                linear_spec(10, dtypes::fp32, ""),
                                plain_spec("relu"),
                                linear_spec(3, dtypes::fp32, "")};
  for (LayerSpec& layer : layers) layer.weight.grad = grad;
  return make_sequential(layers, kFeatures);
}

inline std::unique_ptr<Learner> phase_learner(const PhaseRun& run, int64_t train_rows = 6) {
  OptimizerSpec spec;
  spec.name = run.optimizer;
  spec.moments = run.moments;
  spec.fused = run.fused;
  if (run.optimizer == "sgd") spec.momentum = 0.9f;
  auto learner = std::make_unique<Learner>(
      phase_model(run.grad), find_loss("softmax_cross_entropy"), spec, RequantPolicy{run.accumulate, run.every},
      [](int64_t step) { return 0.05f / static_cast<float>(1 + step / 4); }, 3);
  learner->set_total_steps(16);
  if (!run.phases.empty()) learner->set_phases(run.phases);
  learner->plan({.input = {.sample = {kFeatures}}, .outputs = 3, .train_samples = train_rows, .eval_samples = 6});
  return learner;
}

// One of each kind; all end within 12 steps.
inline std::vector<PhaseRun> phase_runs() {
  const LayerQuant lsq = with_input(held(dtypes::int4, "lsq"), dtypes::int8, "lsq");
  const LayerQuant observed =
      with_input(held(dtypes::int8, "symmetric"), dtypes::int8, "symmetric", Granularity::tensor(), "moving_average");
  const LayerQuant int3 = held(dtypes::int3, "symmetric", Granularity::groups(4), Rounding::kStochastic),
                   affine = held(dtypes::uint4, "minmax_offset", Granularity::groups(4));
  const LayerQuant none8 = with_master(held(dtypes::int8, "absmax"), MasterKind::kNone),
                   bf16 = with_master(held(dtypes::int4, "symmetric", {}, Rounding::kStochastic), MasterKind::kBf16);
  PrepareSpec mixed = all_layers(affine);
  mixed.first = held(dtypes::int8, "symmetric");
  mixed.last = LayerQuant{};
  mixed.rules.push_back({"layers.4", lsq});
  PrepareSpec two = all_layers(held(dtypes::int2, "lsq"));
  two.rules.push_back({"layers.[46]", with_input(held(dtypes::bint1, "binary", {}), dtypes::bint1, "binary")});
  PhaseRun progressive{"float, int4, int3, int2",
                       {{0, std::nullopt, kOn},
                        {3, all_layers(held(dtypes::int4, "symmetric")), kOn},
                        {5, all_layers(int3), kOn},
                        {8, two, kOn}}};
  PhaseRun switches{"learned scales on, off, on, frozen, on",
                    {{0, all_layers(lsq), kOn},
                     {2, std::nullopt, kOff},
                     {4, std::nullopt, kOn},
                     {6, std::nullopt, kFrozen},
                     {9, std::nullopt, kOn}}};
  PhaseRun ranges{"observers over a float phase, on, fixed ranges, frozen, other codes",
                  {{0, all_layers(observed), kOff},
                   {2, std::nullopt, kOn},
                   {4, std::nullopt, kFixedRanges},
                   {6, std::nullopt, kFrozen},
                   {8, mixed, kOn},
                   {9, mixed, kOff}}};
  PhaseRun stale{"N > A, bf16 masters, 8-bit moments",
                 {{0, all_layers(bf16), kOn}, {3, mixed, kFixedRanges}, {6, std::nullopt, kFrozen}, {7, two, kOn}}};
  stale.accumulate = 2;
  stale.every = 6;
  stale.moments = MomentKind::kInt8;
  PhaseRun masterless{"without masters, bf16 moments and gradients",
                      {{0, std::nullopt, kOn},
                       {2, all_layers(none8), kOn},
                       {4, std::nullopt, kOff},
                       {6, std::nullopt, kFrozen},
                       {8, all_layers(bf16), kOn}}};
  masterless.moments = MomentKind::kBf16;
  masterless.grad = dtypes::bf16;
  PhaseRun sgd{
      "sgd, A > 1, learned",
      {{0, all_layers(affine), kOff}, {1, all_layers(lsq), kOn}, {5, std::nullopt, kFrozen}, {6, mixed, kOff}}};
  sgd.optimizer = "sgd";
  sgd.accumulate = sgd.every = 3;
  return {progressive, switches, ranges, stale, masterless, sgd};
}

}  // namespace bitgrad::test
