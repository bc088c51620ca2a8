// The same calls on the CPU and on the (emulated) CUDA device, in strict mode: equal bits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/tensor/tensor.h"
#include "cuda/register.h"
#include "kernels/flag.h"
#include "support/catch.h"
#include "support/device_difference.h"
#include "support/expect_error.h"
#include "support/strict_bits.h"

namespace bitgrad::test {

inline Device gpu(int index = 0) {
  static const bool registered = (install_cuda(), true);
  static_cast<void>(registered);
  return Device::cuda(index);
}

// The first difference between what `run` gives on the CPU and on the device, in strict mode.
inline std::string device_difference(const std::function<Results()>& run) {
  const StrictBits strict;
  return difference_on(gpu(), run);
}

// What `run` says on the CPU at once, and on the device when its errors are polled.
struct TwoErrors {
  std::string on_cpu, on_gpu;
};
inline TwoErrors errors_of(const std::function<void()>& run) {
  TwoErrors out;
  out.on_cpu = error_of(run);
  const DeviceGuard guard(gpu());
  out.on_gpu = error_of(run);
  return out;
}

inline Tensor host_numbers(const Shape& shape, uint64_t seed, double scale = 1.0, DType dtype = dtypes::fp32) {
  const RandomStream draws{seed, Purpose::kUser, 7, 0};
  std::vector<double> x(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = (static_cast<double>(draws.uniform(i)) * 2 - 1) * scale;
  const DeviceGuard host(Device::cpu());
  return Tensor::from_elements(shape, dtype, x);
}

// Codes of any kind, row-major random ones.
inline Tensor host_codes(const Shape& shape, DType dtype, uint64_t seed) {
  const RandomStream draws{seed, Purpose::kUser, 8, 0};
  const DeviceGuard host(Device::cpu());
  Tensor t = Tensor::zeros(shape, dtype);
  const auto count = static_cast<uint32_t>(dtype.info().levels.size());
  for (int64_t r = 0; r < t.rows(); ++r)
    for (int64_t c = 0; c < t.cols(); ++c) {
      const uint32_t raw = draws.bits32(static_cast<uint64_t>(r * t.cols() + c)) & ((1u << dtype.bits()) - 1u);
      // Ternary has three codes of four, a codebook as many as it has levels.
      const bool ternary = dtype == dtypes::ternary && raw == 2;
      store_raw(static_cast<char*>(t.data()) + r * t.stride(), c, dtype.bits(),
                ternary || (count > 0 && raw >= count) ? 0u : raw);
    }
  return t;
}

// Scales (and zero points, those of unsigned codes among the codes, or offsets) of a granularity.
inline Tensor with_scales(const Tensor& codes, const Granularity& g, bool zero = false, bool offset = false) {
  const DeviceGuard host(Device::cpu());
  const int64_t count = scale_count(g, codes.rows(), codes.cols());
  std::vector<double> s(static_cast<size_t>(count)), z(s.size()), m(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    s[i] = 0.01 * static_cast<double>(1 + i % 7);
    z[i] = codes.dtype().kind() == DTypeKind::kUint ? static_cast<double>((i + 2) % 4) : static_cast<double>(i % 5) - 2;
    m[i] = 0.1 * static_cast<double>(i % 3) - 0.1;
  }
  const auto made = [&](DType dtype, const std::vector<double>& x) {
    return std::make_shared<const Tensor>(Tensor::from_elements({count}, dtype, x, MemoryKind::kQuantState));
  };
  QuantParams p;
  p.scheme = "test";
  p.granularity = g;
  p.scale = made(dtypes::fp32, s);
  if (zero) p.zero = made(dtypes::int32, z);
  if (offset) p.offset = made(dtypes::fp32, m);
  return codes.with_quant(std::make_shared<const QuantParams>(std::move(p)));
}

}  // namespace bitgrad::test
