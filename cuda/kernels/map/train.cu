// The maps of layer train: one kernel per line of src/train/map/maps.inc.
#include "cuda/kernels/map/map_kernel.h"
#include "cuda/map_headers/train.h"

namespace bitgrad::cuda {

void register_train_maps() {
#define BITGRAD_MAP(functor) add_map_kernel<maps::functor>("map_" #functor "_cuda");
#include "train/map/maps.inc"
#undef BITGRAD_MAP
}

}  // namespace bitgrad::cuda
