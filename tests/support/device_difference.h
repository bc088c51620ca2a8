// Results on the CPU and on the current device, compared bit by bit.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/tensor/tensor.h"
#include "kernels/flag.h"
#include "support/device_run.h"

namespace bitgrad::test {

// The tensor in memory of the current device.
inline Tensor here(const Tensor& t) {
  return t.defined() && t.device() != current_device() ? t.to_device(current_device(), t.kind()) : t;
}

// What two tensors differ in: form, numbers, parameters; "" when in nothing. NaN equals NaN.
inline std::string difference(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return concat(a, " and ", b);
  if (!a.defined()) return "";
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return concat(a, " and ", b);
  const std::vector<double> p = a.elements(), q = b.elements();
  for (size_t i = 0; i < p.size(); ++i)
    if (std::memcmp(&p[i], &q[i], sizeof(double)) != 0 && !(p[i] != p[i] && q[i] != q[i]))
      return concat("element ", i, " of ", a, ": ", p[i], " and ", q[i]);
  if ((a.quant() == nullptr) != (b.quant() == nullptr)) return concat("scales of ", a);
  if (!a.quant()) return "";
  if (!(a.quant()->granularity == b.quant()->granularity) || a.quant()->scheme != b.quant()->scheme)
    return concat("granularity or scheme of ", a);
  const auto part = [](const std::shared_ptr<const Tensor>& t) { return t ? *t : Tensor(); };
  for (const auto& [x, y] : {std::pair{a.quant()->scale, b.quant()->scale},
                             {a.quant()->zero, b.quant()->zero},
                             {a.quant()->offset, b.quant()->offset},
                             {a.quant()->statistic, b.quant()->statistic}})
    if (const std::string text = difference(part(x), part(y)); !text.empty()) return "scales: " + text;
  return "";
}

using Results = std::vector<Tensor>;

// The first difference between what `run` gives on the CPU and on `device`, "" if none. Results of the device lie
// there.
template <typename Run>
std::string difference_on(Device device, Run&& run) {
  const auto on = [&](Device where) {
    const DeviceGuard guard(where);
    Results results = run();
    poll_errors();
    return results;
  };
  const Results cpu = on(Device::cpu()), there = on(device);
  const DeviceGuard guard(device);
  if (cpu.size() != there.size()) return "numbers of results";
  for (size_t i = 0; i < cpu.size(); ++i) {
    if (there[i].defined() && there[i].device() != device) return concat("result ", i, " is on the host");
    if (const std::string text = difference(cpu[i], there[i]); !text.empty()) return concat("result ", i, ": ", text);
  }
  return "";
}

}  // namespace bitgrad::test
