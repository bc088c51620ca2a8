// Repeats the same layers; each round has parameters of its own. Children 0, 1, ... are the rounds.
#include "bitgrad/nn/layers.h"
#include "nn/layers/recompute_key.h"

namespace bitgrad {

LayerKind repeat_kind() {
  LayerKind kind;
  kind.name = "repeat";
  kind.doc = "repeats its layers, each time with separate parameters";
  kind.keys = {{"times", Key::Type::kInt, "[1, 4096]", "!", "rounds"}, recompute_key("each round")};
  kind.lists.kind = LayerLists::Kind::kRepeated;
  kind.bf16 = true;
  kind.make = [](const LayerSpec& spec) {
    require(!spec.lists.empty() && !spec.lists[0].layers.empty(), "repeat", "layers: got none, expected at least one");
    auto rounds = std::make_shared<Sequential>();
    for (int64_t i = 0; i < spec.attributes.integer("times"); ++i) {
      const auto round = in_layer(std::to_string(i), [&] { return make_layers(spec.lists[0].layers); });
      round->set_recompute(spec.attributes.flag(kRecomputeKey));
      rounds->append(round);
    }
    return rounds;
  };
  return kind;
}

}  // namespace bitgrad
