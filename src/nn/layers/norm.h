// The layer of both norms.
//
// A norm whose output nobody but a quantizer of signs reads (binary without alpha) makes no fp32 values y: in
// evaluation one kernel goes from x to the codes of y >= 0 (kernels/fused_quantize.h, normalize_sign), in training on
// the CPU one op
// (`training_signs`, for the straight-through rules clip and identity). Who reads what is
// known to the parent alone: Sequential asks the module behind a norm (Module::forward_fused), which answers where it
// quantizes its input so, and which asks the norm. Bits, flags of NaN and Inf, and errors are those of the two modules
// one after the other. They run one after the other where a hook looks at y (StepState::on_forward), and in training
// for other rules and on devices.
#pragma once

#include <memory>
#include <string_view>

#include "bitgrad/nn/module.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"

namespace bitgrad {

class Norm final : public Module {
 public:
  using Op = Var (*)(const Var&, const Var&, const Var&, const NormOptions&);
  // per_column: a statistic per feature; else one in all.
  Norm(std::string_view name, Op op, bool per_column, float eps, float momentum);

  Var forward(const Var& x) override;
  Form plan(const Form& in, PlanRequests& requests) override;
  inference::Value lower(inference::Graph& graph, inference::Value x) override;
  std::string_view kind() const override { return name_; }

  // Whether signs(x) can be asked for: forward takes x, in fp32, and gives fp32.
  bool returns_signs(const Tensor& x) const;
  // bint1 codes of forward(x) >= 0 in evaluation, with these params; `flags` gets kFlagNonFinite.
  Tensor signs(const Tensor& x, std::shared_ptr<const QuantParams> params, uint32_t* flags);
  // The same in training, on the CPU, where returns_signs holds and a statistic belongs to a feature: codes and
  // gradients are those of the norm and of a quantizer of signs with rule clip or identity, and of max_pool behind them
  // where `pool` is given.
  Var training_signs(const Var& x, std::shared_ptr<const QuantParams> params, uint32_t* flags, bool clip,
                     const PoolOptions* pool);
  bool trains_signs(const Var& x) const;

  // Whether add_hardtanh(x, b) can be asked for: on the CPU, of fp32 values of one shape.
  bool adds_hardtanh(const Var& x, const Var& b) const;
  // hardtanh(forward(x) + b) as one op, with its bits and gradients.
  Var add_hardtanh(const Var& x, const Var& b);

 private:
  void allocate() override;
  void check_rows() const override;
  NormOptions options_now(bool training) const;

  std::string_view name_;
  Op op_;
  bool per_column_;
  Parameter &gamma_, &beta_;
  NormOptions options_;
  DType y_ = dtypes::fp32;  // as planned
};

}  // namespace bitgrad
