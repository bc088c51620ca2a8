// Registers family map: the kernels of all layers' functors.
#include "cuda/register.h"

namespace bitgrad::cuda {

#define BITGRAD_MAP_LAYER(name) void register_##name##_maps();
#include "cuda/kernels/map/layers.inc"
#undef BITGRAD_MAP_LAYER

void register_map() {
#define BITGRAD_MAP_LAYER(name) register_##name##_maps();
#include "cuda/kernels/map/layers.inc"
#undef BITGRAD_MAP_LAYER
}

}  // namespace bitgrad::cuda
