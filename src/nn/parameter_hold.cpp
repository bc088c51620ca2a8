// Changes of a parameter's precision: prepare, off and on again, frozen scales, convert. docs/numerics.md section 9.
#include <utility>

#include "bitgrad/nn/parameter.h"
#include "kernels/elementwise.h"
#include "nn/parameter_spec.h"
#include "nn/row_params.h"

namespace bitgrad {

using detail::as_matrix;

namespace {

// Ignores the sharpness of rule tanh, which follows the progress of the run and was not requested.
bool same_quant(const std::optional<QuantSpec>& a, const std::optional<QuantSpec>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  QuantSpec now = *a;
  now.ste_t = b->ste_t;
  return now == *b;
}

}  // namespace

Tensor Parameter::dequantized() const {
  if (!has_master()) return dequantize_tensor(value_, MemoryKind::kWorkspace);
  if (master().dtype() == dtypes::fp32) return master();
  Tensor wide = Tensor::empty(shape(), dtypes::fp32, MemoryKind::kWorkspace);
  kernels::from_bf16(wide.numel(), master().as<uint16_t>(), wide.as<float>());
  return wide;
}

void Parameter::set_quant(const std::optional<QuantSpec>& quant, MasterKind master, int64_t step) {
  if (same_quant(quant, spec_.quant) && master == spec_.master) return;
  require(!converted_, "Parameter", "'", path_, "' ", value_, " is converted: it has no master to requantize");
  ParameterSpec spec = spec_;
  spec.quant = quant;
  spec.master = master;
  detail::check_parameter_spec(spec);
  const bool drawn = ready_;
  const Tensor from = drawn ? dequantized() : Tensor();
  spec_ = std::move(spec);
  sink_.clear();
  if (!allocated()) return;
  planned_.clear();
  allocate();
  if (!drawn) return;
  requantize_from(
      [&](int64_t begin, const Tensor& x) { x.copy_from(as_matrix(from).row_slice(begin, begin + x.rows())); }, step);
}

void Parameter::assign(const Tensor& x, int64_t step) {
  require(x.shape() == shape() && x.dtype() == dtypes::fp32 && !converted_, "assign", "parameter '", path_, "' is ",
          value_, converted_ ? ", converted" : "", ": got ", x);
  struct Unfrozen {
    bool& now;
    const bool before = std::exchange(now, false);
    ~Unfrozen() { now = before; }
  } const unfrozen{scales_frozen_};
  requantize_from(
      [&](int64_t begin, const Tensor& to) { to.copy_from(as_matrix(x).row_slice(begin, begin + to.rows())); }, step);
}

void Parameter::set_training(DType grad, std::optional<float> latent_clamp, const LearnedSpec& learned) {
  if (grad == spec_.grad && latent_clamp == spec_.latent_clamp && learned == spec_.learned) return;
  ParameterSpec spec = spec_;
  spec.grad = grad;
  spec.latent_clamp = latent_clamp;
  spec.learned = learned;
  detail::check_parameter_spec(spec);
  if (grad == spec_.grad)
    sink_.clear();
  else
    sink_ = AccumulateSink();
  spec_ = std::move(spec);
  for (const auto& part : learned_) {
    part->spec_.lr_factor = learned.lr_factor;
    part->spec_.weight_decay = learned.weight_decay;
  }
}

void Parameter::freeze_scales(bool on) {
  scales_frozen_ = on;
  for (const auto& part : learned_) part->set_frozen(on || spec_.frozen);
}

void Parameter::set_frozen(bool on) {
  require(!low_bit() || !allocated(), "Parameter", "'", path_, "' ", value_,
          " is low-bit: freeze it before it is initialized, or convert it");
  spec_.frozen = on;
  sink_.clear();
}

void Parameter::convert() {
  converted_ = true;
  spec_.frozen = true;
  sink_ = AccumulateSink();
  if (!low_bit()) return;
  master_ = dequantized_ = Tensor();
  learned_.clear();
}

}  // namespace bitgrad
