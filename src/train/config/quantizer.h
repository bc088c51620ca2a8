// Merges the keys of a quantizer: a layer's own over those of `quant:` over the defaults, and checks that they go
// together.
#pragma once

#include "train/config/fields.h"
#include "train/config/validate.h"

namespace bitgrad::config {

class Merged;

// Where one quantizer's keys are. `own` and `base` are maps or nullptr.
struct QuantizerKeys {
  const Node* own = nullptr;
  const Node* base = nullptr;
  std::string path;     // of `own`, for messages
  SourceMark key_mark;  // of the key that holds `own` (or would)
  Role role = Role::kWeights;
  std::string moments = "fp32";  // of the optimizer: weights that name none take these
};

// The resolved quantizer. Contradictions are reported where a key of `own` takes part; those within `base` alone are
// reported when base is resolved itself. Says nothing about keys that are wrong already.
QuantConfig resolve_quantizer(const QuantizerKeys& keys, Report& report);
// The keys of weights that say how they train: master, moments, optimizer and so on. The codes are resolved already.
void resolve_training(const Merged& keys, const std::string& moments, QuantConfig& c);

}  // namespace bitgrad::config
