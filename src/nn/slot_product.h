// The output form of linear(x, w) or conv2d(x, w), before any value is known.
#pragma once

#include "bitgrad/nn/module.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"

namespace bitgrad::detail {

// A product with the weight of a slot: linear, or conv2d.
struct SlotProduct {
  Parameter& weight;
  Compute compute = Compute::kPacked;
  const ProductModes& modes;
  bool bias = false;
  const Conv2dOptions* conv = nullptr;  // nullptr: linear
};

// Throws Error if `compute` does not support the backward modes or fp32 weights.
void check_compute(const SlotProduct& form);
// Returns the output form; plans the weight's layouts if the number of rows is known. Throws Error if the forms do not
// fit.
Form plan_slot_product(const SlotProduct& form, const Form& in, PlanRequests& requests);

}  // namespace bitgrad::detail
