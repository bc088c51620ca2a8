// How many layers a tree becomes when its repeats are made: counted before anything is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "bitgrad/nn/layers.h"

namespace bitgrad::detail {

inline constexpr int64_t kMostLayers = 40'000;  // of a model, containers and their rounds included

// Layers: of LayerSpec. Returns at most kMostLayers + 1.
template <typename Layers>
int64_t expanded_layers(const Layers& layers) {
  constexpr int64_t kOver = kMostLayers + 1;
  int64_t count = 0;
  for (const auto& layer : layers) {
    int64_t inside = 0;
    for (const auto& list : layer.lists) inside = std::min(kOver, inside + expanded_layers(list.layers));
    const LayerKind* const kind = find_layer_kind(layer.kind);
    if (kind != nullptr && kind->lists.kind == LayerLists::Kind::kRepeated && layer.attributes.contains("times"))
      inside = std::min(kOver, std::clamp<int64_t>(layer.attributes.integer("times"), 0, kOver) * (inside + 1));
    count = std::min(kOver, count + 1 + inside);
  }
  return count;
}

// The error's text, for a model or its part named in front of it.
inline std::string too_many_layers() {
  return concat("the rounds of repeat expand to more than ", kMostLayers, " layers, the most that a model may have");
}

}  // namespace bitgrad::detail
