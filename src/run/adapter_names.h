// Names of a decoder's adapters in PEFT: those of the modules of transformers. q, k and v (gate and up) are one weight
// here and several there: each has the same lora_A, and rows of lora_B.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/nn/adapter.h"

namespace bitgrad::detail {

inline constexpr std::string_view kPeftPrefix = "base_model.model.";

class PeftNames {
 public:
  struct Part {
    std::string module;  // "model.layers.0.self_attn.q_proj"
    int64_t begin = 0, rows = 0;
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
  std::map<std::string, std::string> whole_;        // parameter: tensor
  bool transposed_ = false;
};

}  // namespace bitgrad::detail
