// What a data set's samples score.
#pragma once

#include "bitgrad/train/trainer.h"
#include "train/resident_data.h"

namespace bitgrad::detail {

// evaluate (train/trainer.h) with data that may lie on the device.
Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch, const ResidentData* resident);

}  // namespace bitgrad::detail
