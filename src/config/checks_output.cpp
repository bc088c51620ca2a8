#include <algorithm>
#include <span>

#include "bitgrad/base/text.h"
#include "bitgrad/nn/layers.h"
#include "config/checks.h"
#include "nn/expanded_layers.h"

namespace bitgrad::config {
namespace {

class OutputChecks : public Checks {
 public:
  using Checks::Checks;

  void run() { last_layer(); }

 private:
  // The output must come from a layer that computes scores, at most normalized and dequantized: anything else would
  // clip or distort them.
  void last_layer() {
    const Node* layers = find("model.layers");
    if (!layers || !sound_path("model.layers") || config_.layers.size() != layers->items.size()) return;
    bool any = false;
    for_each_layer(config_.layers, [&](const LayerSpec& layer) {
      any = any || (output_of(layer) == Output::kScores && layer.lists.empty());
    });
    const LayerSpec* const last = output_layer(config_.layers);
    if (last == nullptr || !any) {
      contradiction({"model.layers"}, "model.layers: missing a linear layer, which computes the scores of the classes");
      return;
    }
    if (output_of(*last) == Output::kNone)
      report_.error(origin_of(*last).mark,
                    concat("model.layers: the output must come from a linear layer, with nothing but norms or "
                           "dequantize after it; got ",
                           last->kind, " after the last one"),
                    last->kind.size());
  }
  using Output = LayerKind::Output;
  static Output output_of(const LayerSpec& layer) { return find_layer_kind(layer.kind)->output; }
  // The last layer that does not merely preserve scores; descends into containers that run their layers in order.
  static const LayerSpec* output_layer(std::span<const LayerSpec> layers) {
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      const LayerLists::Kind form = find_layer_kind(layer->kind)->lists.kind;
      const bool in_order = form == LayerLists::Kind::kInline || form == LayerLists::Kind::kRepeated;
      if (!in_order && output_of(*layer) != Output::kKeeps) return &*layer;
      if (in_order && !layer->lists.empty())
        if (const LayerSpec* const inner = output_inside(*layer)) return inner;
    }
    return nullptr;
  }
  // Of a repeat whose layers take turns, the last round first: it need not be the last layer.
  static const LayerSpec* output_inside(const LayerSpec& layer) {
    const std::vector<LayerSpec>& all = layer.lists[0].layers;
    const bool turns = bitgrad::detail::takes_turns(layer) && layer.attributes.contains("times");
    const int64_t times = turns ? layer.attributes.integer("times") : 0;
    if (times < 1) return output_layer(all);
    for (int64_t round = times - 1; round >= std::max<int64_t>(0, times - std::ssize(all)); --round)
      if (const LayerSpec* const inner = output_layer(bitgrad::detail::layers_of_round(layer, round))) return inner;
    return nullptr;
  }
};

}  // namespace

void check_output(const Node& root, const RunConfig& config, Report& report) {
  OutputChecks(root, config, report).run();
}

}  // namespace bitgrad::config
