// Rounds of repeat: the layers of each, and how many layers a tree becomes when its repeats are made, counted before
// anything is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "bitgrad/nn/layers.h"

namespace bitgrad::detail {

inline constexpr int64_t kMostLayers = 40'000;  // of a model, containers and their rounds included

inline constexpr std::string_view kCycleKey = "cycle";  // of repeat: its layers are rounds, in turn

// Whether each round of a repeat is one of its layers.
inline bool takes_turns(const LayerSpec& repeat) {
  return repeat.attributes.contains(kCycleKey) && repeat.attributes.flag(kCycleKey);
}
inline std::span<const LayerSpec> layers_of_round(const LayerSpec& repeat, int64_t round) {
  const std::span<const LayerSpec> all = repeat.lists.at(0).layers;
  return takes_turns(repeat) ? all.subspan(static_cast<size_t>(round) % all.size(), 1) : all;
}

// Layers: of LayerSpec. Returns at most kMostLayers + 1.
template <typename Layers>
int64_t expanded_layers(const Layers& layers) {
  constexpr int64_t kOver = kMostLayers + 1;
  int64_t count = 0;
  for (const auto& layer : layers) {
    int64_t inside = 0;
    const LayerKind* const kind = find_layer_kind(layer.kind);
    const bool repeated = kind != nullptr && kind->lists.kind == LayerLists::Kind::kRepeated;
    for (const auto& list : layer.lists) {
      if (repeated && takes_turns(layer))  // the largest stands for all
        for (const auto& one : list.layers) inside = std::max(inside, expanded_layers(std::span(&one, 1)));
      else
        inside = std::min(kOver, inside + expanded_layers(list.layers));
    }
    if (repeated && layer.attributes.contains("times"))
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
