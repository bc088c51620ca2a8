// Initializes a model from weights of other programs: files of named float tensors, and the mapping to parameters.
// docs/pytorch.md.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/config/weight_name.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {

// Whether init_from_weights can read a path: .npz, .gguf, an index of shards (*.index.json), a folder that is no run
// and contains model.safetensors or its index, or a .safetensors file not written by bitgrad. Throws Error(kData) for a
// damaged file.
bool is_weight_file(const std::string& path);
// Initializes parameters by name. F32, F16, BF16 and F64 (npz: float16, float32, float64) are read as fp32, GGUF blocks
// are dequantized.
// - A parameter without a rule is looked up by its path, then by its path without "layers."; failing that, gamma and
//   slope as weight, and beta as bias.
// - Convolutions are OIHW in the file. Features that a layer flattens from images [h, w, c] are in the order [c, h, w].
// - num_batches_tracked of batch norms is ignored.
// Throws a single Error(kData) that lists every mismatch (parameters without a tensor, tensors without a parameter,
// shapes, dtypes, rules that match nothing), and Error(kNonFinite) for NaN and Inf; the model is unchanged in the
// former case. Learned parts, observers and adapters of the model keep their own initial values. Call before the first
// microbatch; draws as in init_from.
InitFrom init_from_weights(const std::string& path, Module& model, const WeightMap& map = {}, int64_t step = 0);

}  // namespace bitgrad
