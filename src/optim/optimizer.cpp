// The order of one optimizer step, and the list of optimizers. docs/numerics.md section 6.
#include "bitgrad/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bitgrad/base/text.h"
#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/reduce.h"

namespace bitgrad {

#define BITGRAD_OPTIMIZER(name, factory) std::unique_ptr<Optimizer> factory(const OptimizerSpec& spec);
#include "optim/optimizers.inc"
#undef BITGRAD_OPTIMIZER

namespace {

// Gradients in bf16 are widened in blocks of about this many elements, so that no full-size fp32 copy is made.
constexpr int64_t kBlock = 65536;

std::map<std::string, OptimizerFactory>& registry() {
  static std::map<std::string, OptimizerFactory> list{
#define BITGRAD_OPTIMIZER(name, factory) {name, factory},
#include "optim/optimizers.inc"
#undef BITGRAD_OPTIMIZER
  };
  return list;
}

Tensor as_matrix(const Tensor& t) { return t.shape().rank() == 2 ? t : t.reshape({t.rows(), t.cols()}); }

// Rows that are finished at a time: whole groups of scales where groups run down the rows.
int64_t rows_at_a_time(const Parameter& p) {
  const int64_t rows = p.shape().rows();
  if (p.grad_dtype() != dtypes::bf16) return rows;
  int64_t unit = 1;
  if (p.low_bit() && p.spec().quant->granularity.kind == Granularity::kGroup && p.spec().quant->granularity.axis == 0)
    unit = p.spec().quant->granularity.group;
  const int64_t wanted = kBlock / std::max<int64_t>(p.shape().cols(), 1);
  return std::max(wanted / unit, int64_t{1}) * unit;
}

// Rows [begin, end) of the master's gradient: divided, through the straight-through rule, value clipped. fp32 gradients
// in place.
Tensor finished_rows(const Parameter& p, const OptimizerSpec& spec, int64_t samples, int64_t begin, int64_t end) {
  Tensor g = as_matrix(p.grad()).row_slice(begin, end);
  if (g.dtype() == dtypes::bf16) {
    Tensor wide = Tensor::empty(g.shape(), dtypes::fp32, MemoryKind::kGrad);
    from_bf16(g.numel(), g.as<uint16_t>(), wide.as<float>());
    g = wide;
  }
  float* x = g.as<float>();
  const float divisor = static_cast<float>(samples);
  divide(g.numel(), x, divisor);
  if (p.low_bit()) {
    const QuantSpec& quant = *p.spec().quant;
    const Tensor value = as_matrix(p.value()).row_slice(begin, end);
    find_quantizer(quant.scheme)
        .leaf_backward(quant, *value.quant(), as_matrix(p.master()).row_slice(begin, end), g, g);
  }
  if (spec.clip_value > 0) clamp(g.numel(), -spec.clip_value, spec.clip_value, x);
  return g;
}

}  // namespace

void Optimizer::attach(const std::vector<Parameter*>& parameters) {
  slots_.clear();
  for (Parameter* p : parameters) {
    Slot slot{p, {}};
    for (size_t i = 0; i < parts().size(); ++i)
      slot.state.push_back(Tensor::zeros(p->shape(), dtypes::fp32, MemoryKind::kOptimizer));
    slots_.push_back(std::move(slot));
  }
}

std::vector<Optimizer::StateTensor> Optimizer::state() const {
  std::vector<StateTensor> out;
  const auto names = parts();
  const std::string_view family = spec_.name == "adamw" ? "adam" : std::string_view(spec_.name);
  for (const Slot& s : slots_)
    for (size_t i = 0; i < names.size(); ++i)
      out.push_back({concat(s.parameter->path(), '.', family, '.', names[i]), s.state[i]});
  return out;
}

void Optimizer::check_finite() const {
  for (const Slot& s : slots_) {
    if (!s.parameter->has_grad()) continue;
    const Tensor& g = s.parameter->grad();
    bool finite = true;
    if (g.dtype() == dtypes::fp32)
      finite = all_finite(g.as<float>(), g.numel());
    else
      for (int64_t i = 0; i < g.numel() && finite; ++i) finite = (g.as<uint16_t>()[i] & 0x7F80u) != 0x7F80u;
    if (!finite)
      fail_with(ErrorCode::kNonFinite, "optimizer", "the gradient of '", s.parameter->path(), "' (", g,
                ") holds NaN or Inf at optimizer step ", steps_,
                ". Nothing was updated. A smaller learning rate, or optim.clip_norm, may help.");
  }
}

float Optimizer::global_norm(int64_t samples) {
  double total = 0;
  for (const Slot& s : slots_) {
    if (!s.parameter->has_grad()) continue;
    const int64_t rows = s.parameter->shape().rows(), block = rows_at_a_time(*s.parameter);
    for (int64_t begin = 0; begin < rows; begin += block) {
      const Tensor g = finished_rows(*s.parameter, spec_, samples, begin, std::min(begin + block, rows));
      total += static_cast<double>(sum_squares(g.as<float>(), g.numel()));
    }
  }
  const float norm = static_cast<float>(std::sqrt(total));
  if (!std::isfinite(norm))
    fail_with(ErrorCode::kNonFinite, "optimizer", "the global norm of the gradients overflows fp32 at optimizer step ",
              steps_, ". Nothing was updated. A smaller learning rate may help.");
  return norm;
}

void Optimizer::step(float lr, int64_t samples) {
  require(samples > 0, "optimizer", "a step needs at least one sample, got ", samples);
  require(std::isfinite(lr) && lr >= 0, "optimizer", "the learning rate must be finite and at least 0, got ", lr);
  check_finite();
  float factor = 1;
  const bool by_norm = spec_.clip_norm > 0;
  if (by_norm) {
    last_norm_ = global_norm(samples);
    if (last_norm_ > spec_.clip_norm) factor = spec_.clip_norm / last_norm_;
  }
  begin_step();
  for (Slot& s : slots_) {
    Parameter& p = *s.parameter;
    if (!p.has_grad()) continue;
    const bool narrow = p.grad_dtype() == dtypes::bf16;
    const int64_t rows = p.shape().rows(), block = rows_at_a_time(p);
    for (int64_t begin = 0; begin < rows; begin += block) {
      const int64_t end = std::min(begin + block, rows);
      // With clip_norm, gradients in fp32 were finished in place by the norm's pass; those in bf16 are finished again.
      const Tensor g =
          by_norm && !narrow ? as_matrix(p.grad()).row_slice(begin, end) : finished_rows(p, spec_, samples, begin, end);
      if (factor != 1) scale(g.numel(), g.as<float>(), factor, g.as<float>());
      std::vector<Tensor> state;
      for (const Tensor& t : s.state) state.push_back(as_matrix(t).row_slice(begin, end));
      const Tensor master = as_matrix(p.master()).row_slice(begin, end);
      update(master, g, state, lr);
      if (p.spec().latent_clamp)
        clamp(master.numel(), -*p.spec().latent_clamp, *p.spec().latent_clamp, master.as<float>());
    }
    p.zero_grad();
  }
  ++steps_;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry()) names.push_back(name);
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec) {
  const auto found = registry().find(spec.name);
  if (found == registry().end()) fail("optimizer", unknown_name("optimizer", spec.name, optimizer_names()));
  for (const auto& [what, value] : {std::pair{"beta1", spec.beta1}, {"beta2", spec.beta2}})
    require(value >= 0 && value < 1, "optimizer", what, " must be in [0, 1), got ", value);
  require(spec.momentum >= 0 && spec.momentum < 1, "optimizer", "momentum must be in [0, 1), got ", spec.momentum);
  require(!spec.nesterov || spec.momentum > 0, "optimizer", "nesterov needs a momentum above 0");
  for (const auto& [what, value] : {std::pair{"eps", spec.eps},
                                    {"weight_decay", spec.weight_decay},
                                    {"clip_value", spec.clip_value},
                                    {"clip_norm", spec.clip_norm}})
    require(value >= 0 && std::isfinite(value), "optimizer", what, " must be at least 0, got ", value);
  require(spec.eps > 0, "optimizer", "eps must be above 0, got ", spec.eps,
          ": an element whose gradients were all 0 would become NaN");
  return found->second(spec);
}

void register_optimizer(const std::string& name, OptimizerFactory factory) {
  require(registry().emplace(name, factory).second, "register_optimizer", "an optimizer '", name, "' exists already");
}

}  // namespace bitgrad
