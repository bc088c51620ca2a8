// Whether the layers fit together: each is made small (small_model.h) and asked for its plan, so that the layers' own
// checks speak. Sizes of the data are not known here; the model that is trained is planned again.
#include <algorithm>

#include "train/config/bind.h"
#include "train/config/choices.h"
#include "train/config/merge.h"
#include "train/config/small_model.h"

namespace bitgrad::config {
namespace {

// Adds to what the first layer refuses that it is not one for these data.
void tell_data(const LayerConfig& first, const DatasetConfig& data, std::string& wrong) {
  const bool ids = choices::gives_ids(data);
  if (ids == (first.kind == "embedding")) return;
  wrong += concat(wrong.ends_with('.') ? "" : ".", " data.train of format ", data.format,
                  ids ? " gives ids (int32): an embedding layer comes first, got "
                      : " gives numbers (fp32), which no table is looked up by: got ",
                  first.kind);
}

constexpr std::string_view kInt8 = "int8";
constexpr std::string_view kRoundingUse = "gx or gw int8", kPerGroupUse = "gx int8";
bool has_int8(const BackwardConfig& c) { return c.gx == kInt8 || c.gw == kInt8; }
void report_idle(const Merged& keys, std::string_view key, std::string_view use) {
  keys.contradiction({key}, concat(key, " goes with ", use));
}

// Keys of quant.backward that no layer has a use for.
void check_idle(const Node* quant, const RunConfig& config, Report& report) {
  if (!quant || !quant->child("backward")) return;
  const Merged keys(quant->child("backward"), nullptr, "quant.backward", "backward", report);
  const BackwardConfig standard, &c = config.quant.backward;
  const auto any = [&](auto uses) {
    return std::any_of(config.layers.begin(), config.layers.end(),
                       [&](const LayerConfig& layer) { return uses(layer.backward); });
  };
  if (c.rounding != standard.rounding && !has_int8(c) && !any(has_int8)) report_idle(keys, "rounding", kRoundingUse);
  const auto gx = [](const BackwardConfig& b) { return b.gx == kInt8; };
  if (c.per_group && !gx(c) && !any(gx)) report_idle(keys, "per_group", kPerGroupUse);
}

// quant.compute says nothing where recipes hold every layer that takes it. False: that was reported.
bool check_compute(const Node* quant, const RunConfig& config, const SmallModel& model, Report& report) {
  const Node* node = quant ? quant->child("compute") : nullptr;
  const std::string& compute = config.quant.compute;
  if (!node || compute == "int") return true;
  bool taken = false, used = false;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].kind != "linear" || config.layers[i].compute != compute) continue;
    taken = true;
    used |= model.by_own_keys(i);
  }
  if (!taken || used) return true;
  report.error(node->mark,
               concat("quant.compute is that of layers that no recipe holds, and recipes or rules hold all that take "
                      "it; write it in a rule, such as {layers: \"*\", recipe: int8wo, compute: ",
                      compute, '}'),
               node->length());
  return false;
}

// How a linear layer computes, key by key, so that the one that does not fit is found.
class ProductKeys {
 public:
  ProductKeys(const Node& entry, const Node* quant, const std::string& path, Report& report)
      : keys_(&entry, quant, path, "quant", report),
        backward_(keys_.inner("backward", "backward")),
        own_dtype_(entry.child("weights") && entry.child("weights")->child("dtype")) {}

  // Takes the keys of `wanted` over into `layer`; false: one was reported. An inherited one that does not fit a layer
  // with a dtype of its own is left out.
  bool apply(const LayerConfig& wanted, LayerConfig& layer, const SmallModel& model, size_t i) const {
    layer.backward.rounding = wanted.backward.rounding;
    layer.backward.per_group = wanted.backward.per_group;
    return try_key(keys_, "compute", layer.compute, wanted.compute, layer, model, i) &&
           try_key(backward_, "gx", layer.backward.gx, wanted.backward.gx, layer, model, i) &&
           try_key(backward_, "gw", layer.backward.gw, wanted.backward.gw, layer, model, i) &&
           drop_idle(layer.backward);
  }

 private:
  bool try_key(const Merged& keys, std::string_view key, std::string& field, const std::string& wanted,
               const LayerConfig& layer, const SmallModel& model, size_t i) const {
    const std::string before = field;
    field = wanted;
    const std::string wrong = field == before ? "" : model.refusal(i, layer).text;
    if (wrong.empty()) return true;
    field = before;
    if (!keys.own(key) && own_dtype_) return true;
    // The key stands in the layer or in quant: it is no default.
    const Node* node = keys.pick(key);
    ensure(node != nullptr, "config", "no key ", key, " to blame");
    keys.error(node->mark, concat(keys.path(), '.', key, ": ", wrong), node);
    return false;
  }

  // What says how int8 products are taken means nothing without them: own keys are reported (false), inherited ones go.
  bool drop_idle(BackwardConfig& c) const {
    const BackwardConfig standard;
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

  Merged keys_, backward_;
  bool own_dtype_;
};

}  // namespace

void check_plan(const Node& root, RunConfig& config, Report& report) {
  const Node* layers = root.child("model")->child("layers");
  SmallModel model(config, report);
  if (!model.ok() || !check_compute(root.child("quant"), config, model, report)) return;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const Entry& entry = layers->items[i].entries[0];
    const std::string path = concat("model.layers.", i, '.', layer.kind);
    const LayerConfig wanted = layer;
    layer.compute = "int";
    layer.backward = {};
    SmallModel::Refusal wrong = model.refusal(i, layer);
    if (!wrong.text.empty() && i == 0) tell_data(layer, config.data.train, wrong.text);
    if (!wrong.text.empty())
      return report.error(wrong.choice ? *wrong.choice : layer.mark, concat(path, ": ", wrong.text),
                          wrong.choice ? 1 : layer.kind.size());
    if (layer.kind == "linear" &&
        !ProductKeys(entry.node, root.child("quant"), path, report).apply(wanted, layer, model, i))
      return;
    model.pass(i, layer);
  }
  check_idle(root.child("quant"), config, report);
  check_compute(root.child("quant"), config, model, report);  // again: layers that it does not fit have left it
  if (model.dtype() != dtypes::fp32)
    report.error(
        config.layers.back().mark,
        concat("model.layers: the scores must be fp32, got ", model.dtype(), "; put dequantize: {} at the end"),
        config.layers.back().kind.size());
}

}  // namespace bitgrad::config
