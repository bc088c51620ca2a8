// Adapter files in PEFT's layout (Hugging Face): a folder with adapter_model.safetensors, tensors
// base_model.model.LAYER.lora_A.weight [rank, inputs] and .lora_B.weight [outputs, rank], and adapter_config.json. What
// a run with adapters changes beside them is there, too: whole fp32 modules as PEFT's modules_to_save (tensors
// base_model.model.PATH: what adapters.train names, running statistics), all else in bitgrad_state.safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/config/config.h"
#include "bitgrad/nn/adapter.h"
#include "bitgrad/run/build.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// What a folder holds beside the adapters.
struct SavedAdapters {
  std::vector<std::string> modules = {};  // modules_to_save, by path
  // Parameters and buffers in bitgrad_state.safetensors, for which PEFT's format has no place: learned parts and
  // observed ranges, low-bit weights that train, what trains in a layer with an adapter.
  std::vector<std::string> beyond = {};
  bool peft = false;  // the names are those of transformers: PEFT opens the folder over the base model
};
// Writes the adapters of an initialized model in fp32, and what else does not come from the model that they were
// trained over, and creates the folder. `record`: the model's record (CheckpointHeader::model), by which learned parts
// and ranges of inputs are recognised when they are loaded. Warns of what PEFT cannot hold. Throws Error for a model
// without adapters, and for one that was opened to predict (LearnerUse): masters are part of what is written; file
// errors as in base/file.h. A decoder of a family of Hugging Face gets the names of its modules there (q, k and v share
// lora_A and have rows of lora_B each); other models keep bitgrad's paths. base: name of the base model, for
// adapter_config.json.
SavedAdapters save_adapters(const std::string& folder, Module& model, const std::string& record = {},
                            const std::string& base = {});

// Loads values into the model's adapters and into whatever else the folder holds. `path` is a folder as above, or its
// adapter_model.safetensors; rank and alpha must match the model's. F32, F16 or BF16. Warns of parameters that train in
// this model and have no values there, and if no adapter_config.json tells alpha. Before anything changes, throws
// Error(kData) that lists every missing or unexpected tensor and shape mismatch, and Error(kNonFinite) for NaN and Inf.
// record: the model's, by which PEFT's names of a decoder are recognised; its parts of one weight are joined. Warns if
// the frozen weights are not those that the adapters were trained over.
void load_adapters(const std::string& path, Module& model, const std::string& record = {});

// Derives the configuration after merge_adapters from that of the converted model (tools/ptq.h) with adapters: the
// adapters are removed and, with to_float, their layers' weights are fp32. Call before merging.
RunConfig merged_config(RunConfig config, Module& model, bool to_float);

// Merges the adapters of a checkpoint (merge_adapters) and writes the model file. `learner`: load_file(file), which is
// converted afterwards. Throws Error for a converted file.
struct MergedFile {
  int64_t layers = 0;
  bool rounded = false;  // the sums W + B A were rounded to the codes of W
};
MergedFile write_merged(const std::string& path, const OpenedFile& file, Learner& learner, bool to_float);

}  // namespace bitgrad
