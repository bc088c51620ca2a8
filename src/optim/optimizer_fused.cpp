// Updates inside backward: which parameters are armed, and where their gradients go.
#include "bitgrad/base/error.h"
#include "optim/finish.h"
#include "optim/optimizer_entry.h"

namespace bitgrad {

using detail::RowStep;

// Receives the gradient of an armed parameter.
class Optimizer::FusedRows final : public GradRows {
 public:
  FusedRows(Optimizer& optimizer, Entry& entry, const RowStep::Now& now)
      : optimizer_(optimizer), entry_(entry), now_(now) {
    now_.refuse = [this] { optimizer_.refuse(*entry_.parameter); };
  }
  int64_t block_rows() const override { return entry_.row_step.block_rows(); }
  void begin() override {
    optimizer_.partially_updated_ = true;  // until the step is complete
    entry_.row_step.begin(now_);
  }
  void consume(int64_t begin, const Tensor& g) override {
    Parameter& p = *entry_.parameter;
    if (p.spec().grad == dtypes::bf16) detail::round_to_bf16(p.grad_sink().rounding(), begin, g);
    entry_.row_step.rows(begin, begin + g.rows(), g, /*finished=*/false, /*scratch=*/true);
  }
  void declined(std::string_view why) override { entry_.declined = why; }
  void done() override {
    entry_.row_step.end();
    entry_.moved = true;
    entry_.parameter->grad_sink().set_rows(nullptr);
  }

 private:
  Optimizer& optimizer_;
  Entry& entry_;
  RowStep::Now now_;
};

std::string Optimizer::not_fused(const Parameter& p) const {
  for (const auto& s : entries_)
    if (s->parameter == &p) return not_fused(p, s.get());
  return not_fused(p, nullptr);
}

std::string Optimizer::not_fused(const Parameter& p, const Entry* s) const {
  if (!spec_.fused) return "optim.fused is off";
  if (const Device device = p.value().device(); !device.is_cpu())
    return concat("on ", to_string(device), " whole tensors are updated after backward");
  if (spec_.measures_norm())
    return "the norm of all gradients must be known first (optim.clip_norm, log.gradient_norm)";
  if (s == nullptr) return "no optimizer updates it";
  if (s->shares) return "ranks update its rows";
  if (s->rule->whole_matrix()) return concat("update rule ", s->rule->family(), " needs the whole gradient");
  if (s->owner != nullptr) return concat("it is a learned part of '", s->owner->parameter->path(), '\'');
  if (!s->learned.empty())
    return concat("the gradient of its learned ", p.learned()[0]->path(), " needs all rows first");
  if (s->row_step.in_order()) return "blocks of its moments span too many rows";
  return {};
}

std::string Optimizer::not_one_kernel(const Parameter& p) const {
  if (p.value().device().is_cpu()) return "the CPU updates blocks of rows";
  for (const auto& s : entries_)
    if (s->parameter == &p) return s->row_step.not_one_kernel();
  return "no optimizer updates it";
}

// Why the parameter was not fused in the current step; empty if it was.
std::string Optimizer::why_not(const Entry& s) const {
  if (s.moved) return "";
  if (!armed_) return "the step came after backward";
  if (std::string why = not_fused(*s.parameter, &s); !why.empty()) return why;
  if (!s.active) return "it had no gradient";
  if (!s.declined.empty()) return s.declined;
  return "its gradient was not produced in blocks of rows: it is read more than once, or by an op without row blocks";
}

void Optimizer::unfuse(Entry& s) {
  if (!s.fused) return;
  s.parameter->grad_sink().set_rows(nullptr);
  s.fused.reset();
  s.moved = false;
  s.declined.clear();
}

void Optimizer::arm(float lr, double count, const RequantKey* due) {
  check_step(lr, count);
  require(!armed_, "optimizer", "armed already: call step() before the next arm()");
  armed_.emplace(Armed{lr, count, due != nullptr ? std::optional<RequantKey>(*due) : std::nullopt});
  for (const auto& s : entries_) {
    Parameter& p = *s->parameter;
    if (p.grad_sink().filled() || !not_fused(p, s.get()).empty()) continue;
    s->fused =
        std::make_unique<FusedRows>(*this, *s,
                                    RowStep::Now{lr, count, steps_, 1.0f, factors_,
                                                 armed_->due ? &*armed_->due : nullptr, s->rule->age_of(s->updates)});
    p.grad_sink().set_rows(s->fused.get());
  }
}

void Optimizer::disarm() {
  if (!armed_) return;
  for (const auto& s : entries_) unfuse(*s);
  armed_.reset();
}

}  // namespace bitgrad
