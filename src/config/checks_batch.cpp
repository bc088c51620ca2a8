#include "bitgrad/base/text.h"
#include "config/checks.h"

namespace bitgrad::config {
namespace {

class BatchChecks : public Checks {
 public:
  using Checks::Checks;

  void run() {
    batch();
    requantize();
    masters();
  }

 private:
  // "300 or 400": the multiples of `unit` nearest to x.
  static std::string neighbours(int64_t x, int64_t unit) {
    const int64_t below = x / unit * unit, above = below + unit;
    return below > 0 ? concat(below, " or ", above) : concat(above);
  }
  void batch() {
    if (!sound_path("batch.global") || !sound_path("batch.micro") || batch_is_good()) return;
    const int64_t global = config_.batch.global, micro = config_.batch.micro;
    contradiction({"batch.global", "batch.micro"},
                  concat("batch.global (", global, ") is not a multiple of batch.micro (", micro,
                         "); nearest: ", neighbours(global, micro)));
  }
  void requantize() {
    if (!batch_is_good() || !sound_path("quant.requantize_every")) return;
    const int64_t a = config_.batch.accumulate(), n = config_.quant.requantize_every;
    if (n % a != 0)
      contradiction({"quant.requantize_every", "batch.global"},
                    concat("quant.requantize_every (", n, ") is not a multiple of A = batch.global / batch.micro = ", a,
                           "; nearest: ", neighbours(n, a)));
  }
  void masters() {
    if (!batch_is_good() || !sound_path("quant.requantize_every")) return;
    const int64_t a = config_.batch.accumulate(), n = config_.quant.requantize_every;
    bool reported = n == a || n % a != 0;
    const auto check = [&](const ParameterSpec& weights, const std::string& path) {
      if (reported || weights.master != MasterKind::kNone) return;
      contradiction({"quant.requantize_every", path + ".master", "quant.weights.master"},
                    concat("quant.requantize_every (", n, ") must be A = batch.global / batch.micro = ", a, ": ", path,
                           " has master none, whose codes change in each optimizer step"));
      reported = true;
    };
    each_weights(check);
    if (!sound_path("quant.rules") || !sound_path("quant.phases")) return;
    each_rule(config_.quant.prepare, "quant", check);
    for (size_t i = 0; i < config_.quant.phases.size(); ++i)
      if (const auto& prepare = config_.quant.phases[i].prepare) each_rule(*prepare, concat("quant.phases.", i), check);
  }
  // Calls use(weights, path) for each rule that sets weights.
  template <typename Use>
  static void each_rule(const PrepareConfig& prepare, const std::string& path, Use use) {
    for (size_t i = 0; i < prepare.rules.size(); ++i)
      if (const auto& weights = prepare.rules[i].quant.weights) use(*weights, concat(path, ".rules.", i, ".weights"));
  }
};

}  // namespace

void check_batch(const Node& root, const RunConfig& config, Report& report) { BatchChecks(root, config, report).run(); }

}  // namespace bitgrad::config
