// The adapter of one linear layer, a child of the layer: (alpha / rank) B A dropout(x).
#pragma once

#include "bitgrad/nn/adapter.h"

namespace bitgrad::detail {

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
  Tensor scale_;  // alpha / rank [1]; undefined: 1
};

}  // namespace bitgrad::detail
