// What travels between ranks for the gradients of a window.
#pragma once

#include <cstdint>

#include "bitgrad/base/key.h"

namespace bitgrad {

// The form in which the parts of a gradient travel to the rank that adds them (docs/numerics.md section 6). kExact: as
// they are, so that every number of ranks gives the same bits; kBf16: rounded to nearest even; kInt8: in blocks of 256
// with a scale, rounded stochastically. Codes and values of weights always travel as they are.
enum class WireFormat : uint8_t { kExact, kBf16, kInt8 };
template <>
struct EnumNames<WireFormat> {
  static constexpr std::string_view all[] = {"exact", "bf16", "int8"};
};

}  // namespace bitgrad
