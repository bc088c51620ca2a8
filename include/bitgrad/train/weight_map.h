// Weights of another program as first values of a model: files of named float tensors, and which of them a parameter
// gets. docs/interop.md, "From PyTorch".
#pragma once

#include <string>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/train/checkpoint.h"
#include "bitgrad/train/weight_name.h"

namespace bitgrad {

struct WeightMap {
  std::vector<WeightName> names = {};    // of several that match a parameter the last one counts
  std::vector<std::string> ignore = {};  // globs on names of the file that no parameter gets
};

// Whether init_from_weights reads a path: .npz, .gguf, an index of shards (*.index.json), a folder with
// model.safetensors or its index that is no run, or a .safetensors file that bitgrad did not write. Throws Error(kData)
// for a damaged one.
bool is_weight_file(const std::string& path);
// First values by name: F32, F16, BF16 and F64 (npz: float16, float32, float64) as fp32, GGUF blocks as their values.
// - A parameter without a rule has its path in the file, or its path without "layers.". gamma and slope are weight
//   there, beta is bias, where the file has no such name.
// - Convolutions are OIHW there. Features that a layer flattens from images [h, w, c] are in the order [c, h, w] there.
// - num_batches_tracked of batch norms is left out.
// Error(kData) lists everything that does not fit at once: parameters without a tensor, tensors without a parameter,
// shapes, dtypes, rules that match nothing; the model is unchanged then. Error(kNonFinite) for NaN and Inf. Learned
// parts, observers and adapters of the model keep their own first values. Before the first microbatch; draws as
// init_from.
InitFrom init_from_weights(const std::string& path, Module& model, const WeightMap& map = {}, int64_t step = 0);

}  // namespace bitgrad
