// Merges the keys of a quantizer: a layer's own over those of `quant:` over the defaults, and checks that they fit
// together.
#pragma once

#include "config/fields.h"
#include "config/validate.h"

namespace bitgrad::config {

class Merged;

// The keys of one quantizer. `own` and `base` are maps or nullptr.
struct QuantizerKeys {
  const Node* own = nullptr;
  const Node* base = nullptr;
  std::string path;     // of `own`, for messages
  SourceMark key_mark;  // of the key that holds `own`, or would
  Role role = Role::kWeights;
  MomentKind moments = MomentKind::kFp32;  // of the optimizer: the default for weights
};

// Report contradictions that involve a key of `own`; those within `base` alone are reported when base is resolved
// itself. Silent about keys that are already wrong.
ParameterSpec resolve_weights(const QuantizerKeys& keys, Report& report);
// Of role activations or gradients; nullopt: nothing that can be used, which was reported.
std::optional<ActivationQuant> resolve_activations(const QuantizerKeys& keys, Report& report);
// Resolves how weights train: master, moments, optimizer etc. Call after the codes are resolved.
void resolve_training(const Merged& keys, MomentKind moments, ParameterSpec& spec);

}  // namespace bitgrad::config
