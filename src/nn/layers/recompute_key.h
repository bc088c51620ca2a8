// The key of containers whose layers are recomputed in backward (autograd/recompute.h).
#pragma once

#include <string>

#include "bitgrad/nn/layer_kind.h"

namespace bitgrad {

inline constexpr const char* kRecomputeKey = "recompute";

// `what`: text for the container's list, for the documentation.
inline Key recompute_key(const std::string& what) {
  return {kRecomputeKey, Key::Type::kBool, "", "false",
          "training keeps the input of " + what +
              " alone and runs the layers again in backward: less memory, the same bits"};
}

}  // namespace bitgrad
