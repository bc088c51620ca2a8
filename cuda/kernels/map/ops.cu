// The maps of layer ops: one kernel per line of src/ops/map/maps.inc.
#include "cuda/kernels/map/map_kernel.h"
#include "cuda/map_headers/ops.h"

namespace bitgrad::cuda {

void register_ops_maps() {
#define BITGRAD_MAP(functor) add_map_kernel<maps::functor>("map_" #functor "_cuda");
#include "ops/map/maps.inc"
#undef BITGRAD_MAP
}

}  // namespace bitgrad::cuda
