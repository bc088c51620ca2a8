// The built-in transforms.
#pragma once

#include "bitgrad/data/transform.h"

namespace bitgrad::data {

#define BITGRAD_TRANSFORM(kind) TransformKind kind();
#include "data/transforms.inc"
#undef BITGRAD_TRANSFORM

}  // namespace bitgrad::data
