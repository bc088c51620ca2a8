// Checks that the layers fit together: describes the model (model_forms.h) and plans it, which runs the layers' own
// checks. Shapes of the data are not known here; the model that is trained is planned again.
#include <algorithm>

#include "config/bind.h"
#include "config/choices.h"
#include "config/merge.h"
#include "config/model_forms.h"

namespace bitgrad::config {
namespace {

// If the first layer does not fit the type of the data, appends that to its error.
void check_data(const RunConfig& config, std::string& wrong) {
  const LayerSpec& first = config.layers.front();
  const bool ids = choices::reads_ids(config);
  if (ids == find_layer_kind(first.kind)->ids) return;
  wrong += concat(wrong.ends_with('.') ? "" : ".", " data.train of format ", config.data.train.format,
                  ids ? " has ids (int32): expected an embedding layer first, got "
                      : " has values (fp32), which are not ids of an embedding: got ",
                  first.kind);
}

constexpr ProductMode kInt8 = ProductMode::kInt8;
constexpr std::string_view kRoundingUse = "gx or gw int8", kPerGroupUse = "gx int8";
bool has_int8(const ProductSpec& c) { return c.gx == kInt8 || c.gw == kInt8; }
void report_idle(const Merged& keys, std::string_view key, std::string_view use) {
  keys.contradiction({key}, concat(key, " requires ", use));
}

// Reports keys of quant.backward that no layer uses.
void check_idle(const Node* quant, const RunConfig& config, Report& report) {
  if (!quant || !quant->child("backward")) return;
  const Merged keys(quant->child("backward"), nullptr, "quant.backward", "backward", report);
  const ProductSpec standard, &c = config.quant.product;
  const auto any = [&](auto uses) {
    bool found = false;
    for_each_layer(config.layers, [&](const LayerSpec& layer) { found = found || uses(layer.product); });
    return found;
  };
  if (c.rounding != standard.rounding && !has_int8(c) && !any(has_int8)) report_idle(keys, "rounding", kRoundingUse);
  const auto gx = [](const ProductSpec& b) { return b.gx == kInt8; };
  if (c.per_group && !gx(c) && !any(gx)) report_idle(keys, "per_group", kPerGroupUse);
}

// Reports quant.compute if recipes set every layer that would use it; returns false then.
bool check_compute(const Node* quant, const RunConfig& config, const ModelForms& forms, Report& report) {
  const Node* node = quant ? quant->child("compute") : nullptr;
  const Compute compute = config.quant.product.compute;
  if (!node || compute == Compute::kPacked) return true;
  bool taken = false, used = false;
  for_each_place(config.layers, [&](const LayerSpec& layer, const std::vector<std::string>& places) {
    if (!find_layer_kind(layer.kind)->product || layer.product.compute != compute) return;
    taken = true;
    used |= forms.by_own_keys(places);
  });
  if (!taken || used) return true;
  report.error(node->mark,
               concat("quant.compute is for layers without a recipe, and recipes or rules set all that use "
                      "it; set it in a rule, such as {layers: \"*\", recipe: int8wo, compute: ",
                      enum_name(compute), '}'),
               node->length());
  return false;
}

// Checks how a layer computes its products, key by key, to find the key at fault.
class ProductChecks {
 public:
  ProductChecks(const Node& root, const LayerSpec& layer, Report& report)
      : entry_(*node_at(root, origin_of(layer).path)),
        keys_(&entry_, root.child("quant"), origin_of(layer).path, "quant", report),
        backward_(keys_.inner("backward", "backward")),
        own_dtype_(entry_.child("weights") && entry_.child("weights")->child("dtype")) {}

  // Copies the keys of `wanted` into `layer`, an element of `layers`, one by one; returns false if it reported one. An
  // inherited key that does not fit a layer with a dtype of its own is dropped.
  bool apply(const LayerSpec& wanted, LayerSpec& layer, const std::vector<LayerSpec>& layers, ModelForms& forms) const {
    layer.product.rounding = wanted.product.rounding;
    layer.product.per_group = wanted.product.per_group;
    const auto refusal = [&]() -> std::string {
      const auto refused = forms.refusal(layers);
      return refused && layer_at(layers, refused->place) == &layer ? refused->text : "";
    };
    return try_key(keys_, "compute", layer.product.compute, wanted.product.compute, refusal) &&
           try_key(backward_, "gx", layer.product.gx, wanted.product.gx, refusal) &&
           try_key(backward_, "gw", layer.product.gw, wanted.product.gw, refusal);
  }

  // Settings of int8 products mean nothing without them: own keys are reported (returns false), inherited ones reset.
  bool drop_idle(ProductSpec& c) const {
    const ProductSpec standard;
    if (c.rounding != standard.rounding && !has_int8(c)) {
      if (backward_.own("rounding")) return report_idle(backward_, "rounding", kRoundingUse), false;
      c.rounding = standard.rounding;
    }
    if (c.per_group && c.gx != kInt8) {
      if (backward_.own("per_group")) return report_idle(backward_, "per_group", kPerGroupUse), false;
      c.per_group = false;
    }
    return true;
  }

 private:
  template <typename T, typename F>
  bool try_key(const Merged& keys, std::string_view key, T& field, T wanted, F&& refusal) const {
    const T before = field;
    field = wanted;
    const std::string wrong = field == before ? "" : refusal();
    if (wrong.empty()) return true;
    field = before;
    if (!keys.own(key) && own_dtype_) return true;
    // The key is set in the layer or in quant: defaults always fit.
    const Node* node = keys.pick(key);
    ensure(node != nullptr, "config", "no key ", key, " to blame");
    keys.error(node->mark, concat(keys.path(), '.', key, ": ", wrong), node);
    return false;
  }

  const Node& entry_;
  Merged keys_, backward_;
  bool own_dtype_;
};

// Handles a layer's error: first in its plainest form, then key by key. Returns false if it was reported; true if keys
// that do not fit were removed, so that the model must be checked again.
bool resolve(const Node& root, RunConfig& config, LayerSpec& layer, ModelForms& forms, ModelForms::Refusal refused,
             Report& report) {
  const Report::Within block(report, origin_of(layer).block);
  if (find_layer_kind(layer.kind)->product) {
    const LayerSpec wanted = layer;
    layer.product = {};
    const auto plain = forms.refusal(config.layers);
    if (!plain || layer_at(config.layers, plain->place) != &layer) {
      const bool done = ProductChecks(root, wanted, report).apply(wanted, layer, config.layers, forms);
      ensure(!done || !(layer == wanted), "config", origin_of(layer).path, ": ", refused.text);
      return done;
    }
    refused = *plain;
  }
  if (&layer == &config.layers.front()) check_data(config, refused.text);
  report.error(refused.choice ? *refused.choice : origin_of(layer).mark,
               concat(origin_of(layer).path, ": ", refused.text), refused.choice ? 1 : layer.kind.size());
  return false;
}

}  // namespace

void check_plan(const Node& root, RunConfig& config, Report& report) {
  const Node* const quant = root.child("quant");
  ModelForms forms(config, report);
  if (!forms.ok() || !check_compute(quant, config, forms, report)) return;
  while (auto refused = forms.refusal(config.layers)) {
    auto* const layer = const_cast<LayerSpec*>(layer_at(config.layers, refused->place));
    ensure(layer != nullptr, "config", "no layer ", refused->place, " of: ", refused->text);
    if (!resolve(root, config, *layer, forms, std::move(*refused), report)) return;
  }
  bool sound = true;
  for_each_layer(config.layers, [&](LayerSpec& layer) {
    const Report::Within block(report, origin_of(layer).block);
    if (sound && find_layer_kind(layer.kind)->product)
      sound = ProductChecks(root, layer, report).drop_idle(layer.product);
  });
  if (!sound) return;
  check_idle(quant, config, report);
  check_compute(quant, config, forms, report);  // again: layers it did not fit no longer use it
  check_effects(root, config, forms, report);
  if (forms.dtype() != dtypes::fp32)
    report.error(
        origin_of(config.layers.back()).mark,
        concat("model.layers: the scores must be fp32, got ", forms.dtype(), "; put dequantize: {} at the end"),
        config.layers.back().kind.size());
}

}  // namespace bitgrad::config
