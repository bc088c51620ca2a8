// Keys of the losses of losses.inc: class weights, label smoothing, probabilities as targets. docs/numerics.md section
// 10.
#pragma once

#include "bitgrad/train/loss.h"

namespace bitgrad::detail {

// Summed over the samples, or over the positions that count.
Var class_loss(const Var& logits, const Tensor& target);

void add_softmax_keys(LossKind& kind);
void add_sigmoid_keys(LossKind& kind);

}  // namespace bitgrad::detail
