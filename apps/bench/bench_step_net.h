// bench_step --net: whole training steps of convolutional networks and language models that a configuration describes.
#pragma once

#include <string>

#include "bench_step_options.h"
#include "shared/report.h"

namespace bitgrad::bench {

// The built-in configuration of this name, `cnv`, `resnet20` or a language model (gpt_yaml); empty: there is none.
std::string net_yaml(const std::string& name);
// Of `gpt` (4 x 128, context 64, batch 12), `gpt384` (6 x 384, 6 heads, context 256, batch 4) and `gpt768` (12 x 768,
// 12 heads, vocabulary 8192, the same context and batch): preset gpt with float weights, or with `-int8`, `-int4`
// (groups of 32), `-ternary`, `-bint1` behind the name: those weights and int8 inputs a token in the linear layers of
// its blocks.
std::string gpt_yaml(const std::string& name);

// For each net a row of `report`, printed too: ms of one optimizer step (median and mean) on random samples (or ids)
// and labels (forward, loss, backward, update, requantization) as a Learner drives it; images/s; page faults of a step
// (mean). Parts, measured in the same turns: update and requantization, the difference to steps without them; the
// forward pass, whole and by kind of layer, and loss and backward, of steps whose modules tell when they have run.
// There every module runs alone: what a whole step fuses takes longer. Memory: bytes by kind at the peak, the peak of
// what is saved for the backward, resident growth.
void measure_nets(const Options& options, Json& report);

}  // namespace bitgrad::bench
