#include "run/model_warnings.h"

#include <algorithm>

#include "bitgrad/base/log.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/run/trainer.h"

#include "bitgrad/nn/layers.h"
#include "config/lengths.h"
#include "nn/activation_quantizer.h"
#include "quant/learned.h"

namespace bitgrad::detail {
namespace {

constexpr std::string_view kHelp =
    "Put a norm or hardtanh before it, center the data (for pixels data.affine: [2, -1]), or use unsigned codes "
    "(activations: {dtype: uint2, scheme: lsq})";

constexpr const char* kNoObserver = "no observer";

bool takes_signs(const ActivationQuantizer& q) {
  return q.quant().spec.dtype.kind() == DTypeKind::kSign && q.quant().spec.scheme == "binary" &&
         q.quant_mode().quantization != QuantSwitch::kOff;
}

// Follows whether values are known to be never negative, through the layers in order.
class Signs {
 public:
  std::vector<std::string> warnings;

  // Returns whether the outputs are never negative.
  bool follow(Module& module, bool inputs) {
    if (auto* sequence = dynamic_cast<Sequential*>(&module)) {
      for (Module* child : sequence->children()) inputs = follow(*child, inputs);
      return inputs;
    }
    if (const auto* q = dynamic_cast<const ActivationQuantizer*>(&module)) return quantized(*q, q->path(), inputs);
    const std::string_view kind = module.kind();
    if (is_one_of(kind, {"relu", "relu2", "sigmoid"})) return true;
    if (is_one_of(kind, {"dropout", "max_pool", "avg_pool", "flatten", "unsqueeze", "dequantize"})) return inputs;
    const LayerKind* const known = find_layer_kind(std::string(kind));
    if (known != nullptr && known->product) {
      for (Quantizable* slot : module.quantizables())
        if (const ActivationQuantizer* q = slot->input_quantizer()) quantized(*q, module.path(), inputs);
      return false;
    }
    if (is_one_of(kind, {"residual", "branches"})) return joined(module, inputs);
    for (Module* child : module.children()) follow(*child, false);
    return false;
  }

 private:
  static bool is_one_of(std::string_view kind, std::initializer_list<std::string_view> kinds) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  }
  // Sums, products and rows side by side of values that are never negative are none either.
  bool joined(Module& module, bool inputs) {
    const std::vector<Module*> parts = module.children();
    bool all = inputs || parts.size() > 1;  // a residual without a shortcut adds its input
    for (Module* part : parts) all = follow(*part, inputs) && all;
    return all;
  }
  bool quantized(const ActivationQuantizer& q, const std::string& path, bool inputs) {
    if (!takes_signs(q)) return inputs;
    if (inputs)
      warnings.push_back(concat("the input of ", path,
                                " is never negative, so its signs are all +1 and its outputs do ",
                                "not depend on the input. ", kHelp));
    return false;
  }
};

// What an input lacks, so that its scales are those of each batch; empty: nothing. While a model trains, a range or a
// step may come with the next batch.
std::string what_lacks(const ActivationQuantizer& q, bool trains) {
  if (q.scales_of_batch()) return kNoObserver;
  if (q.quant_mode().quantization == QuantSwitch::kOff) return "";
  const bool waits = trains && q.quant_mode().quantization != QuantSwitch::kFrozen;
  const bool observes = waits && q.quant_mode().observers && !q.frozen();
  if (q.observer() != nullptr && !q.observer()->ready() && !observes) return "no observed range";
  for (Parameter* p : q.learned())
    if (!waits && p->path().ends_with(".step") && p->value().on_host().as<float>()[0] == 0) return "no first step";
  return "";
}

void walk(Module& module, const std::function<void(const ActivationQuantizer&)>& use) {
  if (const auto* q = dynamic_cast<const ActivationQuantizer*>(&module)) use(*q);
  for (Module* child : module.children()) walk(*child, use);
}

void warn_of_batch(const RunConfig& config, int64_t samples, std::vector<std::string>& warnings) {
  const BatchSection& batch = config.batch;
  if (batch.global <= samples) return;
  const int64_t per_epoch = epoch_batches(config, samples).count;
  const double epochs = static_cast<double>(batch.accumulate()) / static_cast<double>(per_epoch);
  warnings.push_back(concat("batch.global (", batch.global, ") is larger than data.train (", samples,
                            batch.accumulate() == 1
                                ? " samples): each optimizer step uses all of them, an epoch is one step"
                                : concat(" samples): each optimizer step uses ", epochs, " epochs"),
                            ". Set batch.global to at most ", samples));
}

// A short run of a long schedule is right, so a named time that never comes is no error. A period (every) names none.
void warn_of_late(const std::string& path, const ScheduleConfig& c, const RunConfig& config, int64_t samples,
                  std::vector<std::string>& warnings) {
  const auto length = [&](const Quantity& q) {
    const bool steps = q.unit == Quantity::Unit::kSteps;
    return microbatches_of(q.value, steps ? config.batch.accumulate() : epoch_batches(config, samples).count);
  };
  const int64_t end = length(config.train.stop);
  const auto late = [&](const char* key, const Quantity& q) {
    if (length(q) >= end)
      warnings.push_back(concat(path, '.', key, ": ", q, " is not before train.stop (", config.train.stop,
                                "): this run ends without that change of the rate"));
  };
  if (c.name == "multistep")
    for (const Quantity& q : c.at) late("at", q);
}

// Named features alone: pixels at the border of pictures are constant by nature.
void warn_of_constants(const Dataset& train, std::vector<std::string>& warnings) {
  constexpr size_t kShown = 8;
  const std::vector<std::string> names = train.feature_names();
  const StoredSamples stored = train.stored();
  const int64_t samples = train.size(), features = std::ssize(names);
  if (stored.codes == nullptr || stored.form != StoredAs::kFloat || features != train.features() || samples < 2) return;
  const auto* const x = static_cast<const float*>(stored.codes);
  std::vector<std::string> constant;
  for (int64_t j = 0; j < features; ++j) {
    int64_t i = 1;
    while (i < samples && x[i * stored.stride + j] == x[j]) ++i;
    if (i == samples) constant.push_back(names[static_cast<size_t>(j)]);
  }
  if (constant.empty()) return;
  std::string shown;
  for (size_t i = 0; i < std::min(constant.size(), kShown); ++i)
    shown += concat(i == 0 ? "" : ", ", printable(constant[i]));
  warnings.push_back(concat(constant.size(), " of ", features, " features have one value in all ", samples,
                            " samples of data.train, so nothing can be learned from them: ", shown,
                            constant.size() > kShown ? " ..." : "", ". data.train.ignore leaves columns out"));
}

}  // namespace

bool never_negative(const RunConfig& config, const Dataset& train) {
  const DataSection& data = config.data;
  if (!data.train.transforms.empty()) return false;
  const auto [a, b] = data.affine;
  if (format_of(data.train).pixels) return data.normalize.mean.empty() && b >= 0 && a + b >= 0;
  const StoredSamples stored = train.stored();
  if (stored.codes == nullptr || stored.form != StoredAs::kUint8 || stored.numbers == nullptr) return false;
  return std::all_of(stored.numbers, stored.numbers + stored.tables * 256, [](float x) { return x >= 0; });
}

std::vector<std::string> batch_warnings(Module& model, bool trains) {
  std::vector<std::string> warnings;
  walk(model, [&](const ActivationQuantizer& q) {
    const std::string lacks = what_lacks(q, trains);
    if (lacks.empty()) return;
    const QuantSpec& spec = q.quant().spec;
    warnings.push_back(concat(q.path(), ": its scales (", spec.dtype, ", ", spec.scheme, ", granularity ",
                              spec.granularity, ", ", lacks,
                              ") come from the whole batch: the result of a sample depends on the others. ",
                              lacks == kNoObserver ? "Use an observer, granularity: token, or a learned step (lsq)"
                                                   : "Let a phase with quantization and observers on come first"));
  });
  return warnings;
}

std::vector<std::string> sign_warnings(Module& model, bool inputs) {
  Signs signs;
  signs.follow(model, inputs);
  return std::move(signs.warnings);
}

std::vector<std::string> form_warnings(Module& model, bool inputs) {
  std::vector<std::string> warnings = batch_warnings(model, /*trains=*/true);
  for (std::string& warning : sign_warnings(model, inputs)) warnings.push_back(std::move(warning));
  return warnings;
}

void FormWarnings::tell(Module& model, bool inputs) {
  for (const std::string& warning : form_warnings(model, inputs))
    if (told_.insert(warning).second) log(LogLevel::kWarning, warning);
}

void log_all(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) log(LogLevel::kWarning, warning);
}

void CodeWarnings::leave_out_fixed(Module& model) {
  const std::map<std::string, QuantPlace> places = quant_places(model);
  for (const Parameter* p : model.parameters())
    if (const auto at = places.find(p->path()); at != places.end() && !p->trains()) fixed_.insert(at->second.layer);
}

void CodeWarnings::watch(const QuantEvent& e) {
  const QuantStatistics& s = e.statistics;
  const bool weight = e.part == "weight";
  const std::string what = weight ? concat("the weights of ", e.layer) : concat("the input of ", e.layer);
  const bool same = s.entropy == 0 && s.elements > 1 && s.entropy_limit > 0 && !(weight && fixed_.contains(e.layer));
  const auto once = [&](const char* of) { return told_.insert(concat(of, ' ', e.part, ' ', e.layer)).second; };
  if (same && once("codes"))
    log(LogLevel::kWarning, concat(what, ": all ", s.elements, " values have one code (", e.dtype, ", ", e.scheme,
                                   ") after step ", e.step, ", so they carry no information",
                                   weight ? std::string(". See the scale in bitgrad inspect") : concat(". ", kHelp)));
  const std::vector<LearnedPart> learned = find_quantizer(e.scheme).learned({});
  if (!learned.empty() && s.scale && s.scale->least <= static_cast<double>(kLearnedFloor) && once("floor"))
    log(LogLevel::kWarning, concat(what, ": a learned step is at its floor, 2^-20, after step ", e.step));
}

std::vector<std::string> run_warnings(const RunConfig& config, const Dataset& train) {
  std::vector<std::string> warnings = config.origin.warnings;
  warn_of_batch(config, train.epoch_order().samples, warnings);
  for (const auto& [path, schedule] : {std::pair{"schedule", &config.schedule},
                                       {"optim.decay_schedule", &config.optim.decay_schedule},
                                       {"optim.momentum_schedule", &config.optim.momentum_schedule}})
    warn_of_late(path, *schedule, config, train.epoch_order().samples, warnings);
  for (const std::string& note : train.notes()) warnings.push_back(note);
  warn_of_constants(train, warnings);
  const int cores = available_cores();
  if (config.device.threads && *config.device.threads > cores)
    warnings.push_back(concat("device.threads (", *config.device.threads, ") is more than the ", cores,
                              cores == 1 ? " core" : " cores",
                              " of this process: threads wait for each other. Use auto, or at most ", cores));
  return warnings;
}

void log_warnings(const RunConfig& config, const Dataset& train) { log_all(run_warnings(config, train)); }

}  // namespace bitgrad::detail
