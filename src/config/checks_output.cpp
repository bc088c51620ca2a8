#include "bitgrad/base/text.h"
#include "bitgrad/nn/layers.h"
#include "config/checks.h"

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
  static const LayerSpec* output_layer(const std::vector<LayerSpec>& layers) {
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      const LayerLists::Kind form = find_layer_kind(layer->kind)->lists.kind;
      const bool in_order = form == LayerLists::Kind::kInline || form == LayerLists::Kind::kRepeated;
      if (!in_order && output_of(*layer) != Output::kKeeps) return &*layer;
      if (in_order && !layer->lists.empty())
        if (const LayerSpec* const inner = output_layer(layer->lists[0].layers)) return inner;
    }
    return nullptr;
  }
};

}  // namespace

void check_output(const Node& root, const RunConfig& config, Report& report) {
  OutputChecks(root, config, report).run();
}

}  // namespace bitgrad::config
