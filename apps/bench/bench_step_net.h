// bench_step --net: whole training steps of convolutional networks that a configuration describes.
#pragma once

#include "bench_step_options.h"
#include "shared/report.h"

namespace bitgrad::bench {

// The built-in configuration of this name, `cnv` or `resnet20`; nullptr: there is none.
const char* net_yaml(const std::string& name);

// For each net a row of `report`, printed too: ms of one optimizer step (median and mean) on random samples and labels
// (forward, loss, backward, update, requantization) as a Learner drives it, images/s; with parts the time of its
// forward pass, of loss and backward, and of update and requantization (differences of whole steps, measured in the
// same turns), and the forward pass by kind of layer; with memory bytes by kind at the peak, the peak of what is saved
// for the backward, and resident growth; page faults of a step (mean).
void measure_nets(const Options& options, Json& report);

}  // namespace bitgrad::bench
