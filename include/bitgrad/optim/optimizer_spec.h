// Settings of an optimizer, as data. Each is a line of optimizer_fields.inc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/precision.h"

namespace bitgrad {

// Rule bop (Helwegen et al. 2019, arXiv 1906.02107): a weight flips if |average| exceeds `threshold` and has its sign.
struct BopSpec {
  float gamma = 1e-4f;  // rate of the moving average of the gradient
  float threshold = 1e-8f;
  friend bool operator==(const BopSpec&, const BopSpec&) = default;
};

// Size of an orthogonalized [m, n] update (muon, normuon).
enum class UpdateScale : uint8_t {
  kRms,       // 0.2 * sqrt(max(m, n)): the root mean square of AdamW's updates. Liu et al. 2025, arXiv 2502.16982
  kSpectral,  // sqrt(max(1, m / n)). Jordan 2024, kellerjordan.github.io/posts/muon
  kNone,
};
template <>
struct EnumNames<UpdateScale> {
  static constexpr std::string_view all[] = {"rms", "spectral", "none"};
};

// Coefficients (a, b, c) of the Newton-Schulz iterations of an orthogonalization.
enum class NsCoefficients : uint8_t {
  kJordan,        // (3.4445, -4.7750, 2.0315) in every iteration. Jordan 2024
  kPolarExpress,  // optimal for each iteration. Amsel et al. 2025, arXiv 2505.16932
};
template <>
struct EnumNames<NsCoefficients> {
  static constexpr std::string_view all[] = {"jordan", "polar_express"};
};

// dtype of the products of an orthogonalization.
enum class NsDType : uint8_t {
  kFp32,
  kBf16,  // the matrix is rounded to bf16 after each iteration, sums are fp32; not in strict mode
};
template <>
struct EnumNames<NsDType> {
  static constexpr std::string_view all[] = {"fp32", "bf16"};
};

struct OptimizerSpec {
  std::string name = "sgd";  // a line of optimizers.inc, or a registered name (register_optimizer)
  // Open numbers are those of the rule (fill_defaults).
  std::optional<float> momentum = {};      // sgd (0), muon, normuon (0.95)
  std::optional<bool> nesterov = {};       // sgd (false), muon, normuon (true)
  std::optional<double> beta1 = {};        // adam, adamw, lion (0.9)
  std::optional<double> beta2 = {};        // adam, adamw (0.999), lion (0.99), normuon (0.95)
  float eps = 1e-8f;                       // adam, adamw
  float weight_decay = 0;                  // sgd, adam: added to the gradient; others: decoupled; bop: unused
  bool decay_vectors = true;               // false: weight_decay applies only to parameters with two or more axes
  MomentKind moments = MomentKind::kFp32;  // of parameters that do not specify their own
  double base_lr = 0;  // learning rate before the schedule; bop: gamma scales with lr / base_lr (0: constant)
  BopSpec bop = {};    // for parameters of optimizer bop
  // The orthogonalization of muon and normuon.
  UpdateScale scale = UpdateScale::kRms;
  NsDType ns = NsDType::kFp32;
  int64_t ns_steps = 5;  // iterations
  NsCoefficients ns_coefficients = NsCoefficients::kJordan;
  std::vector<double> ns_triples = {};  // instead of ns_coefficients: a, b, c of each iteration; the last ones repeat
  // At most one: the rule, beside muon or normuon, of parameters that are not hidden (Parameter::hidden) and of those
  // of optimizer aux; base_lr 0: that of this spec. None: adamw with base_lr, weight_decay, decay_vectors and moments
  // of this spec.
  std::vector<OptimizerSpec> aux = {};
  float clip_value = 0;   // 0: off. Gradients are clamped to [-clip_value, clip_value]
  float clip_norm = 0;    // 0: off. All gradients are scaled by clip_norm / norm if norm > clip_norm
  bool log_norm = false;  // Optimizer::last_norm is measured without clip_norm, too
  bool fused = true;      // updates may run inside backward (Optimizer::arm)
  bool measures_norm() const { return log_norm || clip_norm > 0; }
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

}  // namespace bitgrad
