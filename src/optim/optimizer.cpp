// The order of one optimizer step: docs/numerics.md section 6.
#include "bitgrad/optim/optimizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/step_scalars.h"
#include "kernels/flag.h"
#include "kernels/reduce.h"
#include "optim/finish.h"
#include "optim/map/finish.h"
#include "optim/matrix_parts.h"
#include "optim/optimizer_entry.h"
#include "optim/requirements.h"
#include "optim/square_sums.h"

namespace bitgrad {

using detail::RowStep;

namespace {

// The rule of the parameters that a rule of hidden weights leaves.
OptimizerSpec aux_of(const OptimizerSpec& spec) {
  if (spec.aux.empty()) {
    OptimizerSpec aux{.name = "adamw", .weight_decay = spec.weight_decay, .decay_vectors = spec.decay_vectors};
    aux.moments = spec.moments;
    aux.base_lr = spec.base_lr;
    aux.clip_value = spec.clip_value;
    return aux;
  }
  require(spec.aux.size() == 1, "optimizer", "aux: got ", spec.aux.size(), " rules, expected at most one");
  OptimizerSpec aux = spec.aux[0];
  require(aux.aux.empty() && aux.clip_value == 0 && aux.clip_norm == 0, "optimizer",
          "aux: clip_value, clip_norm and aux are those of ", spec.name, ". Leave them out");
  if (aux.base_lr == 0) aux.base_lr = spec.base_lr;
  aux.clip_value = spec.clip_value;
  return aux;
}

}  // namespace

Optimizer::Optimizer(OptimizerSpec spec) : spec_(std::move(spec)) {
  const Rule& rule = rules_[""] = {spec_, make_rule(spec_), 1.0f};
  require(spec_.aux.empty() || rule.rule->hidden_only(), "optimizer", "aux: got a rule ",
          spec_.aux.empty() ? "" : spec_.aux[0].name, " beside ", spec_.name,
          ", which updates all parameters by itself");
  if (!rule.rule->hidden_only()) return;
  const OptimizerSpec spec_of_aux = aux_of(spec_);
  Rule& aux = rules_["aux"] = {spec_of_aux, make_rule(spec_of_aux), 1.0f};
  require(!aux.rule->hidden_only() && !aux.rule->flips_signs(), "optimizer", "aux: got ", aux.spec.name,
          ", expected a rule that updates any parameter");
  require(aux.spec.base_lr == spec_.base_lr || spec_.base_lr > 0, "optimizer", "aux: a learning rate of its own, ",
          aux.spec.base_lr, ", needs that of ", spec_.name, " (base_lr)");
  if (spec_.base_lr > 0) aux.lr_factor = static_cast<float>(aux.spec.base_lr / spec_.base_lr);
}
Optimizer::~Optimizer() = default;

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec) { return std::make_unique<Optimizer>(spec); }

const Optimizer::Rule& Optimizer::rule_of(const Parameter& p) {
  std::string name = p.spec().optimizer;
  const bool hidden_only = rules_.at("").rule->hidden_only();
  if (name.empty() && hidden_only && !p.hidden()) name = "aux";
  if (name == "aux" && !hidden_only) name.clear();
  const auto found = rules_.find(name);
  if (found != rules_.end()) return found->second;
  OptimizerSpec spec = spec_;
  spec.name = name;
  spec.aux.clear();
  std::unique_ptr<UpdateRule> rule = make_rule(spec);
  return rules_[name] = {std::move(spec), std::move(rule), 1.0f};
}

void Optimizer::check(const std::vector<Parameter*>& parameters) {
  const Rule& main = rules_.at("");
  const bool hidden_only = main.rule->hidden_only();
  require(!hidden_only || spec_.ns == NsDType::kFp32 || bits_mode() != BitsMode::kStrict, "optimizer",
          "ns bf16: its products have no order that all machines share, which strict mode needs. Set ns to fp32");
  bool any = false, updated = false;
  for (const Parameter* p : parameters) {
    if (!p->trains()) continue;
    const Rule& rule = rule_of(*p);
    detail::check_trainable(*p, rule.spec.name, *rule.rule);
    require(p->spec().matrices == 0 || !hidden_only || &rule == &main, "optimizer", "parameter '", p->path(),
            "': matrices ", p->spec().matrices, " has no effect: rule ", rule.spec.name, " updates it");
    any = true;
    updated = updated || &rule == &main;
  }
  // A rule that updates nothing was asked for in vain.
  require(updated || !any || !hidden_only, "optimizer", spec_.name,
          " updates hidden weights: those of linear and convolutional layers except the last one that train. None of "
          "this model's is left to it, and aux would update everything. Set the optimizer to ",
          hidden_only ? rules_.at("aux").spec.name : "");
}

// Reuses moments from entries_, the previous entries, whose parameters may no longer exist.
std::unique_ptr<Optimizer::Entry> Optimizer::make_entry(Parameter* p, const EntriesByPath& before) {
  const Rule& rule = rule_of(*p);
  const MomentKind kind = p->spec().moments.value_or(rule.spec.moments);
  const auto [begin, end] = before.equal_range(p->path());
  const auto goes_on = [&](const auto& entry) { return entry.second->feeds(*p, *rule.rule, kind); };
  const auto old = std::find_if(begin, end, goes_on);
  return std::make_unique<Entry>(p, rule.rule.get(), kind, rule.spec, rule.lr_factor,
                                 old != end ? old->second : nullptr);
}

void Optimizer::attach(const std::vector<Parameter*>& parameters) {
  ensure(!armed_ && !partially_updated(), "optimizer", "attach inside a step");
  require(place_ == Place::kAllRanks, "optimizer",
          "ranks share rows anew while masters are on other ranks: call gather_state first");
  std::vector<Parameter*> all;
  for (Parameter* p : parameters) {
    if (!p->trains()) continue;
    all.push_back(p);
    for (const auto& part : p->learned())
      if (!part->spec().frozen) all.push_back(part.get());
  }
  check(all);
  EntriesByPath before;
  for (const auto& s : entries_) before.emplace(s->path, s.get());
  Entries entries;
  std::map<const Parameter*, Entry*> entry_of;
  for (Parameter* p : all) {
    Entry*& entry = entry_of[p];
    if (entry == nullptr) entry = entries.emplace_back(make_entry(p, before)).get();
  }
  entries_ = std::move(entries);
  for (const auto& owner : entries_) {
    if (!owner->parameter->learned().empty()) owner->divisors = detail::learned_divisors(*owner->parameter);
    for (const auto& part : owner->parameter->learned()) {
      const auto found = entry_of.find(part.get());
      if (found == entry_of.end()) continue;
      Entry& s = *found->second;
      s.owner = owner.get();
      s.gradient = Tensor::zeros(part->shape(), dtypes::fp32, MemoryKind::kGrad);
      owner->learned.push_back(s.gradient);
    }
  }
  if (ranks_) set_ranks(ranks_);
}

int64_t Optimizer::macs() const {
  int64_t macs = 0;
  for (const auto& s : entries_)
    if (s->rule->whole_matrix()) macs += matrix_macs(*s);
  return macs;
}

int64_t Optimizer::matrix_macs(const Entry& s) const {
  int64_t macs = 0;
  for (const int64_t rows : detail::stacked_rows(*s.parameter)) macs += s.rule->macs(rows, s.shape.cols());
  return macs;
}

std::vector<Optimizer::StateTensor> Optimizer::state() const {
  std::vector<StateTensor> out;
  for (const auto& s : entries_) s->moments.list(concat(s->parameter->path(), '.', s->rule->family()), out);
  return out;
}

std::map<std::string, int64_t> Optimizer::own_updates() const {
  std::map<std::string, int64_t> own;
  for (const auto& s : entries_)
    if (s->updates != steps_) own[s->path] = s->updates;
  return own;
}

void Optimizer::set_own_updates(const std::map<std::string, int64_t>& own) {
  for (const auto& [path, updates] : own) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&, p = path](const auto& s) { return s->path == p; });
    require(found != entries_.end(), "optimizer", "updates of parameter '", path,
            "', which is not updated by any rule");
    require(updates >= 0 && updates <= steps_, "optimizer", "parameter '", path, "': ", updates, " updates in ", steps_,
            " steps");
    (*found)->updates = updates;
  }
}

void Optimizer::set_factors(const RuleFactors& factors) {
  require(std::isfinite(factors.decay) && factors.decay >= 0, "optimizer",
          "the factor of weight decay must be at least 0, got ", factors.decay);
  require(factors.momentum >= 0 && factors.momentum <= 1, "optimizer", "the factor of momentum must be in [0, 1], got ",
          factors.momentum);
  factors_ = factors;
}

// Gives parameters of a rule with equally many updates a common place.
void Optimizer::place_ages() {
  // The rule, and the steps that the parameters of a place were not updated in.
  std::vector<std::pair<const UpdateRule*, int64_t>> behind;
  for (const auto& s : entries_) {
    const std::pair age(s->rule, steps_ - s->updates);
    const auto found = std::find(behind.begin(), behind.end(), age);
    const auto place = static_cast<int>(found - behind.begin());
    if (found == behind.end()) behind.push_back(age);
    if (place != s->place) ++placements_;
    s->place = place;
  }
  ages_ = std::ssize(behind);
}

// On a device other than the CPU, the error is thrown when errors are polled.
void Optimizer::check_finite(const Entry& s, const Tensor& g) const {
  if (!current_device().is_cpu()) {
    const FlagWord flag;
    if (g.dtype() == dtypes::fp32)
      kernels::check_finite(g.numel(), g.as<float>(), flag.word());
    else
      run_map(maps::FlagNonFiniteBf16{g.as<uint16_t>(), flag.word()}, g.numel());
    return flag.check([this, p = s.parameter] { refuse(*p); });
  }
  if (g.dtype() == dtypes::fp32) {
    if (!kernels::all_finite(g.as<float>(), g.numel())) refuse(*s.parameter);
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

std::string_view Optimizer::what_is_left() const {
  return partially_updated_ ? ". Other rows were updated in the same backward: the model is lost. optim.fused: off "
                              "detects this before any update."
                            : ". Nothing was updated.";
}

void Optimizer::refuse(const Parameter& p) const {
  fail_with(ErrorCode::kNonFinite, "optimizer", "the gradient of '", p.path(), "' (", p.shape(), ' ', p.spec().grad,
            ") holds NaN or Inf at optimizer step ", steps_, what_is_left(),
            " Look for NaN or Inf in the samples first; if they are finite, a smaller learning rate or "
            "optim.clip_norm, may help.");
}

// Before the first update: checks that sums are finite; computes gradients of learned parts and, for the norm, the sum
// of squares of all gradients (in double). A finished fp32 gradient is kept (Entry::finished); others are finished
// again in apply. On a device all of this is queued before the single poll.
void Optimizer::check_gradients(double count, detail::SquareSums& sums) {
  std::vector<OwnSquares> own;
  for (const auto& s : entries_) {
    if (!s->active) continue;
    sums.next();
    if (s->shares)
      own.push_back({s.get(), sums.parameters() - 1, check_own_rows(*s, count)});
    else
      check_all_rows(*s, count, sums);
  }
  if (!own.empty()) gather_squares(own, sums);
}

void Optimizer::check_all_rows(Entry& s, double count, detail::SquareSums& sums) {
  const Parameter& p = *s.parameter;
  const bool squares = spec_.measures_norm() || s.rule->whole_matrix();
  if (s.owner != nullptr) {
    if (squares) sums.add(s.gradient.as<float>(), s.gradient.numel());
  } else if (current_device().is_cpu() && norm_in_one_pass(s)) {
    auto of_chunks = detail::finished_squares(p, spec_, count, 0, p.shape().rows());
    if (!of_chunks) refuse(p);
    sums.add(kernels::join_chunks(std::move(*of_chunks)));
  } else {
    check_finite(s, p.grad());
    if (finishes_early(s)) finish_early(s, count, squares ? &sums : nullptr);
  }
}

// Computes the norm block by block, without storing a finished gradient.
bool Optimizer::norm_in_one_pass(const Entry& s) const {
  const Parameter& p = *s.parameter;
  return spec_.measures_norm() && s.learned.empty() && !s.rule->whole_matrix() && p.spec().grad == dtypes::fp32 &&
         detail::squares_by_blocks(p);
}
// Before the first update, for the norm, for learned parts or for a rule of whole matrices.
bool Optimizer::finishes_early(const Entry& s) const {
  if (current_device().is_cpu() && norm_in_one_pass(s)) return false;
  return spec_.measures_norm() || !s.learned.empty() || s.rule->whole_matrix();
}

void Optimizer::finish_early(Entry& s, double count, detail::SquareSums* sums) {
  const Parameter& p = *s.parameter;
  for (const Tensor& t : s.learned)
    device_backend(t.device()).fill_zero(t.data(), t.numel() * static_cast<int64_t>(sizeof(float)));
  const int64_t rows = p.shape().rows(), block = detail::rows_at_a_time(p);
  for (int64_t begin = 0; begin < rows; begin += block) {
    const int64_t end = std::min(begin + block, rows);
    const Tensor x = p.has_master() ? detail::number_rows(p, begin, end) : Tensor();
    const Tensor g = detail::gradient_rows(p, begin, end);
    detail::finish_rows(p, spec_, count, begin, g, x, s.learned);
    if (sums != nullptr && !s.finished) sums->add(g.as<float>(), g.numel());
  }
  if (sums != nullptr && s.finished) sums->add(p.grad().as<float>(), p.grad().numel());
  // Checked before the value clip, which would hide an overflow.
  for (size_t i = 0; i < s.learned.size(); ++i) {
    const FlagWord flag;
    kernels::check_finite(s.learned[i].numel(), s.learned[i].as<float>(), flag.word());
    flag.check([this, part = p.learned()[i].get()] { refuse(*part); });
  }
  if (!s.learned.empty()) detail::finish_learned(spec_, s.learned, s.divisors);
}

float Optimizer::norm_factor(double sum_of_squares) {
  last_norm_ = static_cast<float>(std::sqrt(sum_of_squares));
  if (!std::isfinite(last_norm_))
    fail_with(ErrorCode::kNonFinite, "optimizer", "the global norm of the gradients overflows fp32 at optimizer step ",
              steps_, ". Nothing was updated. A smaller learning rate may help.");
  return spec_.clip_norm > 0 && last_norm_ > spec_.clip_norm ? spec_.clip_norm / last_norm_ : 1.0f;
}

// Rules of whole matrices divide by norms.
void Optimizer::check_squares(const detail::SquareSums& sums) const {
  size_t i = 0;
  for (const auto& s : entries_) {
    if (!s->active) continue;
    if (s->rule->whole_matrix() && !std::isfinite(static_cast<float>(sums.of_parameter(i))))
      fail_with(ErrorCode::kNonFinite, "optimizer", "the sum of squares of the gradient of '", s->path, "' (", s->shape,
                ") overflows fp32 at optimizer step ", steps_, what_is_left(), " A smaller learning rate may help.");
    ++i;
  }
}

void Optimizer::check_step(float lr, double count) const {
  require(!partially_updated(), "optimizer", "an earlier Error left the parameters between two steps");
  require(count > 0, "optimizer", "a step needs at least one sample, got ", count);
  require(std::isfinite(lr) && lr >= 0, "optimizer", "the learning rate must be finite and at least 0, got ", lr);
}

void Optimizer::step(float lr, double count, const RequantKey* due) {
  if (armed_)
    require(lr == armed_->lr && count == armed_->count && (due != nullptr) == armed_->due.has_value() &&
                (due == nullptr || *due == *armed_->due),
            "optimizer", "step differs from the arm that began it: got lr ", lr, ", ", count, " samples, expected ",
            armed_->lr, ", ", armed_->count, due ? ", and the same requantization" : "");
  const auto sums = std::make_shared<detail::SquareSums>();
  begin_step(lr, count);
  check_gradients(count, *sums);
  poll_errors();
  begin_update(lr, count, *sums);
  apply(due);
  requantize(due);
  end_step();
}

void Optimizer::begin_step(float lr, double count) {
  if (!armed_) check_step(lr, count);
  for (const auto& s : entries_) {
    const Parameter& p = *s->parameter;
    s->active = (s->owner != nullptr ? s->owner : s.get())->parameter->grad_sink().filled();
    require(!(s->active && s->moved), "optimizer", "parameter '", p.path(),
            "' was updated in backward, and then got another gradient");
    s->finished = s->active && s->owner == nullptr && finishes_early(*s) && p.spec().grad == dtypes::fp32;
  }
}

void Optimizer::begin_update(float lr, double count, const detail::SquareSums& sums) {
  now_ = Now{lr, count, spec_.measures_norm() ? norm_factor(sums.total()) : 1.0f};
  check_squares(sums);
  place_ages();
  partially_updated_ = true;
}

void Optimizer::write_scalars(StepScalars& live) const {
  live.lr = now_.lr;
  live.factor = now_.factor;
  live.decay = factors_.decay;
  live.momentum = factors_.momentum;
  for (const auto& s : entries_)
    if (s->place < StepScalars::kAges) {
      const UpdateAge age = s->rule->age_of(s->updates);
      if (age.c1 != 1 || age.c2 != 1) live.age[s->place] = {age.c1, age.c2};
    }
}

std::string Optimizer::not_recorded() const {
  for (const auto& [name, rule] : rules_)
    if (!rule.rule->live())
      return concat("update rule '", rule.spec.name, "' does not read its step scalars from the device");
  if (ages_ > StepScalars::kAges) return concat("parameters have ", ages_, " different counts of updates");
  return "";
}

// On a device, non-finite new values are detected later.
void Optimizer::apply(const RequantKey* due) {
  const ErrorContext scope([lost = lost_](const std::exception&) { *lost = true; });
  for (const auto& s : entries_) {
    if (!s->active || s->shares) continue;
    detail::RowStep::Now now{now_.lr, now_.count, steps_, now_.factor, factors_, due, s->rule->age_of(s->updates)};
    now.age.place = s->place;
    s->row_step.run(now, s->owner != nullptr ? s->gradient : s->parameter->grad(), s->owner != nullptr || s->finished);
  }
  if (ranks_) apply_shared(due);
}

void Optimizer::requantize(const RequantKey* due) {
  if (due == nullptr) return;
  const ErrorContext scope([lost = lost_](const std::exception&) { *lost = true; });
  for (const auto& s : entries_) {
    const bool made = (s->active || s->moved) && (s->shares || s->row_step.makes_codes(due));
    if (!s->parameter->low_bit() || made) continue;
    if (s->shares)
      requantize_shared(*s, *due);
    else
      s->parameter->requantize(due->seed, due->step);
  }
}

void Optimizer::end_step() {
  for (const auto& s : entries_)
    if (s->active) s->parameter->grad_sink().clear();
  updates_.clear();
  for (const auto& s : entries_) {
    if (s->active || s->moved) ++s->updates;
    if (s->owner == nullptr) updates_.push_back({s->parameter->path(), why_not(*s)});
    unfuse(*s);
  }
  armed_.reset();
  partially_updated_ = false;
  ++steps_;
}

}  // namespace bitgrad
