// prepare and convert, the counterparts of torchao's quantize_(QATConfig) / convert and FX's prepare_qat. A prepared
// model runs the same products on the same codes as the converted one and merely keeps the masters as well, so both
// give the same bits (docs/numerics.md section 9).
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/nn/quantizable.h"

namespace bitgrad {

// Recipes: named LayerQuants. Listed in src/nn/recipes.inc: none, int8wo ... int2wo (weight only, symmetric), int4wo
// (torchao's: uint4 with an offset), int4wo_symmetric, binary_wo, ternary_wo, nf4wo, 8da4w, w8a8, w4a8, w4a4, w2a2,
// w1a2, w1a1, ternary_int8 (BitNet b1.58). Table in docs/quantization.md.
std::vector<std::string> recipe_names();
// Throws Error for an unknown name; the message lists the names and the nearest match.
LayerQuant find_recipe(const std::string& name);
// Adds a recipe from a user's program, with quant.recipe set to `name`. Throws Error if the name is taken.
void register_recipe(const std::string& name, LayerQuant quant);

// Applies `quant` to layers whose full path matches the glob: * any characters, ? one character, [abc] [a-c] [!a] one
// of a set.
struct QuantRule {
  std::string layers = {};
  LayerQuant quant = {};
};
// Later entries win: all, then first and last (the first and last quantizable layer, depth first), then the rules in
// order. Layers that no entry selects are left unchanged.
struct PrepareSpec {
  std::optional<LayerQuant> all = {}, first = {}, last = {};
  std::vector<QuantRule> rules = {};
  bool empty() const { return !all && !first && !last && rules.empty(); }
};

// A quantizable layer and what a spec would assign to it.
struct LayerChoice {
  std::string layer = {};  // path
  Quantizable* slot = nullptr;
  std::optional<LayerQuant> quant = {};  // nullopt: not selected
  std::string rule = {};                 // the winning entry: "all", "first", "last", or the glob
};
// Resolves the spec without changing anything; depth-first order. `root` is the model's path while initialize has not
// set one. Throws Error for a glob that matches no layer; the message lists the layers.
std::vector<LayerChoice> choose_layers(Module& model, const PrepareSpec& spec, const std::string& root = kModelRoot);
// Quantizes the model's layers as the spec says, before or after initialize. After it, layouts must be planned again
// and the optimizer attached again; Learner does both. All choices are checked before anything changes; if one is
// rejected, throws an Error that names the layer and the rule.
void prepare(Module& model, const PrepareSpec& spec, const std::string& root = kModelRoot);
// Also switches the mode of all layers, selected or not. Each weight converts from its old form to the new one in a
// single step.
void prepare(Module& model, const PrepareSpec& spec, const QuantMode& mode, const std::string& root = kModelRoot);
// Reduces every layer to its codes. Nothing trains any more; observed ranges and learned parts of inputs keep their
// values, and layers that are switched off stay fp32. Throws Error if the model is not initialized. Whoever holds
// pointers to learned parts of weights (an optimizer, a training Learner) can afterwards only evaluate.
void convert(Module& model);
// Quantizes what layers without weights read (Module::quantize_operands) as the input of the first slot with compute:
// integer, and removes these quantizers where no slot has it. prepare and convert do so; call it after slots were set
// one by one.
void operands_follow_slots(Module& model);
// Sets the mode of all quantizable layers and quantize layers. Throws Error before anything changes.
void set_quant_mode(Module& model, const QuantMode& mode);

// Marks the weights that rules such as Muon update (Parameter::hidden): those of linear and convolutional layers, but
// not of the last quantizable layer, and not one that an embedding or the last layer shares; and the adapters of these
// layers.
void mark_hidden_weights(Module& model);

// One row of the quantization table.
struct LayerSummary {
  std::string layer = {}, kind = {}, recipe = {};
  Shape shape = {};                     // of the weight
  std::string weight = {}, input = {};  // "int4 symmetric group(32)" or "fp32"; "int8 affine token" or "as is"
  std::string range = {};               // of codes and scales: "[-8, 7] x 0.0021 .. 0.0113"; empty for fp32
  std::string compute = {};             // "packed", "simulated", "integer_out"
  int64_t bytes = 0;                    // of codes and scales, as in a file; 0 where another layer owns the weight
  int64_t resident_bytes = 0;           // including derived layouts and master
};
std::vector<LayerSummary> summarize(Module& model);
// Prints one line per layer, including quantize layers, and the total size of the weights in bytes.
void print_quantization(std::ostream& out, Module& model);

// Runs `batches` (each x [n, sample...]) in evaluation mode with observers on, so that ranges are found and learned
// activation steps get their first values (post-training quantization; docs/numerics.md section 9). `before`, if given,
// is called with each batch. Throws Error(kNonFinite) if an input holds NaN or Inf.
void calibrate(Module& model, StepState& state, std::span<const Tensor> batches,
               const std::function<void(const Tensor&)>& before = {});

}  // namespace bitgrad
