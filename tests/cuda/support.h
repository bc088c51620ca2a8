// Arrays on the current CUDA device for tests of the emulation.
#pragma once

#include <vector>

#include "bitgrad/base/device.h"
#include "cuda/runtime/runtime.h"
#include "support/catch.h"

namespace bitgrad::cuda {

// For TEST_CASE_METHOD: the test runs on the first device.
struct OnDevice {
  DeviceGuard guard{Device::cuda()};
};

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    data_ = static_cast<T*>(device_malloc(bytes()));
    REQUIRE((data_ != nullptr || count_ == 0));
    copy_async(data_, values.data(), bytes(), CopyKind::kHostToDevice, nullptr);
  }
  explicit DeviceArray(size_t count) : count_(count) {
    data_ = static_cast<T*>(device_malloc(bytes()));
    REQUIRE((data_ != nullptr || count_ == 0));
  }
  ~DeviceArray() { device_free(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    copy_async(out.data(), data_, bytes(), CopyKind::kDeviceToHost, nullptr);
    return out;
  }
  int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(T)); }

 private:
  size_t count_;
  T* data_ = nullptr;
};

}  // namespace bitgrad::cuda
