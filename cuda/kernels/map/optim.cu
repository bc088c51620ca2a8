// The maps of layer optim: one kernel per line of src/optim/map/maps.inc.
#include "cuda/kernels/map/map_kernel.h"
#include "cuda/map_headers/optim.h"

namespace bitgrad::cuda {

void register_optim_maps() {
#define BITGRAD_MAP(functor) add_map_kernel<maps::functor>("map_" #functor "_cuda");
#include "optim/map/maps.inc"
#undef BITGRAD_MAP
}

}  // namespace bitgrad::cuda
