// Where bytes live. A device is a small value; what it can do is a DeviceBackend that registers itself.
#pragma once

#include <cstdint>
#include <string>

namespace bitgrad {

enum class DeviceKind : uint8_t { kCpu = 0, kCuda = 1 };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  uint8_t index = 0;
  friend bool operator==(Device, Device) = default;
};
std::string to_string(Device device);

// The contract that a device implements. Memory it hands out is aligned to 64 bytes and zeroed by the caller if need
// be.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual void* allocate(int64_t bytes) = 0;  // throws Error(kMemory)
  virtual void release(void* data, int64_t bytes) noexcept = 0;
  virtual void copy_from_host(void* to, const void* from, int64_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, int64_t bytes) = 0;
  virtual void fill_zero(void* data, int64_t bytes) = 0;
  virtual void synchronize() = 0;
};

// The backend of a device; throws Error(kDevice) that names the device when it is absent.
DeviceBackend& device_backend(Device device);
// Installs the backend of a kind (cuda/ does so when it is linked). The CPU is always there.
void register_device_backend(DeviceKind kind, DeviceBackend* backend);

}  // namespace bitgrad
