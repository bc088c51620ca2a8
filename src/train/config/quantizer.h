// Merges the keys of a quantizer: a layer's own over those of `quant:` over the defaults, and checks that they go
// together.
#pragma once

#include "train/config/validate.h"

namespace bitgrad::config {

// Where one quantizer's keys are. `own` and `base` are maps or nullptr.
struct QuantizerKeys {
  const Node* own = nullptr;
  const Node* base = nullptr;
  std::string path;     // of `own`, for messages
  SourceMark key_mark;  // of the key that holds `own` (or would)
  bool weights = true;
};

// The resolved quantizer. Contradictions are reported where a key of `own` takes part; those within `base` alone are
// reported when base is resolved itself. Says nothing about keys that are wrong already.
QuantConfig resolve_quantizer(const QuantizerKeys& keys, Report& report);

}  // namespace bitgrad::config
