// bench_step --net: whole training steps of convolutional networks that a configuration describes.
#pragma once

#include "bench_step_options.h"
#include "shared/report.h"

namespace bitgrad::bench {

// The built-in configuration of this name, `cnv` or `resnet20`; nullptr: there is none.
const char* net_yaml(const std::string& name);

// For each net a row of `report`, printed too: ms of one optimizer step (median and mean) on random samples and labels
// (forward, loss, backward, update, requantization) as a Learner drives it; images/s; page faults of a step (mean).
// Parts, measured in the same turns: update and requantization, the difference to steps without them; the forward pass,
// whole and by kind of layer, and loss and backward, of steps whose modules tell when they have run. There every module
// runs alone: what a whole step fuses takes longer. Memory: bytes by kind at the peak, the peak of what is saved for
// the backward, resident growth.
void measure_nets(const Options& options, Json& report);

}  // namespace bitgrad::bench
