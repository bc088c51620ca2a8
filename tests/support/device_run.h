// Layers on a device: with BITGRAD_TEST_DEVICE=cuda every case runs with the first CUDA device as the current one.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/dtype.h"
#include "kernels/flag.h"

namespace bitgrad::test {

// Also known before main.
inline bool runs_on_device() { return std::getenv("BITGRAD_TEST_DEVICE") != nullptr; }

// How many kernels have been launched. Set by the emulation where it is linked.
inline int64_t (*launches_on_device)() = nullptr;

// Where a run in `dtype` is possible: devices have no fp64.
inline Device device_for(DType dtype) { return dtype == dtypes::fp64 ? Device::cpu() : current_device(); }

// Whether a kernel found all numbers finite: the CPU returns it, a device sets the flag word that the kernel was given.
inline bool found_finite(bool returned, const FlagWord& word) {
  uint32_t bits = 0;
  word.read([&](uint32_t found) { bits = found; });
  poll_errors();
  return returned && bits == 0;
}

// A formula that a case spells out, on memory of its own.
template <typename Body>
auto on_cpu(Body&& body) {
  const DeviceGuard cpu(Device::cpu());
  return body();
}

}  // namespace bitgrad::test
