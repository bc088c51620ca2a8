#include "bitgrad/base/device.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/block_cache.h"
#include "bitgrad/base/error.h"

namespace bitgrad {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 46;  // beyond any address space: refused before the C library sees it

class CpuBackend final : public DeviceBackend {
 public:
  void* allocate(int64_t bytes) override {
    ensure(bytes >= 0, "cpu", "allocate: got ", bytes, " bytes.");
    void* const data = bytes <= kMaxBytes ? cache_.acquire(bytes) : nullptr;
    if (data == nullptr) fail_with(ErrorCode::kMemory, "cpu", "out of memory: ", bytes, " bytes were requested.");
    return data;
  }
  void release(void* data, int64_t bytes) noexcept override { cache_.give(data, bytes); }
  void copy(CopyWay, void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes,
            int64_t rows) override {
    if (bytes <= 0 || rows <= 0) return;
    if (to_stride == bytes && from_stride == bytes) {
      bytes *= rows;
      rows = 1;
    }
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(static_cast<char*>(to) + r * to_stride, static_cast<const char*>(from) + r * from_stride,
                  static_cast<size_t>(bytes));
  }
  void fill_zero(void* data, int64_t bytes) override {
    if (bytes > 0) std::memset(data, 0, static_cast<size_t>(bytes));
  }
  void synchronize() override {}
  int64_t free_bytes() const override { return -1; }
  int count() const override { return 1; }
  IsaMask capabilities() const override { return cpu_isa(); }
  std::string describe() const override { return concat(cpu_model_name(), ", ", isa_names(cpu_isa())); }

 private:
  detail::BlockCache cache_;
};

struct KindRecord {
  const char* name;
  bool numbered;  // printed with its index
};
constexpr std::array<KindRecord, 2> kKinds{{{"cpu", false}, {"cuda", true}}};

std::array<std::atomic<DeviceBackend*>, kKinds.size()>& backends() {
  // Never destroyed: tensors of static life time are released after this file's own statics.
  static CpuBackend* const cpu = new CpuBackend;
  static auto* const table = new std::array<std::atomic<DeviceBackend*>, kKinds.size()>{cpu, nullptr};
  return *table;
}

}  // namespace

std::string to_string(Device device) {
  const size_t kind = static_cast<size_t>(device.kind);
  if (kind >= kKinds.size()) return concat("device kind ", kind);
  return kKinds[kind].numbered ? concat(kKinds[kind].name, ':', static_cast<int>(device.index)) : kKinds[kind].name;
}

namespace cuda {
#if BITGRAD_WITH_CUDA
void register_cuda();  // cuda/register.cpp
#else
__attribute__((weak)) void register_cuda();  // a program may bring its own: the tests link emulated devices
#endif
}  // namespace cuda

namespace {

DeviceBackend* find_backend(DeviceKind kind) {
  const size_t index = static_cast<size_t>(kind);
  if (index >= kKinds.size()) return nullptr;
  if (kind == DeviceKind::kCuda && backends()[index].load(std::memory_order_acquire) == nullptr) {
    void (*volatile const install)() = cuda::register_cuda;  // null where no one brings it
    static std::once_flag once;
    if (install != nullptr) std::call_once(once, install);  // puts the backend there when all else is in place
  }
  return backends()[index].load(std::memory_order_acquire);
}

thread_local Device t_device;

}  // namespace

Device current_device() { return t_device; }

DeviceGuard::DeviceGuard(Device device) : outer_(t_device) {
  if (device != outer_) device_backend(device);
  t_device = device;
}
DeviceGuard::~DeviceGuard() { t_device = outer_; }

DeviceBackend& device_backend(Device device) {
  DeviceBackend* const backend = find_backend(device.kind);
  const int count = backend == nullptr ? 0 : backend->count();
  if (count == 0)
    fail_with(ErrorCode::kDevice, "device", to_string(device), " is absent: ", why_absent(device.kind),
              ". Use the CPU (device.kind=cpu).");
  if (device.index >= count)
    fail_with(ErrorCode::kDevice, "device", to_string(device), " is absent: expected an index below ", count, '.');
  return *backend;
}

int device_count(DeviceKind kind) {
  const DeviceBackend* const backend = find_backend(kind);
  return backend == nullptr ? 0 : backend->count();
}

std::string why_absent(DeviceKind kind) {
  const DeviceBackend* const backend = find_backend(kind);
  if (backend == nullptr) return "this build or machine has no such device";
  return backend->count() == 0 ? backend->describe() : "";
}

IsaMask device_isa() { return t_device.is_cpu() ? cpu_isa() : device_backend(t_device).capabilities(); }

void register_device_backend(DeviceKind kind, DeviceBackend* backend) {
  const size_t index = static_cast<size_t>(kind);
  require(kind != DeviceKind::kCpu && index < kKinds.size(), "register_device_backend", "the backend of ",
          to_string({kind, 0}), " cannot be replaced.");
  backends()[index].store(backend, std::memory_order_release);
}

}  // namespace bitgrad
