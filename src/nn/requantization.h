// A requantization session of a parameter: from begin_requantize or begin_masterless_codes to end_codes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bitgrad/kernels/flag.h"
#include "bitgrad/nn/parameter.h"
#include "quant/kernel_scales.h"

namespace bitgrad {

// All rows by one spec and one stream of draws.
struct Parameter::Requantization {
  QuantSpec spec;
  RandomStream draws;
  std::shared_ptr<const QuantParams> given;  // learned or frozen scales; null: scales are fitted to the rows
  std::shared_ptr<QuantParams> params = std::make_shared<QuantParams>();
  std::mutex mutex;                            // of params
  std::atomic<bool> packed = false;            // layouts that are packed by rows
  bool summed = false;                         // the sums of all rows were made with the codes
  std::vector<Layout> written;                 // by the kernel that made the codes, on a device: of all rows
  std::optional<detail::KernelScales> scales;  // that it reads
};

namespace detail {
// NaN and Inf in new codes: an error that names the parameter. On a device it comes when the errors are polled.
ErrorContext::Handler names_parameter(const Parameter& p, int64_t begin, int64_t step);
}  // namespace detail

}  // namespace bitgrad
