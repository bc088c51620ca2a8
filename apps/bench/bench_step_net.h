// bench_step --net: whole training steps of convolutional networks and language models defined by configurations.
#pragma once

#include <string>

#include "bench_step_options.h"
#include "shared/report.h"

namespace bitgrad::bench {

// The built-in configuration of this name: `cnv`, `resnet20` or a language model (gpt_yaml). Empty if there is none.
std::string net_yaml(const std::string& name);
// The configuration of `gpt` (4 x 128, context 64, batch 12), `gpt384` (6 x 384, 6 heads, context 256, batch 4) or
// `gpt768` (12 x 768, 12 heads, vocabulary 8192, context and batch as gpt384): preset gpt with float weights. With the
// suffix `-int8`, `-int4` (groups of 32), `-ternary` or `-bint1`, the linear layers of its blocks have those weights
// and int8 inputs with a scale per token.
std::string gpt_yaml(const std::string& name);

// Adds to `report`, and prints, a row for each net: ms of one optimizer step (median and mean) on random samples (or
// ids) and labels (forward, loss, backward, update, requantization) as a Learner drives it; images/s; page faults per
// step (mean). Parts, measured alternately with it: update and requantization, as the difference from steps without
// them; the forward pass, whole and by kind of layer, and loss and backward, from steps with a callback after each
// module. In those steps every module runs separately, so what a whole step fuses takes longer. Memory: bytes by kind
// at the peak, the peak of tensors saved for the backward pass, resident growth.
void measure_nets(const Options& options, Json& report);

}  // namespace bitgrad::bench
