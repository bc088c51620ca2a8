// The list of update rules, and checks of a spec that apply to all of them.
#include <cmath>
#include <map>
#include <mutex>

#include "bitgrad/base/text.h"
#include "bitgrad/optim/optimizer.h"
#include "kernels/elementwise.h"

namespace bitgrad {

#define BITGRAD_OPTIMIZER(name, factory, keys, ...) std::unique_ptr<UpdateRule> factory(const OptimizerSpec& spec);
#include "optim/optimizers.inc"
#undef BITGRAD_OPTIMIZER

namespace {

struct RuleDefaults {
  float momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999;
};

struct Entry {
  RuleFactory factory = {};
  RuleDefaults defaults = {};
};

class Registry {
 public:
  Entry find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = list_.find(name);
    return found == list_.end() ? Entry() : found->second;
  }
  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, entry] : list_) names.push_back(name);
    return names;
  }
  bool add(const std::string& name, RuleFactory factory) {
    const std::lock_guard lock(mutex_);
    return list_.emplace(name, Entry{std::move(factory)}).second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Entry> list_{
#define BITGRAD_OPTIMIZER(name, factory, keys, ...) {name, {factory, RuleDefaults{__VA_ARGS__}}},
#include "optim/optimizers.inc"
#undef BITGRAD_OPTIMIZER
  };
};

Registry& registry() {
  static Registry instance;
  return instance;
}

void check_values(const OptimizerSpec& spec) {
  for (const auto& [what, given] : {std::pair{"beta1", spec.beta1}, {"beta2", spec.beta2}})
    require(!given || (*given >= 0 && *given < 1), "optimizer", what, " must be in [0, 1), got ", given.value_or(0));
  const float momentum = spec.momentum.value_or(0);
  require(momentum >= 0 && momentum < 1, "optimizer", "momentum must be in [0, 1), got ", momentum);
  require(!spec.nesterov.value_or(false) || momentum > 0, "optimizer", "nesterov needs a momentum above 0");
  for (const auto& [what, value] : {std::pair{"eps", spec.eps},
                                    {"weight_decay", spec.weight_decay},
                                    {"bop.threshold", spec.bop.threshold},
                                    {"clip_value", spec.clip_value},
                                    {"clip_norm", spec.clip_norm}})
    require(value >= 0 && std::isfinite(value), "optimizer", what, " must be at least 0, got ", value);
  require(spec.eps > 0, "optimizer", "eps must be above 0, got ", spec.eps,
          ": an element whose gradients were all 0 would become NaN");
  require(spec.bop.gamma > 0 && spec.bop.gamma <= 1, "optimizer", "bop.gamma must be in (0, 1], got ", spec.bop.gamma);
  require(spec.base_lr >= 0 && std::isfinite(spec.base_lr), "optimizer", "base_lr must be at least 0, got ",
          spec.base_lr);
}

}  // namespace

std::optional<kernels::RowUpdate> UpdateRule::row_update(const UpdatePiece&) const { return std::nullopt; }

std::vector<std::string> optimizer_names() { return registry().names(); }

std::span<const OptimizerKeys> optimizer_keys() {
  static constexpr OptimizerKeys kKeys[] = {
#define BITGRAD_OPTIMIZER(name, factory, keys, ...) {name, keys},
#include "optim/optimizers.inc"
#undef BITGRAD_OPTIMIZER
  };
  return kKeys;
}

void fill_defaults(OptimizerSpec& spec) {
  const Entry entry = registry().find(spec.name);
  if (!entry.factory) return;
  const RuleDefaults& defaults = entry.defaults;
  spec.momentum = spec.momentum.value_or(defaults.momentum);
  // A rule without momentum cannot look ahead.
  spec.nesterov = spec.nesterov.value_or(defaults.nesterov && spec.momentum > 0);
  spec.beta1 = spec.beta1.value_or(defaults.beta1);
  spec.beta2 = spec.beta2.value_or(defaults.beta2);
}

std::unique_ptr<UpdateRule> make_rule(const OptimizerSpec& given) {
  const RuleFactory factory = registry().find(given.name).factory;
  if (!factory) fail("optimizer", unknown_name("optimizer", given.name, optimizer_names()));
  OptimizerSpec spec = given;
  fill_defaults(spec);
  check_values(spec);
  auto rule = factory(spec);
  ensure(rule != nullptr, "optimizer", "the factory of '", spec.name, "' returned no rule");
  return rule;
}

void register_optimizer(const std::string& name, RuleFactory factory) {
  require(!name.empty(), "register_optimizer", "the name is empty");
  require(registry().add(name, std::move(factory)), "register_optimizer", "an optimizer '", name, "' exists already");
}

}  // namespace bitgrad
