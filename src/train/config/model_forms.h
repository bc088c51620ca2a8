// The model of a configuration, described but without memory, in each form that prepare and the phases give it: so that
// the layers' own checks speak before any data are read.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "train/config/source.h"
#include "train/config/specs.h"

namespace bitgrad::config {

class ModelForms {
 public:
  // What a layer says against a form of the model.
  struct Refusal {
    std::string place;  // of the layer, as LayerError has it
    std::string text;
    const SourceMark* choice;  // of what chose how this form holds or switches the layer; nullptr: its own keys
  };

  // Reports layers that cannot be made, and rules that name none; then ok() is false.
  ModelForms(const RunConfig& config, Report& report);
  bool ok() const { return ok_; }
  // The first one, in the order of forms and layers. What follows from the shape of a sample alone, which is not known
  // yet, is left to the model that is built for the data.
  std::optional<Refusal> refusal(const std::vector<LayerConfig>& layers);
  // Whether a layer's own keys say how it is held: in a form that is on, or as no recipe ever does. `places`: where the
  // layer stands, once for each round of a repetition.
  bool by_own_keys(const std::vector<std::string>& places) const;
  // After refusal found none: the first dtype other than fp32 that a form gives as output, else fp32.
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
  std::optional<Refusal> refusal_in(QuantForm& form, const std::vector<LayerConfig>& layers) const;

  std::vector<QuantForm> forms_;
  DType input_, values_;
  bool plans_ = true;  // false: layers look at axes of a sample that is not known yet
  bool ok_ = true;
};

// Calls f(layer, places) for each layer that is no container.
void for_each_place(const std::vector<LayerConfig>& layers,
                    const std::function<void(const LayerConfig&, const std::vector<std::string>&)>& f);

}  // namespace bitgrad::config
