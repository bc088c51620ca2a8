// Precision of parameters and layers, as plain data: how they are initialized, stored, trained and multiplied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/ops/product_modes.h"
#include "bitgrad/quant/fixed_point.h"
#include "bitgrad/quant/scheme.h"

namespace bitgrad {

class Shape;
class Tensor;

// Initial values of masters, drawn from Philox with purpose kInit, the id of the parameter's path, and step 0.
// One of the rules below; a and b are the rule's arguments, if it has any. fan_in = columns, fan_out = rows.
//   constant(c), uniform(a,b), normal(mean,sd), zeros
// Glorot and Bengio 2010, eq. 16:
//   glorot_uniform:  U(-r, r), r = sqrt(6 / (fan_in + fan_out))
//   glorot_normal:   sd = sqrt(2 / (fan_in + fan_out))
// He et al. 2015, arXiv 1502.01852:
//   he_uniform:      U(-r, r), r = sqrt(6 / fan_in)
//   he_normal:       sd = sqrt(2 / fan_in)
// An empty name selects the default, as in configurations: glorot_uniform, or normal(0,1) for embedding tables.
// Built-in layers initialize biases to 0 and norm parameters to 1 and 0. For a bias of a user module that should start
// at 0, use {"zeros"}.
struct Init {
  std::string name = {};
  double a = 0, b = 0;
  friend bool operator==(const Init&, const Init&) = default;
};

// fan_in and fan_out of a weight whose fans are not the columns and rows of its matrix (convolutions: kh*kw*C and
// O*kh*kw). 0: use the matrix.
struct Fans {
  int64_t in = 0, out = 0;
  friend bool operator==(const Fans&, const Fans&) = default;
};

std::vector<std::string_view> init_names();
// `out` (fp32) receives elements first, first + 1, ... (row-major) of a tensor of shape `whole`. Throws Error for an
// unknown name; an empty name means glorot_uniform.
void initialize_part(const Init& init, uint64_t seed, std::string_view path, const Shape& whole, int64_t first,
                     const Tensor& out, Fans fans = {});

// The master that a low-bit parameter keeps beside its codes. docs/numerics.md section 6.
enum class MasterKind : uint8_t {
  kFp32,
  kBf16,  // updates are rounded stochastically to bf16
  kNone,  // no master: updates are rounded stochastically into the codes, or flip them (Bop)
};
template <>
struct EnumNames<MasterKind> {
  static constexpr std::string_view all[] = {"fp32", "bf16", "none"};
};
// Storage of an optimizer's moments.
enum class MomentKind : uint8_t {
  kFp32,
  kBf16,  // m rounds to nearest even, v stochastically
  kInt8,  // blocks of 256 elements with an fp32 absmax scale: m as int8, sqrt(v) as uint8; stochastic rounding
  kInt4,  // the same in 4 bits
};
template <>
struct EnumNames<MomentKind> {
  static constexpr std::string_view all[] = {"fp32", "bf16", "int8", "int4"};
};

struct ParameterSpec {
  std::optional<QuantSpec> quant = {};     // nullopt: fp32
  DType grad = dtypes::fp32;               // fp32 or bf16
  Init init = {};                          // empty name: glorot_uniform
  std::optional<float> latent_clamp = {};  // masters are clamped to [-c, c] after each update
  MasterKind master = MasterKind::kFp32;
  std::optional<MomentKind> moments = {};  // nullopt: the optimizer's
  std::string optimizer =
      {};  // empty: the run's; "aux": OptimizerSpec::aux where there is one; "bop": bint1 codes without a master
  int64_t matrices = 0;                    // of equal size, one below the other, for muon; 0: those of its reader
  float lr_factor = 1.0f;                  // relative to the run's learning rate
  std::optional<float> weight_decay = {};  // nullopt: the optimizer's
  std::optional<float> floor = {};         // lower bound, enforced after each update (learned steps and clips)
  bool frozen = false;                     // no gradient, no update
  LearnedSpec learned = {};                // of learned steps, clips and offsets of `quant`
  bool scales_frozen = false;              // codes are made with the current scales, and learned parts do not train
  bool converted = false;  // irreversibly reduced to its value: no master, no learned parts, no gradient

  // dtype of the value: that of the codes, or fp32.
  DType dtype() const { return quant ? quant->dtype : dtypes::fp32; }
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

// How a linear or convolutional layer computes its forward product. docs/numerics.md section 5.
enum class Compute : uint8_t {
  kPacked,      // multiplies the packed operands; float output (the default)
  kSimulated,   // float simulation: the operands are dequantized first
  kIntegerOut,  // as kPacked, but the output stays int32 with a scale
  // The model is a network of integers in evaluation and in files (nn/integer_graph.h), of all its layers together. In
  // training as kPacked, but that codes are those of the network where ranges and statistics are fixed.
  kInteger,
};
template <>
struct EnumNames<Compute> {
  static constexpr std::string_view all[] = {"packed", "simulated", "integer_out", "integer"};
};

// How a layer computes its products.
struct ProductSpec {
  Compute compute = Compute::kPacked;
  ProductMode gx = ProductMode::kFp32, gw = ProductMode::kFp32;  // backward; anything but fp32 requires compute packed
  Rounding rounding = Rounding::kStochastic;                     // of gradients to int8
  bool per_group = false;  // gx int8 for weights with group scales: one product per group
  friend bool operator==(const ProductSpec&, const ProductSpec&) = default;
};

// How activations become codes: those of a quantize layer, or of the input of a layer with weights.
struct ActivationQuant {
  QuantSpec spec = {};
  std::optional<ObserverSpec> observer = {};  // nullopt: scales are computed per batch
  DType grad = dtypes::fp32;                  // dtype of the gradient that is passed back, fp32 or bf16
  LearnedSpec learned = {};
  friend bool operator==(const ActivationQuant&, const ActivationQuant&) = default;
};

// Precision and compute mode of one layer. Plain data: recipes name one, rules assign one.
struct LayerQuant {
  std::string recipe = "none";                // name of the recipe it came from, for display: "8da4w", "custom"
  std::optional<QuantSpec> weight = {};       // nullopt: fp32
  std::optional<QuantSpec> input = {};        // of the layer's input; nullopt: used as is. Ignored by embeddings
  std::optional<ObserverSpec> observer = {};  // for the input; nullopt: scales are computed per batch
  Compute compute = Compute::kPacked;
  OutputRounding output_rounding = OutputRounding::kDouble;  // of compute kInteger; the same in all layers of a model
  // Training settings of the weight; nullopt: as in the layer's own spec.
  std::optional<MasterKind> master = {};
  std::optional<DType> grad = {};
  std::optional<float> latent_clamp = {};
  DType input_grad = dtypes::fp32;  // dtype of the gradient that the input's quantizer passes back, fp32 or bf16
  LearnedSpec learned = {};         // of learned steps, clips and offsets of both weight and input
  friend bool operator==(const LayerQuant&, const LayerQuant&) = default;
};

// Quantization switches of a model in training.
enum class QuantSwitch : uint8_t {
  kOn,
  kOff,     // weights are their fp32 values, inputs pass through unquantized; observers keep running if enabled
  kFrozen,  // scales of weights, learned parts and observed ranges are fixed; codes still follow the masters
};
template <>
struct EnumNames<QuantSwitch> {
  static constexpr std::string_view all[] = {"on", "off", "frozen"};
};
struct QuantMode {
  QuantSwitch quantization = QuantSwitch::kOn;
  bool observers = true;        // false: observed ranges are fixed
  bool norm_statistics = true;  // false: norms use their running statistics in training too, and leave them
  friend bool operator==(const QuantMode&, const QuantMode&) = default;
};

}  // namespace bitgrad
