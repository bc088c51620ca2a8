// Sensitivity of each layer to each recipe, one layer at a time.
#include "bitgrad/base/json.h"
#include "bitgrad/tools/budget.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <ostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "tools/effects.h"
#include "tools/norm_statistics.h"
#include "tools/ptq/method.h"
#include "train/train_state.h"

namespace bitgrad {
namespace {

struct UniformRecipe {
  int64_t bits;
  const char* recipe;
};
constexpr UniformRecipe kUniform[] = {
#define BITGRAD_UNIFORM_RECIPE(bits, recipe) {bits, recipe},
#include "tools/uniform_recipes.inc"
#undef BITGRAD_UNIFORM_RECIPE
};

// Restores a slot's quantization and all values of the model.
class Restoring {
 public:
  Restoring(Quantizable& slot, const detail::ModelSnapshot& numbers, Module& model)
      : slot_(slot), quant_(slot.quant()), numbers_(numbers), model_(model) {}
  // Restores after an error.
  ~Restoring() {
    if (restored_) return;
    try {
      restore();
    } catch (const std::exception& e) {
      log(LogLevel::kError, concat("sensitivity: the model could not be restored: ", e.what()));
    }
  }
  Restoring(const Restoring&) = delete;
  Restoring& operator=(const Restoring&) = delete;

  void restore() {
    slot_.set(quant_);
    numbers_.restore(model_);
    restored_ = true;
  }

 private:
  Quantizable& slot_;
  const LayerQuant quant_;
  const detail::ModelSnapshot& numbers_;
  Module& model_;
  bool restored_ = false;
};

// The slot's quantization with the weight part of a recipe.
LayerQuant with_weight_of(const LayerQuant& own, const LayerQuant& recipe) {
  LayerQuant q = own;
  q.recipe = recipe.recipe;
  q.weight = recipe.weight;
  q.master = MasterKind::kFp32;
  q.latent_clamp = recipe.latent_clamp;
  return q;
}

double relative_noise(const Tensor& on_device, const Tensor& value) {
  const Tensor w = on_device.on_host(), q = dequantize_tensor(value).on_host();
  double noise = 0, signal = 0;
  for (int64_t i = 0; i < w.numel(); ++i) {
    const double x = static_cast<double>(w.as<float>()[i]), error = x - static_cast<double>(q.as<float>()[i]);
    noise += error * error;
    signal += x * x;
  }
  return signal > 0 ? noise / signal : 0;
}

struct Means {
  double loss = 0, accuracy = 0;
};
Means evaluate_samples(Learner& learner, std::span<const SampleBatch> samples) {
  Means sum;
  int64_t n = 0;
  double weight = 0;
  for (const SampleBatch& s : samples) {
    const StepResult r = learner.evaluate(s.x, s.target);
    sum.loss += r.loss;
    sum.accuracy += static_cast<double>(r.correct);
    n += r.counted;
    weight += r.weight;
  }
  return {sum.loss / weight, 100.0 * sum.accuracy / static_cast<double>(n)};
}

class Meter {
 public:
  // `norms`: renewed before each measurement; nullptr: they stay.
  Meter(Learner& learner, std::span<const SampleBatch> samples, detail::NormRenewal* norms)
      : learner_(learner), samples_(samples), norms_(norms), base_(measure_base()) {}

  const Means& base() const { return base_; }
  // What methods did to each choice so far.
  const std::vector<PtqLayer>& fitted() const { return fitted_; }

  // `methods` fit the layer to `floats`, its sums; empty: none.
  LayerEffect measure(size_t layer, Quantizable& slot, const Tensor& w, const WeightChoice& choice,
                      const PtqSpec& methods, const detail::LayerData& floats) {
    LayerQuant recipe = find_recipe(choice.recipe);
    LayerEffect effect;
    effect.recipe = choice.recipe;
    if (choice.rows) effect.group = recipe.weight->granularity.group = slot.weight().shape().cols();
    slot.set(with_weight_of(slot.quant(), recipe));
    learner_.plan_again();
    if (!methods.methods.empty())
      fitted_.push_back(detail::fit_alone(learner_, {path_of(layer), &slot}, floats, methods));
    effect.bits = recipe.weight->dtype.bits();
    effect.bytes = summarize(learner_.model())[layer].bytes;
    effect.noise = relative_noise(w, slot.weight().value());
    if (norms_ != nullptr) norms_->renew(path_of(layer));
    const Means now = evaluate_samples(learner_, samples_);
    effect.loss_change = now.loss - base_.loss;
    effect.accuracy_change = now.accuracy - base_.accuracy;
    return effect;
  }

 private:
  Means measure_base() {
    if (norms_ != nullptr) norms_->renew();
    return evaluate_samples(learner_, samples_);
  }
  std::string path_of(size_t layer) { return learner_.model().quantizables_at(kModelRoot)[layer].layer; }

  Learner& learner_;
  std::span<const SampleBatch> samples_;
  detail::NormRenewal* norms_;
  const Means base_;
  std::vector<PtqLayer> fitted_;
};

// Layers that keep the codes of a recipe because no method fits them, and methods that fit none.
void report_unfitted(const std::vector<PtqLayer>& fitted, const PtqSpec& methods) {
  if (methods.methods.empty()) return;
  detail::require_used(fitted, methods);
  std::string last;
  for (const PtqLayer& layer : fitted)
    if (!layer.skipped.empty() && last != layer.layer)
      log(LogLevel::kWarning, concat("sensitivity: no method fits '", last = layer.layer, "': ", layer.skipped));
}

std::string fixed(double x, int digits, bool sign) {
  TextWriter out;
  if (sign) out << std::showpos;
  out << std::fixed << std::setprecision(digits) << x;
  return out.str();
}

}  // namespace

std::string uniform_recipe(int64_t bits) {
  for (const UniformRecipe& u : kUniform)
    if (u.bits == bits) return u.recipe;
  fail("bits", "no weight recipe has ", bits, " bits. Known: ", joined(kUniform, ", ", &UniformRecipe::bits));
}

double LayerEffect::sqnr_db() const {
  return noise > 0 ? -10.0 * std::log10(noise) : std::numeric_limits<double>::infinity();
}

void check_layer_methods(const PtqSpec& methods) {
  check_ptq(methods);
  for (const std::string& name : methods.methods)
    require(detail::find_ptq_method(name).has_layer_step(), "sensitivity", "method ", name,
            " changes the whole model, and here one layer is quantized at a time");
}

Sensitivity measure_sensitivity(Learner& learner, std::span<const SampleBatch> samples,
                                std::span<const WeightChoice> choices, std::span<const SampleBatch> norm_samples,
                                const PtqSpec& methods) {
  const DeviceGuard guard(learner.device());
  require(!samples.empty(), "sensitivity", "got no samples");
  check_layer_methods(methods);
  for (const WeightChoice& choice : choices) {
    const LayerQuant recipe = find_recipe(choice.recipe);
    require(recipe.weight.has_value(), "sensitivity", "recipe ", choice.recipe, " leaves the weights in fp32");
    require(!choice.rows || recipe.weight->granularity.kind == Granularity::kGroup, "sensitivity", "recipe ",
            choice.recipe, " has no groups to replace by rows");
  }
  std::optional<detail::NormRenewal> norms;
  if (!norm_samples.empty()) norms.emplace(learner, norm_samples);
  const std::vector<Tensor> statistics = norms ? norms->statistics() : std::vector<Tensor>{};
  Meter meter(learner, samples, norms ? &*norms : nullptr);
  Sensitivity result;
  result.methods = methods.methods;
  for (const SampleBatch& s : samples) result.samples += s.x.rows();
  result.loss = meter.base().loss;
  result.accuracy = meter.base().accuracy;
  const detail::ModelSnapshot numbers(learner.model());
  const std::vector<LayerSummary> rows = summarize(learner.model());
  const std::vector<Quantizable*> slots = learner.model().quantizables();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i]->weight_owner() != nullptr) continue;  // a shared weight is measured at its owner
    LayerSensitivity& layer = result.layers.emplace_back();
    layer.layer = rows[i].layer;
    layer.kind = rows[i].kind;
    layer.shape = rows[i].shape;
    layer.bytes = rows[i].bytes;
    require(slots[i]->on() && !slots[i]->converted(), "sensitivity", "layer '", layer.layer, "' is ",
            slots[i]->on() ? "converted: it has codes only" : "switched off");
    require(slots[i]->weight().learned().empty(), "sensitivity", "the weight of layer '", layer.layer,
            "' has learned scheme parameters, which belong to the optimizer: measure the model in fp32 (load_floats)");
    const Tensor w = dequantized(slots[i]->weight()).clone(MemoryKind::kWorkspace);
    // Restore before each choice, or a weight without a master would start from the codes of the previous one.
    const detail::LayerData floats = methods.methods.empty()
                                         ? detail::LayerData()
                                         : detail::float_layer(learner, {layer.layer, slots[i]}, samples, methods.rows);
    for (const WeightChoice& choice : choices) {
      Restoring restoring(*slots[i], numbers, learner.model());
      layer.effects.push_back(meter.measure(i, *slots[i], w, choice, methods, floats));
      restoring.restore();
    }
  }
  learner.plan_again();
  if (norms) norms->restore(statistics);
  report_unfitted(meter.fitted(), methods);
  return result;
}

std::vector<std::string> effect_cells(const std::string& layer, const LayerEffect& e) {
  return {layer,
          e.group ? concat(e.recipe, " group ", *e.group) : e.recipe,
          std::to_string(e.bits),
          std::to_string(e.bytes),
          fixed(e.sqnr_db(), 2, false),
          fixed(e.loss_change, 5, true),
          fixed(e.accuracy_change, 2, true)};
}

void print_sensitivity(std::ostream& out, const Sensitivity& s) {
  std::vector<std::vector<std::string>> lines{
      {"layer", "recipe", "bits", "bytes", "SQNR dB", "loss change", "accuracy change"}};
  for (const LayerSensitivity& layer : s.layers) {
    lines.push_back({layer.layer, "(unchanged)", "", std::to_string(layer.bytes)});
    for (const LayerEffect& e : layer.effects) lines.push_back(effect_cells("", e));
  }
  out << "loss " << s.loss << ", accuracy " << s.accuracy << " % of " << s.samples
      << " samples; with the weights of one layer at a time requantized" << detail::fitted_by(s.methods) << ":\n"
      << text_table(lines);
}

std::string detail::fitted_by(const std::vector<std::string>& methods) {
  return methods.empty() ? "" : ", fitted by " + joined(methods);
}

Json detail::effect_json(const LayerEffect& e) {
  return {{"recipe", e.recipe},
          {"group", e.group ? Json(*e.group) : Json(nullptr)},
          {"bits", e.bits},
          {"bytes", e.bytes},
          {"sqnr_db", std::isfinite(e.sqnr_db()) ? Json(e.sqnr_db()) : Json(nullptr)},
          {"loss_change", e.loss_change},
          {"accuracy_change", e.accuracy_change}};
}

std::string sensitivity_json(const Sensitivity& s) {
  Json layers = Json::array();
  for (const LayerSensitivity& layer : s.layers) {
    Json recipes = Json::array();
    for (const LayerEffect& e : layer.effects) recipes.push_back(detail::effect_json(e));
    layers.push_back({{"layer", layer.layer},
                      {"kind", layer.kind},
                      {"shape", layer.shape.dims()},
                      {"bytes", layer.bytes},
                      {"recipes", recipes}});
  }
  return Json{
      {"samples", s.samples}, {"loss", s.loss}, {"accuracy", s.accuracy}, {"methods", s.methods}, {"layers", layers}}
      .dump(2);
}

}  // namespace bitgrad
