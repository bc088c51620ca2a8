// The maps of layer quant: one kernel per line of src/quant/map/maps.inc.
#include "cuda/kernels/map/map_kernel.h"
#include "cuda/map_headers/quant.h"

namespace bitgrad::cuda {

void register_quant_maps() {
#define BITGRAD_MAP(functor) add_map_kernel<maps::functor>("map_" #functor "_cuda");
#include "quant/map/maps.inc"
#undef BITGRAD_MAP
}

}  // namespace bitgrad::cuda
