// The order of one optimizer step. docs/numerics.md section 6.
#include "bitgrad/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/kernels/elementwise.h"
#include "bitgrad/kernels/reduce.h"
#include "nn/row_params.h"
#include "optim/finish.h"
#include "optim/moments.h"
#include "optim/requirements.h"

namespace bitgrad {

using detail::as_matrix;
using detail::finished_rows;
using detail::number_rows;

struct Optimizer::Slot {
  Parameter* parameter;
  UpdateRule* rule;
  detail::Moments moments;
  Slot* owner = nullptr;          // of a learned part: whose straight-through rule gives its gradient
  std::vector<Tensor> learned{};  // gradients of the parameter's own learned parts
  Tensor gradient{};              // of a learned part: one of the owner's `learned`
  bool active = false;            // has a gradient in this step
  bool finished = false;          // the gradient (fp32) was finished in place in this step
};

Optimizer::Optimizer(OptimizerSpec spec) : spec_(std::move(spec)) { rules_[spec_.name] = make_rule(spec_); }
Optimizer::~Optimizer() = default;

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec) { return std::make_unique<Optimizer>(spec); }

UpdateRule& Optimizer::rule_of(const Parameter& p) {
  OptimizerSpec spec = spec_;
  if (!p.spec().optimizer.empty()) spec.name = p.spec().optimizer;
  std::unique_ptr<UpdateRule>& rule = rules_[spec.name];
  if (!rule) rule = make_rule(spec);
  return *rule;
}

void Optimizer::add_slot(Parameter* p) {
  for (const auto& s : slots_)
    if (s->parameter == p) return;
  UpdateRule& rule = rule_of(*p);
  detail::check_trainable(*p, p->spec().optimizer.empty() ? spec_.name : p->spec().optimizer, rule);
  const MomentKind kind = p->spec().moments.value_or(spec_.moments);
  slots_.push_back(std::make_unique<Slot>(Slot{p, &rule, detail::Moments(rule, kind, p->shape())}));
}

void Optimizer::attach(const std::vector<Parameter*>& parameters) {
  slots_.clear();
  for (Parameter* p : parameters) {
    if (p->spec().frozen) continue;
    add_slot(p);
    for (const auto& part : p->learned()) add_slot(part.get());
  }
  for (const auto& owner : slots_)
    for (const auto& part : owner->parameter->learned())
      for (const auto& s : slots_) {
        if (s->parameter != part.get()) continue;
        s->owner = owner.get();
        s->gradient = Tensor::zeros(part->shape(), dtypes::fp32, MemoryKind::kGrad);
        owner->learned.push_back(s->gradient);
      }
}

std::vector<Optimizer::StateTensor> Optimizer::state() const {
  std::vector<StateTensor> out;
  for (const auto& s : slots_) s->moments.list(concat(s->parameter->path(), '.', s->rule->family()), out);
  return out;
}

void Optimizer::set_steps(int64_t steps) {
  steps_ = steps;
  for (const auto& [name, rule] : rules_) {
    rule->reset();
    for (int64_t t = 0; t < steps; ++t) rule->begin_step(t);
  }
}

void Optimizer::check_finite() const {
  for (const auto& s : slots_) {
    if (!s->parameter->has_grad()) continue;
    const Tensor& g = s->parameter->grad();
    bool finite = true;
    if (g.dtype() == dtypes::fp32)
      finite = all_finite(g.as<float>(), g.numel());
    else
      for (int64_t i = 0; i < g.numel() && finite; ++i) finite = (g.as<uint16_t>()[i] & 0x7F80u) != 0x7F80u;
    if (!finite) refuse(*s->parameter, g);
  }
}

void Optimizer::refuse(const Parameter& p, const Tensor& g) const {
  fail_with(ErrorCode::kNonFinite, "optimizer", "the gradient of '", p.path(), "' (", g,
            ") holds NaN or Inf at optimizer step ", steps_,
            ". Nothing was updated. A smaller learning rate, or optim.clip_norm, may help.");
}

// Gradients that must be known before the first update: all of them for the norm, and owners of learned parts. Those in
// fp32 stay finished, those in bf16 are finished once more when their turn comes. Gives the sum of squares, in double.
double Optimizer::finish_early(int64_t samples, bool all) {
  double total = 0;
  for (const auto& s : slots_) {
    const Parameter& p = *s->parameter;
    if (!s->active) continue;
    if (s->owner != nullptr) {
      if (all) total += static_cast<double>(sum_squares(s->gradient.as<float>(), s->gradient.numel()));
      continue;
    }
    if (!all && s->learned.empty()) continue;
    for (const Tensor& t : s->learned) std::fill_n(t.as<float>(), t.numel(), 0.0f);
    s->finished = p.grad_dtype() == dtypes::fp32;
    const int64_t rows = p.shape().rows(), block = detail::rows_at_a_time(p);
    for (int64_t begin = 0; begin < rows; begin += block) {
      const int64_t end = std::min(begin + block, rows);
      const Tensor x = p.has_master() ? number_rows(p, begin, end) : Tensor();
      const Tensor g = finished_rows(p, spec_, samples, begin, end, x, s->learned);
      if (all && !s->finished) total += static_cast<double>(sum_squares(g.as<float>(), g.numel()));
    }
    if (all && s->finished) total += static_cast<double>(sum_squares(p.grad().as<float>(), p.grad().numel()));
    // Before the value clip, which would hide an overflow.
    for (size_t i = 0; i < s->learned.size(); ++i)
      if (!all_finite(s->learned[i].as<float>(), s->learned[i].numel())) refuse(*p.learned()[i], s->learned[i]);
    if (!s->learned.empty()) detail::finish_learned(p, spec_, s->learned);
  }
  return total;
}

float Optimizer::norm_factor(double sum_of_squares) {
  last_norm_ = static_cast<float>(std::sqrt(sum_of_squares));
  if (!std::isfinite(last_norm_))
    fail_with(ErrorCode::kNonFinite, "optimizer", "the global norm of the gradients overflows fp32 at optimizer step ",
              steps_, ". Nothing was updated. A smaller learning rate may help.");
  return last_norm_ > spec_.clip_norm ? spec_.clip_norm / last_norm_ : 1.0f;
}

void Optimizer::update_rows(Slot& s, const Tensor& g, const Tensor& x, int64_t first, float lr, float factor) {
  Parameter& p = *s.parameter;
  const ParameterSpec& spec = p.spec();
  const uint32_t id = site_id(p.path()), step = static_cast<uint32_t>(steps_);
  const RandomStream updates{p.seed(), Purpose::kUpdate, id, step}, moments{p.seed(), Purpose::kMoment, id, step};
  const bool narrow = p.has_master() && p.master().dtype() == dtypes::bf16;
  s.moments.for_pieces(first, first + x.numel(), moments, [&](int64_t begin, int64_t n, std::span<float* const> state) {
    UpdatePiece piece;
    piece.n = n;
    piece.w = x.as<float>() + (begin - first);
    piece.g = g.as<float>() + (begin - first);
    piece.state = state;
    piece.lr = lr * spec.lr_factor;
    piece.weight_decay = spec.weight_decay.value_or(spec_.weight_decay);
    if (factor != 1) scale(n, piece.g, factor, piece.g);
    s.rule->update(piece);
    if (spec.latent_clamp) clamp(n, -*spec.latent_clamp, *spec.latent_clamp, piece.w);
    if (spec.floor) clamp(n, *spec.floor, INFINITY, piece.w);
    if (narrow) to_bf16(n, piece.w, updates, static_cast<uint64_t>(begin), p.master().as<uint16_t>() + begin);
  });
  if (!p.has_master()) p.write_rows(first / std::max<int64_t>(p.shape().cols(), 1), x, updates);
}

void Optimizer::step_slot(Slot& s, float lr, int64_t samples, float factor) {
  Parameter& p = *s.parameter;
  const int64_t rows = p.shape().rows(), block = detail::rows_at_a_time(p);
  for (int64_t begin = 0; begin < rows; begin += block) {
    const int64_t end = std::min(begin + block, rows);
    const Tensor x = number_rows(p, begin, end);
    Tensor g;
    if (s.owner != nullptr)
      g = as_matrix(s.gradient).row_slice(begin, end);
    else if (s.finished)
      g = as_matrix(p.grad()).row_slice(begin, end);
    else
      g = finished_rows(p, spec_, samples, begin, end, x, {});
    update_rows(s, g, x, begin * p.shape().cols(), lr, factor);
  }
  if (!p.has_master()) p.codes_changed();
}

void Optimizer::step(float lr, int64_t samples) {
  require(samples > 0, "optimizer", "a step needs at least one sample, got ", samples);
  require(std::isfinite(lr) && lr >= 0, "optimizer", "the learning rate must be finite and at least 0, got ", lr);
  check_finite();
  for (const auto& s : slots_) {
    s->active = (s->owner != nullptr ? s->owner : s.get())->parameter->has_grad();
    s->finished = false;
  }
  const bool by_norm = spec_.clip_norm > 0;
  const double squares = finish_early(samples, by_norm);
  const float factor = by_norm ? norm_factor(squares) : 1.0f;
  for (const auto& [name, rule] : rules_) rule->begin_step(steps_);
  for (const auto& s : slots_) {
    if (!s->active) continue;
    step_slot(*s, lr, samples, factor);
    s->parameter->zero_grad();
  }
  ++steps_;
}

}  // namespace bitgrad
