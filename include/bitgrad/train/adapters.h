// Adapter files in PEFT's layout (Hugging Face): a folder with adapter_model.safetensors, tensors
// base_model.model.LAYER.lora_A.weight [rank, inputs] and .lora_B.weight [outputs, rank], and adapter_config.json.
#pragma once

#include <string>

#include "bitgrad/nn/adapter.h"
#include "bitgrad/train/config.h"

namespace bitgrad {

// Writes the adapters of an initialized model in fp32 and creates the folder. Throws Error for a model without
// adapters; file errors as in base/file.h.
void save_adapters(const std::string& folder, Module& model);

// Loads values into the model's adapters. `path` is a folder as above, whose rank and alpha must match the model's, or
// just the tensor file. F32, F16 or BF16. Before anything changes, throws Error(kData) that lists every missing or
// unexpected tensor and shape mismatch, and Error(kNonFinite) for NaN and Inf.
void load_adapters(const std::string& path, Module& model);

// Derives the configuration after merge_adapters from that of the converted model (train/ptq.h) with adapters: the
// adapters are removed and, with to_float, their layers' weights are fp32. Call before merging.
RunConfig merged_config(RunConfig config, Module& model, bool to_float);

}  // namespace bitgrad
