// How weights train: master, moments, update rule, rates. docs/numerics.md section 6.
#include <algorithm>

#include "config/choices.h"
#include "config/merge.h"
#include "config/specs.h"

namespace bitgrad::config {
namespace {

// The optimizer's objection to a small parameter of this kind; empty if there is none.
std::string refusal(const ParameterSpec& c, const std::string& path) {
  try {
    ParameterSpec own = c;
    own.matrices = 0;
    if (own.optimizer == "aux") own.optimizer.clear();
    Parameter parameter({2, 2}, own);
    parameter.initialize(path, 0);
    OptimizerSpec spec;
    spec.name = "sgd";
    Optimizer(spec).attach({&parameter});
    return {};
  } catch (const Error& error) {
    const std::string text = library_text(error.what()), head = concat("parameter '", path, "': ");
    const size_t at = text.find(head);
    return at == std::string::npos ? text : text.substr(at + head.size());
  }
}

void check_frozen(const Merged& keys, ParameterSpec& c) {
  if (!c.frozen) return;
  if (!(c.learned == LearnedSpec{}))
    keys.contradiction({"learned"}, "frozen weights never change, nor do learned parts of their scheme");
  c.learned = {};  // drop those of quant
  if (c.optimizer.empty()) return;
  keys.contradiction({"frozen", "optimizer"},
                     concat("frozen weights never change, optimizer ", c.optimizer, " has nothing to do"));
  c.optimizer.clear();
}

void check_master(const Merged& keys, ParameterSpec& c) {
  const std::vector<std::string_view> blamed{"optimizer", "master", "granularity",  "alpha",       "ste",
                                             "scheme",    "dtype",  "latent_clamp", "weight_decay"};
  if (c.master == MasterKind::kFp32 && c.optimizer.empty()) return;
  if (!std::all_of(blamed.begin(), blamed.end(), [&](std::string_view key) { return keys.known(key); })) return;
  std::string wrong = refusal(c, keys.path());
  if (!wrong.empty() && !c.optimizer.empty() && !keys.own("optimizer")) {
    c.optimizer.clear();  // that of quant does not fit
    wrong = refusal(c, keys.path());
  }
  if (wrong.empty()) return;
  keys.contradiction(blamed, wrong);
  c.optimizer.clear();
  c.master = MasterKind::kFp32;
}

}  // namespace

void resolve_training(const Merged& keys, ParameterSpec& c) {
  c.init.name = "glorot_uniform";
  visit(
      [&](std::string_view key, auto& field) {
        if (c.quant || choices::for_float(key)) keys.set(field, key);
      },
      c);
  if (c.optimizer == "default") c.optimizer.clear();
  check_frozen(keys, c);
  check_master(keys, c);
}

}  // namespace bitgrad::config
