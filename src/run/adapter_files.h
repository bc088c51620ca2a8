// Adapters in files: their names, and what else a folder of adapters keeps.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/module.h"

namespace bitgrad::detail {

// Names of a decoder's adapters in PEFT: those of the modules of transformers. q, k and v (gate and up) are one weight
// here and several there: each has the same lora_A, and rows of lora_B.

inline constexpr std::string_view kPeftPrefix = "base_model.model.";

class PeftNames {
 public:
  struct Part {
    std::string module;  // "model.layers.0.self_attn.q_proj"
    int64_t begin = 0, rows = 0;
  };
  struct Whole {
    std::string name;   // "model.norm.weight"
    double offset = 0;  // values of the parameter less those in the file: 1 of Gemma's norms
  };
  PeftNames() = default;
  // record: of the model (to_text of checkpoint/model_record.h). Without names if it is no decoder that Hugging Face
  // knows.
  explicit PeftNames(const std::string& record);

  // Whether all of them have a name there: layers with adapters, and parameters that are saved whole.
  bool cover(const std::vector<AdaptedLayer>& layers, const std::vector<std::string>& parameters) const;
  const std::vector<Part>& parts(const std::string& layer) const { return parts_.at(layer); }
  bool transposed() const { return transposed_; }        // modules are Conv1D (gpt2): fan_in_fan_out
  std::string module_of(const std::string& path) const;  // of a parameter that is saved whole

  // Tensors with our names (with kPeftPrefix) to PEFT's, and back. `config`: adapter_config.json of what is read; its
  // alpha / r is turned into that of our adapters. What has no name there stays as it is. Throws Error(kData) if parts
  // of one weight need a larger rank than its adapter has, and says which.
  // The layers that a file has adapters of, and globs that name them, if they are others than `layers`; else empty.
  std::string other_layers(const std::map<std::string, Tensor>& tensors, const std::vector<AdaptedLayer>& layers) const;
  NamedTensors to_peft(const NamedTensors& tensors) const;
  std::map<std::string, Tensor> from_peft(std::map<std::string, Tensor> tensors,
                                          const std::vector<AdaptedLayer>& layers, const Json& config) const;

 private:
  std::set<std::string> globs_of(const std::set<std::string>& layers) const;

  std::map<std::string, std::vector<Part>> parts_;  // by layer
  std::map<std::string, Whole> whole_;              // by parameter
  bool transposed_ = false;
};

// What a run with adapters changes beside them, and what of it PEFT's format can hold.

struct AdapterRest {
  // Whole modules in fp32, without adapters: PEFT's modules_to_save.
  std::vector<std::string> modules;
  std::vector<Parameter*> parameters;
  std::vector<Module::Buffer> buffers;
  // All else that changes.
  std::vector<Parameter*> beyond_parameters;
  std::vector<Module::Buffer> beyond_buffers;
};
// Parameters that are not frozen, and buffers: running statistics and observed ranges change even without them.
AdapterRest rest_of_adapters(Module& model);

// The tensors of a PEFT file that are values of parameters and buffers of a model.
struct RestValues {
  struct Item {
    std::string name;      // in the file
    Parameter* parameter;  // nullptr: a buffer
    Module::Buffer buffer;
    Tensor values;
  };
  std::vector<Item> items;
  std::set<std::string> names;  // in the file
  std::set<std::string> paths() const;
};
// `tensors` by name with `prefix`. A tensor of another shape or dtype is a line of `wrong`.
RestValues rest_values(Module& model, const std::map<std::string, Tensor>& tensors, std::string_view prefix,
                       std::string& wrong);
void take(const RestValues& rest);
// Warns of parameters of the model that train and are not in `taken`. `from`: where values were read.
void warn_of_missing(Module& model, const std::set<std::string>& taken, const std::string& from);

// At most so many names, then their number.
std::string names_text(const std::vector<std::string>& names);

}  // namespace bitgrad::detail
