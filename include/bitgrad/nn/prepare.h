// prepare and convert: what torchao's quantize_(QATConfig) and convert, or FX's prepare_qat, are elsewhere. A prepared
// model runs the products that the converted one runs, on the same codes; it only keeps the masters beside them. So
// both give equal bits (docs/numerics.md section 9).
#pragma once

#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/nn/quantizable.h"

namespace bitgrad {

// Recipes: a name for a LayerQuant. Lines of src/nn/recipes.inc: none, int8wo ... int2wo (weights alone, symmetric),
// int4wo (as torchao's: uint4 with an offset), int4wo_symmetric, binary_wo, ternary_wo, nf4wo, 8da4w, w8a8, w4a8, w4a4,
// w2a2, w1a2, w1a1, ternary_int8 (BitNet b1.58). docs/quantization.md has the table.
std::vector<std::string> recipe_names();
// Throws Error for an unknown name (lists the names and the nearest).
LayerQuant find_recipe(const std::string& name);
// Adds a recipe from a user's program; quant.recipe becomes `name`. A known name throws Error.
void register_recipe(const std::string& name, LayerQuant quant);

// Layers whose path matches the glob: * any characters, ? one, [abc] [a-c] [!a] one of a set.
struct QuantRule {
  std::string layers = {};
  LayerQuant quant = {};
};
// Later ones win: all, then first, then last (the first and the last quantizable layer, depth first), then the rules in
// order. A layer that nothing names stays as it is.
struct PrepareSpec {
  std::optional<LayerQuant> all = {}, first = {}, last = {};
  std::vector<QuantRule> rules = {};
  bool empty() const { return !all && !first && !last && rules.empty(); }
};

// One quantizable layer and what a spec would make of it.
struct LayerChoice {
  std::string layer = {};  // path
  Quantizable* slot = nullptr;
  std::optional<LayerQuant> quant = {};  // none: no rule names it
  std::string rule = {};                 // "all", "first", "last", or the glob that won
};
// In depth-first order; changes nothing. `root`: the path of the model before initialize has named it. Throws Error for
// a glob that matches no layer (lists the layers).
std::vector<LayerChoice> choose_layers(Module& model, const PrepareSpec& spec, const std::string& root = kModelRoot);
// Quantizes the layers of the model as the spec says; before initialize or after it (then layouts must be planned and
// the optimizer attached anew: Learner does both). All choices are checked before anything changes; a refused one is an
// Error that names the layer and the rule.
void prepare(Module& model, const PrepareSpec& spec, const std::string& root = kModelRoot);
// And switches the model, layers that nothing names too. Each weight goes from its form of now to the new one at once.
void prepare(Module& model, const PrepareSpec& spec, const QuantMode& mode, const std::string& root = kModelRoot);
// Every layer keeps codes alone; nothing of the model trains any more, observed ranges and learned parts stay as they
// are. Layers that are switched off stay fp32. The model is initialized. Who has pointers to learned parts of weights
// (an optimizer, a Learner that trains) is of no further use but for evaluation.
void convert(Module& model);
// Switches all quantizable layers and quantize layers of the model.
void set_quant_mode(Module& model, const QuantMode& mode);

// One row of the table that a model prints.
struct LayerSummary {
  std::string layer = {}, kind = {}, recipe = {};
  Shape shape = {};                     // of the weight
  std::string weight = {}, input = {};  // "int4 symmetric group(32)", "int8 affine token", "fp32"
  std::string range = {};               // of the codes and of their values: "[-8, 7] x 0.0021 .. 0.0113"
  std::string compute = {};             // packed, simulated, integer_out
  int64_t bytes = 0;                    // of codes and scales, as in a file
  int64_t resident_bytes = 0;           // with derived layouts and master
};
std::vector<LayerSummary> summarize(Module& model);
// The table, one layer a line, quantize layers too, and the sum of the weights' bytes.
void print_quantization(std::ostream& out, Module& model);

// Runs batches in evaluation mode with observers on, so that ranges are found and learned steps of activations take
// their first values: post-training quantization. `batches` x [n, features] as forward takes them.
void calibrate(Module& model, StepState& state, std::span<const Tensor> batches);

}  // namespace bitgrad
