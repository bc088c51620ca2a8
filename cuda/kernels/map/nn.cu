// The maps of layer nn: one kernel per line of src/nn/map/maps.inc.
#include "cuda/kernels/map/map_kernel.h"
#include "cuda/map_headers/nn.h"

namespace bitgrad::cuda {

void register_nn_maps() {
#define BITGRAD_MAP(functor) add_map_kernel<maps::functor>("map_" #functor "_cuda");
#include "nn/map/maps.inc"
#undef BITGRAD_MAP
}

}  // namespace bitgrad::cuda
