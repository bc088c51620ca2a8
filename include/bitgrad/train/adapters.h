// Adapters in files of their own, in the layout of PEFT (Hugging Face): a folder with adapter_model.safetensors,
// tensors base_model.model.LAYER.lora_A.weight [rank, inputs] and .lora_B.weight [outputs, rank], and
// adapter_config.json.
#pragma once

#include <string>

#include "bitgrad/nn/adapter.h"
#include "bitgrad/train/config.h"

namespace bitgrad {

// Writes the adapters of an initialized model, fp32; the folder is made. Throws Error for a model without adapters;
// file errors as base/file.h says.
void save_adapters(const std::string& folder, Module& model);

// Takes adapters for those of the model. `path`: such a folder, whose rank and alpha must be those of the model, or its
// tensors alone; F32, F16 or BF16. Throws Error(kData) that lists everything that is missing, unexpected or of another
// shape, before anything is changed, and Error(kNonFinite) for NaN and Inf.
void load_adapters(const std::string& path, Module& model);

// The configuration of the model after merge_adapters, from that of the converted model (train/ptq.h) with its
// adapters: without them, and to_float with their layers' weights in fp32. Call it before they are merged.
RunConfig merged_config(RunConfig config, Module& model, bool to_float);

}  // namespace bitgrad
