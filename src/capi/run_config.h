// Configurations of runs whose data a program gives.
#pragma once

#include <memory>
#include <string>

#include "bitgrad/c.h"
#include "bitgrad/data/memory_dataset.h"
#include "bitgrad/train/config.h"

namespace bitgrad::capi {

// The configuration, with data of format memory: classes, augment and transforms of data.train are kept. A text without
// `data` is complete here. test: whether there are test data.
RunConfig memory_config(const char* text, const char* const* overrides, int32_t count, bool test);
// The data set of a section of it. ids: of the model's first layer, where that takes ids.
std::unique_ptr<Dataset> memory_data(const RunConfig& config, const SampleView& x, const SampleView& y,
                                     std::shared_ptr<const void> owner, int64_t classes);
// Ids that the model takes; 0: it takes values.
int64_t vocabulary_of_model(const RunConfig& config);
SampleValues sample_values(const RunConfig& config);

}  // namespace bitgrad::capi
