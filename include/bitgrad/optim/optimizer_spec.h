// Settings of an optimizer, as data. Each is a line of optimizer_fields.inc.
#pragma once

#include <string>

#include "bitgrad/nn/precision.h"

namespace bitgrad {

// Rule bop (Helwegen et al. 2019, arXiv 1906.02107): a weight flips if |average| exceeds `threshold` and has its sign.
struct BopSpec {
  float gamma = 1e-4f;  // rate of the moving average of the gradient
  float threshold = 1e-8f;
  friend bool operator==(const BopSpec&, const BopSpec&) = default;
};

struct OptimizerSpec {
  std::string name = "sgd";                // a line of optimizers.inc, or a registered name (register_optimizer)
  float momentum = 0;                      // sgd
  bool nesterov = false;                   // sgd
  double beta1 = 0.9, beta2 = 0.999;       // adam, adamw
  float eps = 1e-8f;                       // adam, adamw
  float weight_decay = 0;                  // sgd, adam: added to the gradient; adamw: decoupled; bop: unused
  bool decay_vectors = true;               // false: weight_decay applies only to parameters with two or more axes
  MomentKind moments = MomentKind::kFp32;  // of parameters that do not specify their own
  double base_lr = 0;    // learning rate before the schedule; bop: gamma scales with lr / base_lr (0: constant)
  BopSpec bop = {};      // for parameters of optimizer bop
  float clip_value = 0;  // 0: off. Gradients are clamped to [-clip_value, clip_value]
  float clip_norm = 0;   // 0: off. All gradients are scaled by clip_norm / norm if norm > clip_norm
  bool fused = true;     // updates may run inside backward (Optimizer::arm)
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

}  // namespace bitgrad
