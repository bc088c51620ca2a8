// The form of the result of linear(x, w), or of conv2d(x, w), known before any value is.
#pragma once

#include "bitgrad/nn/module.h"
#include "bitgrad/ops/conv.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad::detail {

// A product with the weight of a slot: linear, or conv2d.
struct SlotProduct {
  Parameter& weight;
  Compute compute = Compute::kPacked;
  const ProductModes& modes;
  bool bias = false;
  const Conv2dOptions* conv = nullptr;  // nullptr: linear
};

// Throws Error for a compute that does not go with the modes of the backward or with weights in fp32.
void check_compute(const SlotProduct& form);
// The form of the result; plans the layout of the weight when the rows are known. Throws Error when it does not fit.
Form plan_slot_product(const SlotProduct& form, const Form& in, PlanRequests& requests);

}  // namespace bitgrad::detail
