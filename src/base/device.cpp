#include "bitgrad/base/device.h"

#include <array>
#include <atomic>
#include <cstring>

#include "base/block_cache.h"
#include "bitgrad/base/error.h"

namespace bitgrad {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 46;  // beyond any address space: refused before the C library sees it

class CpuBackend final : public DeviceBackend {
 public:
  void* allocate(int64_t bytes) override {
    ensure(bytes >= 0, "cpu", "allocate: got ", bytes, " bytes.");
    void* const data = bytes <= kMaxBytes ? cache_.take(bytes) : nullptr;
    if (data == nullptr) fail_with(ErrorCode::kMemory, "cpu", "out of memory: ", bytes, " bytes were asked for.");
    return data;
  }
  void release(void* data, int64_t bytes) noexcept override { cache_.give(data, bytes); }
  void copy_from_host(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void fill_zero(void* data, int64_t bytes) override {
    if (bytes > 0) std::memset(data, 0, static_cast<size_t>(bytes));
  }
  void synchronize() override {}

 private:
  static void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

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

DeviceBackend& device_backend(Device device) {
  const size_t kind = static_cast<size_t>(device.kind);
  DeviceBackend* backend = kind < kKinds.size() ? backends()[kind].load(std::memory_order_acquire) : nullptr;
  if (backend == nullptr)
    fail_with(ErrorCode::kDevice, "device", to_string(device),
              " is absent: this build or machine has no such device. Use device cpu.");
  return *backend;
}

void register_device_backend(DeviceKind kind, DeviceBackend* backend) {
  const size_t index = static_cast<size_t>(kind);
  require(kind != DeviceKind::kCpu && index < kKinds.size(), "register_device_backend", "the backend of ",
          to_string({kind, 0}), " cannot be replaced.");
  backends()[index].store(backend, std::memory_order_release);
}

}  // namespace bitgrad
