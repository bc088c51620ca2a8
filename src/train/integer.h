// Models of compute: integer in a learner: what evaluation and training compute with them. docs/numerics.md section 4,
// "The integer scheme".
#pragma once

#include <memory>

#include "bitgrad/nn/integer_graph.h"
#include "train/train_state.h"

namespace bitgrad::detail {

// The network that evaluation computes now; nullptr if it runs the layers: for other models, while ranges are
// calibrated or not known yet, and where a hook observes layers. Made anew where values, scales, statistics or the
// phase have changed since.
std::shared_ptr<const inference::IntegerNetwork> evaluated_network(TrainState& s);

// Whether scales and statistics are fixed in training, so that its codes are those of the network: it is made on the
// host for each microbatch.
bool follows_network(TrainState& s);

// Before a microbatch of training: where scales and statistics are fixed, computes the codes of all quantizers by the
// network, which they return then (StepState::exact_codes); else clears them.
void follow_network(TrainState& s, const Tensor& x);

}  // namespace bitgrad::detail
