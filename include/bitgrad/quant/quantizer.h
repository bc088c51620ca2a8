// Quantizers: code without state. What a scheme learns or observes are tensors owned by nn. docs/numerics.md sections 2
// and 3.
//
// A quantizer fits scales to numbers, turns numbers into codes by them, and knows the straight-through rule of its
// backward; each exists once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/kernels/update_rows.h"
#include "bitgrad/quant/scheme.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// What codes a number: the kernel's rule and the clamp of the code.
struct CodeRange {
  CodeRule rule = {};
  int64_t lo = 0, hi = 0;
  // minmax_offset: the kernel counts from l = m + s * lo (two roundings) and adds lo, as a zero point
  bool from_lowest = false;
  // The kernel's offset is QuantParams::statistic (ternary_threshold, dorefa_weight, standardized_binary).
  bool from_statistic = false;
};

// A learned part of a scheme: one number per block (LSQ's step, LSQ+'s offset, PACT's clip). A parameter of its own in
// training, of shape [count of blocks].
struct LearnedPart {
  std::string_view name = {};       // "step", "offset", "clip": the end of the parameter's path
  std::optional<float> floor = {};  // kept at or above this after each update
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;
  virtual std::string_view name() const = 0;
  // Keys of its own, which stand beside `scheme` in a configuration; each has a default.
  virtual std::vector<Key> keys() const { return {}; }
  // The values of its keys for a spec: those given, else the defaults. Throws Error for values that do not fit.
  Attributes values_of_keys(const QuantSpec& spec) const { return completed(name(), keys(), spec.keys); }
  // Whether fit, params_of and leaf_backward also run while a device other than the CPU is current: then the tensors
  // lie there, and only functions of the library that act on the current device may touch their numbers (reduce,
  // Tensor's own, ...). find_quantizer gives no other scheme there.
  virtual bool on_device() const { return false; }
  // Whether the scheme can produce this dtype (and granularity, options); throws Error that says what to use instead.
  // `weight`: as a weight scheme.
  virtual void check(const QuantSpec& spec, bool weight) const = 0;
  virtual SteRule default_ste() const { return SteRule::kClip; }
  virtual CodeRange code_range(const QuantSpec& spec) const = 0;
  // Whether fit gives the same for every x (fixed; binary without alpha).
  virtual bool constant_params(const QuantSpec&) const { return false; }
  // Scales for x (fp32, canonical, dense). x must be finite (the caller looks at flags or finite()).
  virtual QuantParams fit(const QuantSpec& spec, const Tensor& x) const = 0;
  // What gives the params of fit, and the codes of x by them to `codes` (its shape, spec's dtype, canonical) and, where
  // that is defined, to `transposed` (layout `transposed`), from one read of x, with the errors of fit; nullptr: no
  // kernel of the current device does. Asked on devices other than the CPU, for x with elements and codes without a
  // mask or draws.
  using FitAndCode = QuantParams (*)(const QuantSpec& spec, const Tensor& x, const Tensor& codes,
                                     const Tensor& transposed);
  virtual FitAndCode fit_and_code(const QuantSpec&) const { return nullptr; }
  // Gradient of the master (or of the activations) x from the gradient of the value (both fp32, same shape; may be one
  // tensor). Applies the straight-through rule to the x that the codes came from. params: the scales that made them.
  // g_learned: one fp32 tensor [blocks] per learned part, to which the sums over the elements of x are added, without
  // the divisor learned_divisor; empty: not wanted. With g_learned, g_x may be undefined: not wanted (learned steps of
  // activations that are data).
  virtual void leaf_backward(const QuantSpec& spec, const QuantParams& params, const Tensor& x, const Tensor& g_value,
                             const Tensor& g_x, std::span<const Tensor> g_learned = {}) const;

  // Whether leaf_backward is more than the rule of section 3 on x, so that no mask of bits replaces it: the exact
  // derivatives of dorefa_weight and standardized_binary, alpha_grad, learned parts. A backward that knows codes only
  // by such a scheme keeps x and calls leaf_backward.
  virtual bool own_backward(const QuantSpec& spec) const { return !learned(spec).empty(); }

  // Whether scales follow from the range [low, high] of each block alone (affine, symmetric, absmax, minmax_offset):
  // what observers need. fit_range makes them; it throws Error for the other schemes. low, high: fp32 [blocks]; low >
  // high: a block without elements.
  virtual bool from_range() const { return false; }
  virtual QuantParams fit_range(const QuantSpec& spec, const Tensor& low, const Tensor& high) const;

  // How the scale of one row follows from its numbers, where a kernel that has the row can find it as it goes
  // (kernels/update_rows.h), with the bits of fit; none: it cannot. The scheme's scales are per row then.
  virtual std::optional<kernels::RowFit> row_fit(const QuantSpec&) const { return std::nullopt; }

  // Parts of the scheme that train (empty: none). A scheme with learned parts has params from them, not from x; its fit
  // gives params from first_learned.
  virtual std::vector<LearnedPart> learned(const QuantSpec&) const { return {}; }
  // First values, from x (LSQ: 2 mean abs x / sqrt(Qp)): one tensor [blocks] per part.
  virtual std::vector<Tensor> first_learned(const QuantSpec& spec, const Tensor& x) const;
  virtual QuantParams params_of(const QuantSpec& spec, std::span<const Tensor> learned) const;
  // What the sums of leaf_backward are divided by, n elements sharing one learned number (LSQ: sqrt(n * Qp)).
  virtual float learned_divisor(const QuantSpec&, int64_t) const { return 1.0f; }
};

// Built-in and registered quantizers by name. find_quantizer throws Error that lists the names and the nearest, and
// Error(kDevice) when the current device is not the CPU and the scheme knows the CPU alone (on_device).
const Quantizer& find_quantizer(std::string_view name);
// To ask what a scheme is, wherever it works.
const Quantizer& known_quantizer(std::string_view name);
std::vector<std::string_view> quantizer_names();
// Adds a scheme from a user's program or plugin. Throws Error for a known name, and for a key that does not read, has
// no default, is one of QuantSpec's members or of a weight, or is described otherwise by another scheme.
void register_quantizer(std::unique_ptr<Quantizer> quantizer);

// What quantize_tensor makes beside the codes.
struct QuantizeOptions {
  const RandomStream* sr = nullptr;  // needed when spec.rounding is stochastic
  int64_t first_element = 0;
  Tensor* mask =
      nullptr;  // gets the straight-through bits: bint1 [rows, cols] (raw 1 = passes); left undefined when all pass
  uint32_t* flags = nullptr;  // non-finite bits, in memory of the current device; nullptr: Error(kNonFinite)
  MemoryKind kind = MemoryKind::kActivation;
  Tensor* into = nullptr;  // codes are written here (same shape and dtype) instead of a new tensor
  // The codes in layout `transposed` too, attached to the result: written where `into` has it attached, else new, of
  // kind saved.
  bool transposed = false;
};
// The place of the sums of rows (Tensor::row_sums) that whoever makes the codes fills: attached to codes of one bit on
// the current device where its products of bits need them (wgmma), a new one if there is none. Elsewhere undefined.
Tensor row_sums_place(Tensor& codes);
// Codes of x (fp32) by given scales, with the params attached.
Tensor quantize_tensor(const QuantSpec& spec, const Tensor& x, std::shared_ptr<const QuantParams> params,
                       const QuantizeOptions& options = {});
// fit, then quantize_tensor. Empty x is legal.
Tensor quantize_dynamic(const QuantSpec& spec, const Tensor& x, const QuantizeOptions& options = {});
// Values of a quantized tensor as fp32 (a full copy; for users and tests, never in a training step).
Tensor dequantize_tensor(const Tensor& x, MemoryKind kind = MemoryKind::kActivation);

// gx = gradient through a quantizer of activations: mask, or the rules approx_sign and tanh on x. g and the result
// fp32. For schemes without own_backward.
Tensor straight_through(const QuantSpec& spec, const Tensor& g, const Tensor& mask, const Tensor& x_if_needed);
// The rule that holds for a spec: its own, or the scheme's default.
SteRule ste_rule(const QuantSpec& spec);

}  // namespace bitgrad
