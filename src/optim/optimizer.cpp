// The order of one optimizer step. docs/numerics.md section 6.
#include "bitgrad/optim/optimizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/reduce.h"
#include "optim/finish.h"
#include "optim/optimizer_slot.h"
#include "optim/requirements.h"

namespace bitgrad {

using detail::RowStep;

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
  slots_.push_back(std::make_unique<Slot>(p, &rule, kind, spec_));
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

void Optimizer::check_finite(const Slot& s) const {
  const Tensor& g = s.parameter->grad();
  if (g.dtype() == dtypes::fp32) {
    if (!all_finite(g.as<float>(), g.numel())) refuse(*s.parameter);
    return;
  }
  std::atomic<bool> finite{true};
  parallel_ranges(g.numel(), 65536, [&](int64_t begin, int64_t end) {
    const uint16_t* x = g.as<uint16_t>();
    bool bad = false;
    for (int64_t i = begin; i < end; ++i) bad |= (x[i] & 0x7F80u) == 0x7F80u;
    if (bad) finite = false;
  });
  if (!finite) refuse(*s.parameter);
}

void Optimizer::refuse(const Parameter& p) const {
  fail_with(ErrorCode::kNonFinite, "optimizer", "the gradient of '", p.path(), "' (", p.shape(), ' ', p.grad_dtype(),
            ") holds NaN or Inf at optimizer step ", steps_,
            half_moved_ ? ". Other rows were updated in the same backward: the model is lost. optim.fused: off finds "
                          "this before anything moves; a smaller"
                        : ". Nothing was updated. A smaller",
            " learning rate, or optim.clip_norm, may help.");
}

// What must be known before the first update: that sums are finite, gradients of learned parts, and with `norm` the sum
// of squares of all gradients (in double). fp32 gradients with learned parts stay finished; the others are finished
// once more when their turn comes.
double Optimizer::look_ahead(int64_t samples, bool norm) {
  double total = 0;
  for (const auto& s : slots_) {
    const Parameter& p = *s->parameter;
    if (!s->active) continue;
    if (s->owner != nullptr) {
      if (norm) total += static_cast<double>(sum_squares(s->gradient.as<float>(), s->gradient.numel()));
    } else if (norm && s->learned.empty() && p.grad_dtype() == dtypes::fp32 && detail::squares_by_blocks(p)) {
      const std::optional<float> squares = detail::finished_squares(p, spec_, samples);
      if (!squares) refuse(p);
      total += static_cast<double>(*squares);
    } else {
      check_finite(*s);
      if (norm || !s->learned.empty()) total += finish_early(*s, samples, norm);
    }
  }
  return total;
}

double Optimizer::finish_early(Slot& s, int64_t samples, bool norm) {
  const Parameter& p = *s.parameter;
  double total = 0;
  for (const Tensor& t : s.learned) std::fill_n(t.as<float>(), t.numel(), 0.0f);
  s.finished = p.grad_dtype() == dtypes::fp32;
  const int64_t rows = p.shape().rows(), block = detail::rows_at_a_time(p);
  for (int64_t begin = 0; begin < rows; begin += block) {
    const int64_t end = std::min(begin + block, rows);
    const Tensor x = p.has_master() ? detail::number_rows(p, begin, end) : Tensor();
    const Tensor g = detail::gradient_rows(p, begin, end);
    detail::finish_rows(p, spec_, samples, begin, g, x, s.learned);
    if (norm && !s.finished) total += static_cast<double>(sum_squares(g.as<float>(), g.numel()));
  }
  if (norm && s.finished) total += static_cast<double>(sum_squares(p.grad().as<float>(), p.grad().numel()));
  // Before the value clip, which would hide an overflow.
  for (size_t i = 0; i < s.learned.size(); ++i)
    if (!all_finite(s.learned[i].as<float>(), s.learned[i].numel())) refuse(*p.learned()[i]);
  if (!s.learned.empty()) detail::finish_learned(p, spec_, s.learned);
  return total;
}

float Optimizer::norm_factor(double sum_of_squares) {
  last_norm_ = static_cast<float>(std::sqrt(sum_of_squares));
  if (!std::isfinite(last_norm_))
    fail_with(ErrorCode::kNonFinite, "optimizer", "the global norm of the gradients overflows fp32 at optimizer step ",
              steps_, ". Nothing was updated. A smaller learning rate may help.");
  return last_norm_ > spec_.clip_norm ? spec_.clip_norm / last_norm_ : 1.0f;
}

void Optimizer::begin_rules() {
  for (const auto& [name, rule] : rules_) rule->begin_step(steps_);
}

void Optimizer::check_step(float lr, int64_t samples) const {
  require(!half_moved_, "optimizer", "an earlier Error left the parameters between two steps");
  require(samples > 0, "optimizer", "a step needs at least one sample, got ", samples);
  require(std::isfinite(lr) && lr >= 0, "optimizer", "the learning rate must be finite and at least 0, got ", lr);
}

void Optimizer::step(float lr, int64_t samples, const RequantKey* due) {
  if (armed_)
    require(lr == armed_->lr && samples == armed_->samples && (due != nullptr) == armed_->due.has_value() &&
                (due == nullptr || *due == *armed_->due),
            "optimizer", "step differs from the arm that began it: got lr ", lr, ", ", samples, " samples, expected ",
            armed_->lr, ", ", armed_->samples, due ? ", and the same requantization" : "");
  else
    check_step(lr, samples);
  for (const auto& s : slots_) {
    s->active = (s->owner != nullptr ? s->owner : s.get())->parameter->has_grad();
    s->finished = false;
    require(!(s->active && s->moved), "optimizer", "parameter '", s->parameter->path(),
            "' was moved in backward, and then got a further gradient");
  }
  const bool by_norm = spec_.clip_norm > 0;
  const double squares = look_ahead(samples, by_norm);
  const float factor = by_norm ? norm_factor(squares) : 1.0f;
  if (!armed_) begin_rules();
  half_moved_ = true;
  const RowStep::Now now{lr, samples, steps_, factor, due};
  for (const auto& s : slots_) {
    if (!s->active) continue;
    s->sweep.run(now, s->owner != nullptr ? s->gradient : s->parameter->grad(), s->owner != nullptr || s->finished);
    s->parameter->zero_grad();
  }
  for (const auto& s : slots_) {
    const bool made = (s->active || s->moved) && s->sweep.makes_codes(due);
    if (due != nullptr && s->parameter->low_bit() && !made) s->parameter->requantize(due->seed, due->step);
  }
  end_step();
}

void Optimizer::end_step() {
  updates_.clear();
  for (const auto& s : slots_) {
    if (s->owner == nullptr) updates_.push_back({s->parameter->path(), why_not(*s)});
    unfuse(*s);
  }
  armed_.reset();
  half_moved_ = false;
  ++steps_;
}

}  // namespace bitgrad
