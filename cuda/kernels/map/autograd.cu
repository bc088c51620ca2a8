// The maps of layer autograd: one kernel per line of src/autograd/map/maps.inc.
#include "cuda/kernels/map/map_kernel.h"
#include "cuda/map_headers/autograd.h"

namespace bitgrad::cuda {

void register_autograd_maps() {
#define BITGRAD_MAP(functor) add_map_kernel<maps::functor>("map_" #functor "_cuda");
#include "autograd/map/maps.inc"
#undef BITGRAD_MAP
}

}  // namespace bitgrad::cuda
