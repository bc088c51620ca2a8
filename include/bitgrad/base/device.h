// Where bytes live and kernels run. A device is a small value; what it can do is a DeviceBackend that registers itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/base/cpu.h"

namespace bitgrad {

enum class DeviceKind : uint8_t { kCpu = 0, kCuda = 1 };
inline constexpr int kDeviceKinds = 2;

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  uint8_t index = 0;
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {DeviceKind::kCuda, static_cast<uint8_t>(index)}; }
  bool is_cpu() const { return kind == DeviceKind::kCpu; }
  friend bool operator==(Device, Device) = default;
};
std::string to_string(Device device);

// The device on which this thread makes tensors and runs kernels: the CPU unless a DeviceGuard of this thread says
// otherwise. Threads of parallel_for are always on the CPU.
Device current_device();

// While it lives, `device` is the current device of this thread. Throws Error(kDevice) when the device is absent.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  Device outer_;
};

// Which sides of a copy are on the device.
enum class CopyWay : uint8_t { kFromHost, kToHost, kOnDevice };

// The contract that a kind of device implements; all act on the current device of that kind. Memory it hands out is
// aligned to 64 bytes (CUDA: 256) and zeroed by the caller if need be. Work is ordered as it was asked for.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual void* allocate(int64_t bytes) = 0;  // throws Error(kMemory)
  virtual void release(void* data, int64_t bytes) noexcept = 0;
  // `rows` rows of `bytes`; strides in bytes. The host may change its side when the call returns.
  virtual void copy(CopyWay way, void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes,
                    int64_t rows) = 0;
  virtual void fill_zero(void* data, int64_t bytes) = 0;
  virtual void synchronize() = 0;
  // Memory that can still be asked for, in bytes; -1: not known.
  virtual int64_t free_bytes() const = 0;
  // How many devices of this kind there are.
  virtual int count() const = 0;
  // What kernels may need of it (isa::kSm80Mma ...; the CPU's is cpu_isa()).
  virtual IsaMask capabilities() const = 0;
  // "NVIDIA H200, compute capability 9.0, 139 GiB".
  virtual std::string describe() const = 0;
  // Libraries that are looked for at run time: where each was found, or why it was not.
  virtual std::vector<std::string> libraries() const { return {}; }

  void copy_from_host(void* to, const void* from, int64_t bytes) {
    copy(CopyWay::kFromHost, to, bytes, from, bytes, bytes, 1);
  }
  void copy_to_host(void* to, const void* from, int64_t bytes) {
    copy(CopyWay::kToHost, to, bytes, from, bytes, bytes, 1);
  }
};

// The backend of a device; throws Error(kDevice) that names the device when it is absent, or its index too large.
DeviceBackend& device_backend(Device device);
// Puts the backend of a kind in place; it must live on.
void register_device_backend(DeviceKind kind, DeviceBackend* backend);
// How the backend of a kind comes into place: `install` runs once, when the kind is first asked for, and calls
// register_device_backend. The backends of the build have theirs; a program brings others (an emulated device) before
// the first use of their kind, and replaces one of the build so.
void register_backend_installer(DeviceKind kind, void (*install)());
// Devices of a kind; 0 where there is no backend or no such device.
int device_count(DeviceKind kind);
// Why there is no device of a kind; empty where there is one.
std::string why_absent(DeviceKind kind);
// Groups of instructions that kernels of the current device may use.
IsaMask device_isa();

}  // namespace bitgrad
