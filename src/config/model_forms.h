// The model of a configuration, described but without memory, in each form that prepare and the phases produce. Runs
// the layers' own checks before any data are read.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "config/source.h"
#include "config/specs.h"

namespace bitgrad::config {

class ModelForms {
 public:
  // An error of a layer in some form of the model.
  struct Refusal {
    std::string place;  // of the layer, as in LayerError
    std::string text;
    const SourceMark* choice;  // the rule or phase that set this layer's quantization; nullptr: its own keys
  };

  // Reports layers that cannot be made, and rules that match no layer; ok() is false then.
  ModelForms(const RunConfig& config, Report& report);
  bool ok() const { return ok_; }
  // The first error, in the order of forms and layers. Errors that depend on the shape of a sample, which is not known
  // yet, are left to the model built for the data.
  std::optional<Refusal> refusal(const std::vector<LayerSpec>& layers);
  // Whether a layer's own keys determine its quantization: in a form that is switched on, or because no recipe ever
  // sets it. `places`: the places of the layer, one for each round of a repetition.
  bool by_own_keys(const std::vector<std::string>& places) const;
  // Call after refusal() found none. The first output dtype of a form that is not fp32, otherwise fp32.
  DType dtype() const;

 private:
  struct Choice {
    LayerQuant quant;
    SourceMark mark;
  };
  using Choices = std::map<std::string, Choice>;  // by path
  struct QuantForm {
    Choices choices;
    QuantMode mode;
    SourceMark mark;  // of the phase
    DType output = dtypes::fp32;
  };
  static const Choice* choice_of(const QuantForm& form, const std::string& place);
  bool choose(const PrepareConfig& c, const std::string& path, Module& model, Choices& choices, Report& report) const;
  static std::optional<Refusal> prepare_layers(const QuantForm& form, Module& model);
  std::optional<Refusal> refusal_in(QuantForm& form, const std::vector<LayerSpec>& layers) const;

  std::vector<QuantForm> forms_;
  DType input_, values_;
  bool plans_ = true;  // false: some layers depend on axes of a sample, not known yet
  bool ok_ = true;
};

// Calls f(layer, places) for each layer that is not a container.
void for_each_place(const std::vector<LayerSpec>& layers,
                    const std::function<void(const LayerSpec&, const std::vector<std::string>&)>& f);

}  // namespace bitgrad::config
