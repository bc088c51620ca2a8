// Run configurations whose data are arrays of the program.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bitgrad/c.h"
#include "bitgrad/config/config.h"
#include "bitgrad/data/samples.h"

namespace bitgrad::capi {

// Parses the configuration and sets all data to format memory, keeping classes, augment and transforms of data.train. A
// text without `data` is accepted. test: whether there are test data; they get neither transforms nor augmentation.
RunConfig memory_config(const char* text, const char* const* overrides, int32_t count, bool test);
// A data set over arrays; `owner` keeps them alive. For models of ids, values are not scaled or normalized. `classes`
// is ignored for float targets.
std::unique_ptr<Dataset> memory_data(const RunConfig& config, const SampleView& x, const SampleView& y,
                                     std::shared_ptr<const void> owner, int64_t classes);
// Number of ids that the model accepts; 0 if its input is values.
int64_t vocabulary_of_model(const RunConfig& config);
// The same rate for each step from now on; throws Error unless it is finite and not negative.
std::function<float(int64_t)> constant_rate(double rate);
SampleValues sample_values(const RunConfig& config);

}  // namespace bitgrad::capi
