// The order in which the gradients of an update are summed.
#pragma once

#include <cstdint>

#include "bitgrad/base/key.h"

namespace bitgrad {

// Order in which the gradients of a window's microbatches are summed (docs/numerics.md section 6): one after another,
// or in a tree that several ranks can share. kAuto: running, and a tree on several ranks.
enum class WindowSum : uint8_t { kAuto, kRunning, kTree };
template <>
struct EnumNames<WindowSum> {
  static constexpr std::string_view all[] = {"auto", "running", "tree"};
};

}  // namespace bitgrad
