// load_evaluator of bitgrad/run/build.h for a file that is held open and verified.
#pragma once

#include <memory>

#include "bitgrad/run/build.h"
#include "checkpoint/load.h"

namespace bitgrad::detail {

std::unique_ptr<Learner> load_evaluator(const RunConfig& config, const Dataset& data, const checkpoint::OpenFile& file,
                                        LearnerUse use);

}  // namespace bitgrad::detail
