// The module of both norms.
//
// If only a sign quantizer (binary without alpha) reads a norm's output, the norm writes no fp32 y. In evaluation one
// kernel computes the codes of y >= 0 from x (kernels/quantize.h, normalize_sign). In training on the CPU one op
// does (`training_signs`, for the straight-through rules clip and identity).
// Only the parent knows who reads what: Sequential runs patterns of layers (nn/layers/fusions.cpp). Bits, NaN and Inf
// flags, and errors are those of the two modules run separately. They do run separately if a hook observes y
// (StepState::on_forward), and in training with other rules or on devices.
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
  // per_column: one statistic per feature; otherwise one for the whole tensor.
  Norm(std::string_view name, Op op, bool per_column, float eps, float momentum);

  Var forward(const Var& x) override;
  Form plan(const Form& in, PlanRequests& requests) override;
  inference::Value lower(inference::Graph& graph, inference::Value x) override;
  std::string_view kind() const override { return name_; }
  void set_quant_mode(const QuantMode& mode) override { statistics_run_ = mode.norm_statistics; }

  // Whether signs(x) may be called: forward accepts x, and x and y are fp32.
  bool returns_signs(const Tensor& x) const;
  // bint1 codes of forward(x) >= 0 in evaluation, with these params; sets kFlagNonFinite in `flags`.
  Tensor signs(const Tensor& x, std::shared_ptr<const QuantParams> params, uint32_t* flags);
  // The same in training on the CPU; requires returns_signs and one statistic per feature. Codes and gradients equal
  // those of the norm followed by a sign quantizer with rule clip or identity and, if `pool` is given, by max_pool.
  Var training_signs(const Var& x, std::shared_ptr<const QuantParams> params, uint32_t* flags, bool clip,
                     const PoolOptions* pool);
  // Whether training_signs and add_hardtanh may be called with x.
  bool trains_in_one_pass(const Var& x) const;

  // Whether a batch in training is normalized by the running statistics, which stay as they are.
  bool holds_statistics() const { return frozen() || !statistics_run_; }

  // Whether add_hardtanh(x, b) may be called: on the CPU, for fp32 values of the same shape.
  bool adds_hardtanh(const Var& x, const Var& b) const;
  // hardtanh(forward(x) + b) as one op, with the same bits and gradients.
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
  bool statistics_run_ = true;
  DType y_ = dtypes::fp32;  // output dtype, set by plan
};

}  // namespace bitgrad
