// Numbers in the memory of the current CUDA device.
#pragma once

#include <cstdint>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "cuda/runtime/runtime.h"
#include "support/catch.h"

namespace bitgrad::test {

// For TEST_CASE_METHOD: the test runs on the first device.
struct OnDevice {
  DeviceGuard guard{Device::cuda()};
};

// Returns true and prints a line that starts with "skipped:" if the current device lacks these capabilities.
inline bool skipped_without_on_device(IsaMask needs) {
  const IsaMask missing = needs & ~device_isa();
  if (missing != 0) WARN("skipped: needs " << isa_names(missing));
  return missing != 0;
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    data_ = static_cast<T*>(cuda::device_malloc(bytes()));
    REQUIRE((data_ != nullptr || count_ == 0));
    cuda::copy_async(data_, values.data(), bytes(), cuda::CopyKind::kHostToDevice, nullptr);
  }
  DeviceArray(size_t count, T value) : DeviceArray(std::vector<T>(count, value)) {}
  ~DeviceArray() { cuda::device_free(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    cuda::copy_async(out.data(), data_, bytes(), cuda::CopyKind::kDeviceToHost, nullptr);
    cuda::device_synchronize();
    return out;
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(T)); }
  size_t count_;
  T* data_ = nullptr;
};

}  // namespace bitgrad::test
