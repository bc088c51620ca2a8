#include <algorithm>

#include "bitgrad/base/text.h"
#include "bitgrad/optim/update_rule.h"
#include "config/checks.h"

namespace bitgrad::config {
namespace {

class OptimChecks : public Checks {
 public:
  using Checks::Checks;

  void run() {
    schedule();
    momentum();
    moments();
    rules_of_weights();
    bop();
  }

 private:
  static bool at_least(const Quantity& a, const Quantity& b) { return a.unit == b.unit && a.value >= b.value; }
  static bool changes(const ScheduleConfig& c) { return c.name != "constant" || c.warmup.value > 0; }
  void schedule() {
    schedule_at("schedule", config_.schedule);
    schedule_at("optim.decay_schedule", config_.optim.decay_schedule);
    schedule_at("optim.momentum_schedule", config_.optim.momentum_schedule);
    if (!sound_path("schedule") || !sound_path("optim")) return;
    if (config_.schedule.name == "plateau" && sound_path("data.test") && sound_path("data.valid") && !evaluates())
      contradiction({"schedule.name"},
                    "schedule plateau needs data.test or data.valid, neither of which is set: it looks at their "
                    "evaluations");
    const ScheduleConfig &decay = config_.optim.decay_schedule, &momentum = config_.optim.momentum_schedule;
    for (const auto& [path, c] : {std::pair("optim.decay_schedule", &decay), {"optim.momentum_schedule", &momentum}})
      if (c->name == "plateau")
        contradiction({concat(path, ".name")},
                      concat(path, ": plateau follows evaluations, and only schedule does. Use another one"));
    const OptimizerSpec& optim = config_.optim.spec;
    const std::vector<OptimizerSpec>& aux = optim.aux;
    const auto any_aux = [&](auto has) { return std::any_of(aux.begin(), aux.end(), has); };
    if (changes(momentum) && optim.momentum.value_or(1) == 0 && sound_path("optim.momentum") &&
        !any_aux([](const OptimizerSpec& s) { return s.momentum.value_or(0) > 0; }))
      contradiction({"optim.momentum_schedule"}, "optim.momentum_schedule has no effect: optim.momentum is 0");
    const bool grows = std::any_of(momentum.factors.begin(), momentum.factors.end(), [](double f) { return f > 1; });
    if (grows)
      contradiction({"optim.momentum_schedule.factors"},
                    "optim.momentum_schedule.factors: got a factor above 1, expected numbers in [0, 1]: optim.momentum "
                    "is the largest");
    bool decays = optim.weight_decay > 0 || any_aux([](const OptimizerSpec& s) { return s.weight_decay > 0; });
    each_weights(
        [&](const ParameterSpec& weights, const std::string&) { decays |= weights.weight_decay.value_or(0) > 0; });
    if (changes(decay) && !decays && sound_path("model.layers") && sound_path("quant.weights"))
      contradiction({"optim.decay_schedule"},
                    "optim.decay_schedule has no effect: optim.weight_decay is 0, and no weights have their own");
  }
  void schedule_at(const std::string& path, const ScheduleConfig& c) {
    if (!sound_path(path)) return;
    if (c.warmup_from > 0 && c.warmup.value == 0)
      contradiction({path + ".warmup_from"}, concat(path, ".warmup_from has no effect without ", path, ".warmup"));
    if (c.name == "one_cycle" && c.warmup.value > 0)
      contradiction({path + ".warmup"}, concat(path, ".warmup: got ", c.warmup, ", one_cycle rises by itself (rise)"));
    const bool multistep = c.name == "multistep";  // elsewhere `at` and `factors` are reported as keys of another name
    if (multistep && find(path + ".factor") && find(path + ".factors"))
      contradiction({path + ".factors"}, concat(path, ": got factor and factors, expected one of them"));
    if (multistep && sound_path(path + ".at") && !c.factors.empty() && c.factors.size() != c.at.size())
      contradiction({path + ".factors"}, concat(path, ".factors: got ", c.factors.size(),
                                                " numbers, expected one for each of the ", c.at.size(), " in at"));
    if (!sound_path("train.stop") || !find("train.stop")) return;
    const Quantity& stop = config_.train.stop;
    if (c.warmup.value > 0 && at_least(c.warmup, stop))
      contradiction(
          {path + ".warmup", "train.stop"},
          concat(path, ".warmup (", c.warmup, ") is not shorter than train.stop (", stop, "): a shorter run needs ",
                 path, ".warmup of less, such as ", path, ".warmup=", Quantity{stop.value / 10, stop.unit}));
    if (c.name == "wsd" && c.cooldown.unit == stop.unit && c.cooldown.value > stop.value)
      contradiction({path + ".cooldown", "train.stop"},
                    concat(path, ".cooldown (", c.cooldown, ") is longer than train.stop (", stop, ')'));
  }
  void momentum() {
    const auto check = [&](const OptimizerSpec& rule, const std::string& path) {
      if (rule.nesterov.value_or(false) && rule.momentum.value_or(1) == 0 && sound_path(path + ".momentum"))
        contradiction({path + ".nesterov", path + ".momentum"},
                      concat(path, ".nesterov needs ", path, ".momentum above 0"));
    };
    const OptimizerSpec& optim = config_.optim.spec;
    check(optim, "optim");
    if (!optim.aux.empty()) check(optim.aux[0], "optim.aux");
  }
  // Whether the rule keeps moments of the elements of a parameter with so many axes. True where the rule is wrong,
  // which is reported elsewhere.
  static bool keeps_moments(const OptimizerSpec& rule, int axes) {
    try {
      const std::vector<UpdateRule::Moment> moments = make_rule(rule)->moments(axes == 1 ? Shape{2} : Shape{2, 2});
      return std::any_of(moments.begin(), moments.end(),
                         [](const UpdateRule::Moment& m) { return m.extent == UpdateRule::Extent::kElements; });
    } catch (const Error&) {
      return true;
    }
  }
  static std::string without_moments(const OptimizerSpec& rule) {
    const bool momentum = rule.momentum && *rule.momentum == 0;
    return concat(rule.name, momentum ? " without momentum" : "", " keeps no moments");
  }
  void moments() {
    const OptimizerSpec& optim = config_.optim.spec;
    if (!sound_path("optim.name") || !sound_path("optim.momentum")) return;
    if (!optim.aux.empty() && !keeps_moments(optim.aux[0], 1) && find("optim.aux.moments"))
      contradiction({"optim.aux.moments"}, concat("optim.aux.moments: optim.aux.name ", without_moments(optim.aux[0])));
    const bool of_vectors = keeps_moments(optim, 1);
    if (of_vectors && keeps_moments(optim, 2)) return;
    bool flips = false;  // Bop keeps a moment of its own
    each_weights([&](const ParameterSpec& weights, const std::string&) { flips |= weights.optimizer == "bop"; });
    if (!of_vectors && optim.moments != MomentKind::kFp32 && !flips && sound_path("optim.moments"))
      return contradiction({"optim.moments"}, concat("optim.moments: optim.name ", without_moments(optim), ", got ",
                                                     enum_name(optim.moments)));
    bool reported = false;
    each_weights([&](const ParameterSpec& weights, const std::string& path) {
      if (reported || weights.moments.value_or(MomentKind::kFp32) == MomentKind::kFp32 || !weights.optimizer.empty())
        return;
      const std::string of_weights = concat(optim.name, " keeps means of rows and columns of a weight, in fp32");
      contradiction({path + ".moments", "quant.weights.moments"},
                    concat(path, ".moments: optim.name ", of_vectors ? of_weights : without_moments(optim), ", got ",
                           enum_name(*weights.moments)));
      reported = true;
    });
  }
  void rules_of_weights() {
    const OptimizerSpec& optim = config_.optim.spec;
    if (!sound_path("optim.name") || optim.name.empty()) return;
    if (optim.ns == NsDType::kBf16 && config_.run.bits == "strict" && sound_path("optim.ns"))
      contradiction({"optim.ns", "run.bits"},
                    "optim.ns bf16: its products have no order that all machines share, which run.bits strict needs");
    if (!optim.ns_triples.empty() && optim.ns_coefficients != NsCoefficients::kJordan)
      contradiction({"optim.ns_triples"},
                    "optim.ns_triples: got numbers beside optim.ns_coefficients, expected one of them");
    if (std::ssize(optim.ns_triples) > 3 * optim.ns_steps)
      contradiction({"optim.ns_triples", "optim.ns_steps"},
                    concat("optim.ns_triples: got ", optim.ns_triples.size() / 3, " triples for ", optim.ns_steps,
                           " iterations (optim.ns_steps)"));
    if (optim.ns_triples.size() % 3 != 0)
      contradiction({"optim.ns_triples"}, concat("optim.ns_triples: got ", optim.ns_triples.size(),
                                                 " numbers, expected a, b and c of each iteration"));
    const bool hidden_only = choices::updates_hidden_only(optim.name);
    bool reported = false;
    each_weights([&](const ParameterSpec& weights, const std::string& path) {
      const bool aux = weights.optimizer == "aux", idle = weights.matrices > 0 && (aux || weights.frozen);
      if (reported || (hidden_only ? !idle : !aux && weights.matrices == 0)) return;
      const char* const key = weights.matrices == 0 ? "optimizer" : "matrices";
      const std::string why = hidden_only ? std::string("of weights that ") + (aux ? "aux updates" : "are frozen")
                                          : concat("with optim.name ", optim.name,
                                                   ", which updates every parameter by itself. Use muon or normuon");
      contradiction({concat(path, '.', key), concat("quant.weights.", key)},
                    concat(path, '.', key, ": has no effect ", why));
      reported = true;
    });
  }
  void bop() {
    for (const char* path : {"optim.bop", "model.layers", "quant.weights.optimizer"})
      if (!sound_path(path)) return;
    if (config_.optim.spec.bop == BopSpec{}) return;
    bool used = config_.quant.weights.optimizer == "bop";
    each_weights([&](const ParameterSpec& weights, const std::string&) { used = used || weights.optimizer == "bop"; });
    if (!used) contradiction({"optim.bop"}, "optim.bop requires weights with optimizer bop, there are none");
  }
};

}  // namespace

void check_optim(const Node& root, const RunConfig& config, Report& report) { OptimChecks(root, config, report).run(); }

}  // namespace bitgrad::config
