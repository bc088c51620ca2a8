// A requantization session of a parameter: from begin_requantize or begin_masterless_codes to end_codes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bitgrad/nn/parameter.h"
#include "kernels/flag.h"
#include "quant/kernel_scales.h"

namespace bitgrad {

// All rows share one spec and one stream of draws.
struct Parameter::Requantization {
  QuantSpec spec;
  RandomStream draws;
  std::shared_ptr<const QuantParams> given;  // learned or frozen scales; nullptr: fit scales to the rows
  std::shared_ptr<QuantParams> params = std::make_shared<QuantParams>();
  std::mutex mutex;                            // guards params
  std::atomic<bool> packed = false;            // layouts packed by rows have been written
  bool summed = false;                         // the sums of all rows were written with the codes
  std::vector<Layout> written;                 // layouts the device kernel wrote with the codes, for all rows
  std::optional<detail::KernelScales> scales;  // the scales that kernel reads
};

namespace detail {
// Turns NaN and Inf in new codes into an error that names the parameter. On a device it is thrown when errors are
// polled.
ErrorContext::Handler names_parameter(const Parameter& p, int64_t begin, int64_t step);
}  // namespace detail

}  // namespace bitgrad
