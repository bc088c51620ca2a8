// Low-rank adapters of linear layers (LoRA; Hu et al. 2021, arXiv 2106.09685; over low-bit weights: QLoRA, Dettmers et
// al. 2023, arXiv 2305.14314): y = W x + (alpha / rank) B A dropout(x), W frozen, as it is held: codes stay codes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad {

struct AdapterSpec {
  int64_t rank = 8;      // 1 .. 65536: A is [rank, inputs], B [outputs, rank], fp32
  double alpha = 8;      // the adapter's part counts alpha / rank
  double dropout = 0.0;  // [0, 1): of the adapter's input, in training
  friend bool operator==(const AdapterSpec&, const AdapterSpec&) = default;
};

// The adapter of one layer, its child.
class LowRankAdapter final : public Module {
 public:
  // Of a weight [outputs, inputs] that is described by the time of plan.
  LowRankAdapter(const AdapterSpec& spec, const Parameter& weight);

  Var forward(const Var& x) override;  // fp32
  Form plan(const Form& in, PlanRequests& requests) override;
  int64_t macs(const Form& in, const Form& out) const override;
  std::string_view kind() const override { return kKind; }

  const AdapterSpec& adapter_spec() const { return spec_; }
  // [rank, inputs] and [outputs, rank].
  Parameter& a() { return a_; }
  Parameter& b() { return b_; }
  // Adds (alpha / rank) B A to w [outputs, inputs], fp32 on the CPU; each element in double, rounded once.
  void add_to(const Tensor& w) const;

  static constexpr std::string_view kKind = "adapter";

 private:
  void describe(int64_t inputs);
  void allocate() override;

  const AdapterSpec spec_;
  const Parameter& weight_;
  std::shared_ptr<Module> dropout_;  // nullptr: none
  Parameter& a_;
  Parameter& b_;
  Tensor scale_;         // alpha / rank [1]; undefined: 1
  bool causal_ = false;  // of the model, as planned
};

// Which layers get one, and what trains beside them. Globs as those of QuantRule.
struct AdapterRule {
  std::vector<std::string> layers = {"*"};
  AdapterSpec adapter = {};
  std::vector<std::string> train = {};  // layers, or parameters, that are not frozen
};

// Adds adapters to the linear layers that `rule` names and freezes every other parameter; before initialize. First A is
// uniform in +-1 / sqrt(inputs) and B is 0: the model computes what it computed. Steps and clips that quantizers of
// activations learn are not frozen, nor are running statistics. Throws Error for a glob that matches nothing (lists the
// linear layers), a layer that has one, and numbers out of range.
void add_adapters(Module& model, const AdapterRule& rule, const std::string& root = kModelRoot);

struct AdaptedLayer {
  std::string layer = {};  // path
  Quantizable* slot = nullptr;
};
// Layers with adapters, in depth-first order.
std::vector<AdaptedLayer> adapted_layers(Module& model);

// W becomes W + (alpha / rank) B A, computed in double and rounded once to fp32, and the adapters are gone. Weights
// that are held in codes are quantized anew by their scheme. to_float: they become fp32 first. Throws Error for a model
// without adapters, or converted. Layouts must be planned again.
void merge_adapters(Module& model, bool to_float);

}  // namespace bitgrad
