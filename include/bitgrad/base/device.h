// Devices: where memory lives and kernels run. A Device is a small value; a DeviceBackend implements its operations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// BITGRAD_HD marks functions that device kernels call too. It expands to nothing outside CUDA.
#if defined(__CUDACC__)
#define BITGRAD_HD __host__ __device__
#else
#define BITGRAD_HD
#endif

namespace bitgrad {

using IsaMask = uint32_t;  // base/cpu.h

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

// The device on which this thread allocates tensors and runs kernels: the CPU, unless a DeviceGuard is active on this
// thread. Threads of parallel_for always run on the CPU.
Device current_device();

// Makes `device` the current device of this thread while the guard exists. Throws Error(kDevice) if it is absent.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  Device outer_;
};

// Direction of a copy.
enum class CopyWay : uint8_t { kFromHost, kToHost, kOnDevice };

// Interface that each kind of device implements. All functions act on the current device of that kind. Allocations are
// 64-byte aligned (256 on CUDA) and uninitialized. Operations execute in the order they were issued.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual void* allocate(int64_t bytes) = 0;  // throws Error(kMemory)
  virtual void release(void* data, int64_t bytes) noexcept = 0;
  // Copies `rows` rows of `bytes` bytes each; strides in bytes. The host side may be modified once the call returns.
  virtual void copy(CopyWay way, void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes,
                    int64_t rows) = 0;
  virtual void fill_zero(void* data, int64_t bytes) = 0;
  virtual void synchronize() = 0;
  // Memory still available, in bytes; -1 if unknown.
  virtual int64_t free_bytes() const = 0;
  // Number of devices of this kind.
  virtual int count() const = 0;
  // Features that kernels may require (isa::kSm80Mma ...; cpu_isa() for the CPU).
  virtual IsaMask capabilities() const = 0;
  // For example "NVIDIA H200, compute capability 9.0, 139 GiB". If count() is 0, the reason.
  virtual std::string describe() const = 0;
  // Libraries that are loaded at run time: where each was found, or why it was not.
  virtual std::vector<std::string> libraries() const { return {}; }

  void copy_from_host(void* to, const void* from, int64_t bytes) {
    copy(CopyWay::kFromHost, to, bytes, from, bytes, bytes, 1);
  }
  void copy_to_host(void* to, const void* from, int64_t bytes) {
    copy(CopyWay::kToHost, to, bytes, from, bytes, bytes, 1);
  }
};

// The backend of a device. Throws Error(kDevice) naming it if it is absent or its index is out of range.
DeviceBackend& device_backend(Device device);
// Sets the backend of a kind. `backend` must outlive all use of it.
void register_device_backend(DeviceKind kind, DeviceBackend* backend);
// Registers `install`, which runs once, when the kind is first used, and must call register_device_backend. The
// backends of this build are registered already. A program can add its own (an emulated device), or replace one of the
// build, before the kind is first used.
void register_backend_installer(DeviceKind kind, void (*install)());
// Number of devices of a kind; 0 if there is no backend or no such device.
int device_count(DeviceKind kind);
// Why no device of this kind is available; empty if there is one.
std::string why_absent(DeviceKind kind);
// Features that kernels may use on the current device.
IsaMask device_isa();

// Asynchronous work on the current device: copying the next batch during computation (Prefetch) and recorded steps
// (StepRecord). On the CPU, copies are made immediately and launch() calls the captured step.

//   prefetch->begin();                       // the copies wait for earlier work on these buffers
//   prefetch->copy_from_host(to, from, n);   // any number of times; `from` may be modified once the call returns
//   prefetch->end();
//   ...                                      // work on other buffers
//   prefetch->wait();                        // later work sees the copies; the host does not block
class Prefetch {
 public:
  virtual ~Prefetch() = default;
  virtual void begin() = 0;
  virtual void copy_from_host(void* to, const void* from, int64_t bytes) = 0;
  virtual void end() = 0;
  virtual void wait() = 0;
};

// A step that queues the same work on the same memory every time and reads nothing back to the host.
class StepRecord {
 public:
  virtual ~StepRecord() = default;
  // Records the work that step() queues without executing it, and replaces any earlier recording. An exception from
  // step() is rethrown and leaves the previous recording intact. On the CPU, step is stored and not called.
  virtual void capture(const std::function<void()>& step) = 0;
  // Executes the recorded work. Throws Error if nothing was captured.
  virtual bool captured() const = 0;
  virtual void launch() = 0;
};

// Created for the current device; use them only while that device is current.
std::unique_ptr<Prefetch> make_prefetch();
std::unique_ptr<StepRecord> make_step_record();

// Factories that a kind of device registers. `makers` must outlive all use of them.
struct DeviceWorkMakers {
  std::unique_ptr<Prefetch> (*prefetch)();
  std::unique_ptr<StepRecord> (*step_record)();
};
void register_device_work(DeviceKind kind, const DeviceWorkMakers* makers);

}  // namespace bitgrad
