// The model of a configuration made small (two features, two outputs) in each form that prepare and the phases give it,
// so that the layers' own checks speak before any data are read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/config/source.h"
#include "train/config/specs.h"

namespace bitgrad::config {

class SmallModel {
 public:
  // What a layer says against a form of the model.
  struct Refusal {
    std::string text;          // empty: nothing
    const SourceMark* choice;  // of what chose how this form holds or switches the layer; nullptr: its own keys
  };

  // Reports rules that name no layer; then ok() is false.
  SmallModel(const RunConfig& config, Report& report);
  bool ok() const { return ok_; }
  // Of the first form that the layer refuses; `i` is its place, all before it were passed.
  Refusal refusal(size_t i, const LayerConfig& layer) const;
  // Whether a layer's own keys say how it is held: in a form that is on, or as no recipe ever does.
  bool by_own_keys(size_t i) const;
  // Goes behind a layer that refuses nothing.
  void pass(size_t i, const LayerConfig& layer);
  // The first dtype other than fp32 that a form gives behind the layers passed, else fp32.
  DType dtype() const;

 private:
  struct Choice {
    LayerQuant quant;
    SourceMark mark;
  };
  using Choices = std::map<std::string, Choice>;  // by path
  struct Form {
    Choices choices;
    QuantMode mode;
    SourceMark mark;  // of the phase
    TensorMeta meta;
  };
  static const Choice* choice_of(const Form& form, size_t i);
  bool choose(const PrepareConfig& c, const std::string& path, Module& model, Choices& choices, Report& report) const;
  static TensorMeta plan(const Form& form, size_t i, const LayerConfig& layer);

  std::vector<Form> forms_;
  bool ok_ = true;
};

}  // namespace bitgrad::config
