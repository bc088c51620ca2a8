// The pointwise functions of unary.inc by name.
#pragma once

#include <cstdint>
#include <string_view>

namespace bitgrad {

enum class UnaryOp : uint8_t {
#define BITGRAD_UNARY(name, value, derivative) name,
#include "bitgrad/kernels/unary.inc"
#undef BITGRAD_UNARY
  kCount
};
std::string_view unary_name(UnaryOp op);

}  // namespace bitgrad
