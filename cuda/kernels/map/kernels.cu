// The maps of layer kernels: one kernel per line of src/kernels/map/maps.inc.
#include "cuda/kernels/map/map_kernel.h"
#include "cuda/map_headers/kernels.h"

namespace bitgrad::cuda {

void register_kernels_maps() {
#define BITGRAD_MAP(functor) add_map_kernel<maps::functor>("map_" #functor "_cuda");
#include "kernels/map/maps.inc"
#undef BITGRAD_MAP
}

}  // namespace bitgrad::cuda
