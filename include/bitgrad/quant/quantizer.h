// Quantizers: stateless code. Whatever a scheme learns or observes is kept in tensors owned by nn. docs/numerics.md
// sections 2 and 3.
//
// A quantizer fits scales to values, turns values into codes with them, and implements the straight-through rule of its
// backward pass. An observer tracks the range of values, from which a quantizer fits scales.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/rng.h"
#include "bitgrad/quant/scheme.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// How values become codes: the kernel rule and the clamp of the code.
struct CodeRange {
  CodeRule rule = {};
  int64_t lo = 0, hi = 0;
  // minmax_offset: the kernel starts at l = m + s * lo (two roundings) and adds lo as a zero point.
  bool from_lowest = false;
  // The kernel's offset is QuantParams::statistic (ternary_threshold, dorefa_weight, standardized_binary).
  bool from_statistic = false;
};

// A learned part of a scheme: one value per block (the step of LSQ, the offset of LSQ+, the clip of PACT). In training
// it is a parameter of its own, of shape [blocks].
struct LearnedPart {
  std::string_view name = {};       // "step", "offset", "clip": last component of the parameter's path
  std::optional<float> floor = {};  // lower bound, enforced after each update
};
// The value of a learned step (clip) for a block x: max(`factor` mean abs x, floor), or `constant`, if above 0.
// `steps`: quantization steps in one unit of it. A second part, the real offset, becomes min(0, min x) with `low`, or
// 0.
struct StepFit {
  float factor = 1, steps = 1, constant = 0;
  bool low = false;
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;
  virtual std::string_view name() const = 0;
  // The scheme's own keys, next to `scheme` in a configuration. Each has a default.
  virtual std::vector<Key> keys() const { return {}; }
  // Values of these keys for a spec, with defaults for those not given. Throws Error for invalid values.
  Attributes values_of_keys(const QuantSpec& spec) const { return completed(name(), keys(), spec.keys); }
  // Whether fit, params_of and leaf_backward also run while a device other than the CPU is current. The tensors are
  // then on that device, so these functions may access elements only through library functions that act on the current
  // device (reduce, methods of Tensor, ...). On a device, find_quantizer rejects all other schemes.
  virtual bool on_device() const { return false; }
  // Throws Error, suggesting an alternative, unless the scheme supports the dtype, granularity and options of `spec`.
  // `weight`: as a weight scheme.
  virtual void check(const QuantSpec& spec, bool weight) const = 0;
  virtual SteRule default_ste() const { return SteRule::kClip; }
  virtual CodeRange code_range(const QuantSpec& spec) const = 0;
  // Whether fit returns the same for every x (fixed; binary without alpha).
  virtual bool constant_params(const QuantSpec&) const { return false; }
  // Whether fit, the function of fit_and_code and first_learned read x of bf16, whose values are the widened ones. If
  // not, they are called with a copy in fp32.
  virtual bool reads_bf16() const { return false; }
  // Computes scales for x (fp32, or bf16 if reads_bf16; canonical, dense). x must be finite; the caller checks.
  virtual QuantParams fit(const QuantSpec& spec, const Tensor& x) const = 0;
  // Returns a function that computes the params of fit and writes the codes of x to `codes` (shape of x, dtype of spec,
  // canonical) and, if defined, to `transposed` (layout `transposed`) and to the row sums that one-bit codes carry
  // (Tensor::row_sums), in one read of x and with the errors of fit.
  // nullptr if the current device has no such kernel. Called only on devices other than the CPU, for non-empty x and
  // codes without mask or draws.
  using FitAndCode = QuantParams (*)(const QuantSpec& spec, const Tensor& x, const Tensor& codes,
                                     const Tensor& transposed);
  virtual FitAndCode fit_and_code(const QuantSpec&) const { return nullptr; }
  // Computes the gradient of the master (or activation) x from the gradient of the quantized value; both fp32, same
  // shape, may be the same tensor. Applies the straight-through rule at the x that was quantized, with the scales
  // `params`. g_learned: one fp32 tensor [blocks] per learned part, to which the sums over the elements of x are added,
  // not yet divided by learned_divisor; empty: not wanted. With g_learned, g_x may be undefined if not wanted (learned
  // steps of activations that are data).
  virtual void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                             const Tensor& g_x, std::span<const Tensor> g_learned = {}) const;

  // Whether leaf_backward does more than apply the rule of section 3 to x, so that a bit mask cannot replace it: the
  // exact derivatives of dorefa_weight and standardized_binary, alpha_grad, learned parts. For such a scheme, a
  // backward pass that otherwise needs only codes must keep x and call leaf_backward.
  virtual bool own_backward(const QuantSpec& spec) const { return !learned(spec).empty(); }

  // Whether scales depend only on the range [low, high] of each block (affine, symmetric, absmax, minmax_offset), which
  // observers require. fit_range computes them, and throws Error for other schemes. low, high: fp32 [blocks]; low >
  // high marks a block without elements.
  virtual bool from_range() const { return false; }
  virtual QuantParams fit_range(const QuantSpec& spec, const Tensor& low, const Tensor& high) const;

  // How a kernel that holds one row at a time can compute the scale of that row (kernels/update_rows.h), with the bits
  // of fit; nullopt if it cannot. Of other blocks, too, that is then the scale, and params hold no statistic:
  // ranks join parts of a block by it (nn/requantization.h).
  virtual std::optional<kernels::RowFit> row_fit(const QuantSpec&) const { return std::nullopt; }

  // The parts of the scheme that are trained; empty if none. A scheme with learned parts takes its params from them
  // rather than from x; its fit returns params from first_learned.
  virtual std::vector<LearnedPart> learned(const QuantSpec&) const { return {}; }
  // Initial values, computed from x (LSQ: 2 mean abs x / sqrt(Qp)): one tensor [blocks] per part.
  virtual std::vector<Tensor> first_learned(const QuantSpec& spec, const Tensor& x) const;
  virtual QuantParams params_of(const QuantSpec& spec, std::span<const Tensor> learned) const;
  // How learned steps that carry no signal are fitted again in training; nullopt: they are not.
  virtual std::optional<StepFit> step_fit(const QuantSpec&) const { return std::nullopt; }
  // Divisor of the sums of leaf_backward when n elements share a learned value (LSQ: sqrt(n * Qp)).
  virtual float learned_divisor(const QuantSpec&, int64_t) const { return 1.0f; }
};

// Returns a built-in or registered quantizer. Throws Error listing all names and the nearest one if there is none, and
// Error(kDevice) if the current device is not the CPU and the scheme runs only there (on_device).
const Quantizer& find_quantizer(std::string_view name);
// As find_quantizer, but without the device check: for querying properties of a scheme.
const Quantizer& known_quantizer(std::string_view name);
std::vector<std::string_view> quantizer_names();
// Adds a scheme from a program or plugin. Throws Error for a known name, and for a key that is invalid, has no default,
// collides with a member of QuantSpec or a key of weights, or is described differently by another scheme.
void register_quantizer(std::unique_ptr<Quantizer> quantizer);

// Options and additional outputs of quantize_tensor.
struct QuantizeOptions {
  const RandomStream* sr = nullptr;  // required if spec.rounding is stochastic
  int64_t first_element = 0;         // for the draws: element index of x[0][0]
  Tensor* mask =
      nullptr;  // receives the straight-through bits: bint1 [rows, cols] (raw 1 = passes); left undefined if all pass
  uint32_t* flags = nullptr;  // receives non-finite bits, on the current device; nullptr: throws Error(kNonFinite)
  MemoryKind kind = MemoryKind::kActivation;
  Tensor* into = nullptr;  // receives the codes (same shape and dtype); nullptr: a new tensor
  // Also attaches the codes in layout `transposed`: written to the tensor attached to `into` if there is one, else new,
  // of kind saved.
  bool transposed = false;
};
// Returns the tensor that receives the row sums (Tensor::row_sums) of `codes` from the kernel that writes them:
// attached to `codes`, or a new one if products on the current device may read it (wgmma): those of one-bit codes
// always do, those of int8 and uint8 codes if the other operand has zero points. So a new one is made for one-bit codes
// and for weights, whose codes serve many products. Undefined otherwise, also if sums are attached: on the CPU, without
// wgmma.
Tensor row_sums_place(Tensor& codes, bool weight = false);
// Quantizes x (fp32) with given scales; returns codes with the params attached. Values between layers, which may be
// bf16, are quantized by the ops (ops.h).
Tensor quantize_tensor(const QuantSpec& spec, const Tensor& x, std::shared_ptr<const QuantParams> params,
                       const QuantizeOptions& options = {});
// fit, then quantize_tensor. x may be empty.
Tensor quantize_dynamic(const QuantSpec& spec, const Tensor& x, const QuantizeOptions& options = {});
// Values of a quantized tensor as fp32: a full copy, for users and tests; never used in a training step.
Tensor dequantize_tensor(const Tensor& x, MemoryKind kind = MemoryKind::kActivation);

// Gradient through an activation quantizer: uses the mask, or the rules approx_sign and tanh on x. g and the result are
// fp32. Only for schemes without own_backward.
Tensor straight_through(const QuantSpec& spec, const Tensor& g, const Tensor& mask, const Tensor& x_if_needed);
// The straight-through rule in effect: that of the spec, else the default of its scheme.
SteRule ste_rule(const QuantSpec& spec);

// Tracks the range of activations over many batches, so that scales can be fixed. docs/numerics.md section 2. The state
// of an observer is a list of named tensors (fp32 or int64), which its owner saves. To resume, the owner copies the
// saved values into them.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual std::string_view name() const = 0;
  // Updates the range with one batch x, fp32 or bf16 [n, f]. An empty x has no effect. Throws Error(kNonFinite) for NaN
  // or Inf. `calibrating`: x is a part of a set of samples whose parts count the same, so a moving average, too, widens
  // to all of them.
  virtual void observe(const Tensor& x, bool calibrating = false) = 0;
  // Whether any non-empty batch was observed.
  virtual bool ready() const = 0;
  // Scales for the observed range by the scheme of `spec`. Throws Error if no batch was observed yet.
  virtual QuantParams params(const QuantSpec& spec) const = 0;

  // min_max, moving_average: low and high, fp32 [blocks]; batches, int64 [1]. percentile, mse: also counts of abs x,
  // int64 [2048] (mse: [4096], x >= 0 followed by x < 0), and exponent, int64 [1]. They share the observer's memory.
  struct State {
    std::string_view name = {};
    Tensor tensor = {};
  };
  virtual std::vector<State> state() const = 0;
};

std::vector<std::string_view> observer_names();
// Throws Error for an unknown name, a value out of range, a scheme without from_range, or a granularity that the
// observer does not support: min_max and moving_average support tensor and channel (axis 1, `features` blocks);
// percentile and mse only tensor.
std::unique_ptr<Observer> make_observer(const ObserverSpec& observer, const QuantSpec& spec, int64_t features);

}  // namespace bitgrad
