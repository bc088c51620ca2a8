// Low-rank adapters of linear layers: LoRA (Hu et al. 2021, arXiv 2106.09685), and over low-bit weights QLoRA (Dettmers
// et al. 2023, arXiv 2305.14314). y = W x + (alpha / rank) B A dropout(x), with W frozen in its current precision:
// codes stay codes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {

// The adapter of one layer; a child of that layer.
class LowRankAdapter final : public Module {
 public:
  // For a weight [outputs, inputs], whose shape must be known by the time of plan.
  LowRankAdapter(const AdapterSpec& spec, const Parameter& weight);

  Var forward(const Var& x) override;  // returns fp32
  Form plan(const Form& in, PlanRequests& requests) override;
  int64_t macs(const Form& in, const Form& out) const override;
  std::string_view kind() const override { return kKind; }

  const AdapterSpec& adapter_spec() const { return spec_; }
  // A [rank, inputs] and B [outputs, rank].
  Parameter& a() { return a_; }
  Parameter& b() { return b_; }
  // Adds (alpha / rank) B A to w [outputs, inputs], fp32 on the CPU. Each element is computed in double and rounded
  // once.
  void add_to(const Tensor& w) const;

  static constexpr std::string_view kKind = "adapter";

 private:
  void describe(int64_t inputs);
  void allocate() override;

  const AdapterSpec spec_;
  const Parameter& weight_;
  std::shared_ptr<Module> dropout_;  // nullptr: no dropout
  Parameter& a_;
  Parameter& b_;
  Tensor scale_;         // alpha / rank [1]; undefined: 1
  bool causal_ = false;  // whether the planned model is causal
};

// Adds adapters to the linear layers selected by `rule` and freezes all other parameters except learned steps, offsets
// and clips of activations; call before initialize. A is uniform in +-1 / sqrt(inputs) and B is 0, so the model's
// output is unchanged at first. Running statistics still update. Throws Error for a glob that matches nothing (the
// message lists the linear layers), a layer that already has an adapter, and values out of range.
void add_adapters(Module& model, const AdapterRule& rule, const std::string& root = kModelRoot);

struct AdaptedLayer {
  std::string layer = {};  // path
  Quantizable* slot = nullptr;
};
// All layers with adapters, in depth-first order.
std::vector<AdaptedLayer> adapted_layers(Module& model);

// Replaces W by W + (alpha / rank) B A, computed in double and rounded once to fp32, and removes the adapters. Low-bit
// weights are requantized by their scheme; with to_float they become fp32 instead. Layouts must be planned again.
// Throws Error for a model that has no adapters or is converted.
void merge_adapters(Module& model, bool to_float);

}  // namespace bitgrad
