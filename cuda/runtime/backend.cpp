#include "cuda/runtime/backend.h"

#include <atomic>
#include <cstdio>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "cuda/runtime/pool.h"
#include "cuda/runtime/runtime.h"
#include "cuda/runtime/staging.h"

namespace bitgrad::cuda {
namespace {

std::atomic<IsaMask> g_added{0};

// Filled while the backend is registered.
std::vector<std::string (*)()>& library_texts() {
  static auto* const texts = new std::vector<std::string (*)()>;
  return *texts;
}

// A graph replays what it captured, so a captured host address would be read again at every launch.
void refuse_in_capture(const char* what) {
  if (capturing(current_stream()))
    fail_with(ErrorCode::kDevice, "cuda", what, " while a graph is captured. The step must stay on the device.");
}

// Queues a copy of several rows. If a pitch is too large for one call, copies row by row; there are only few rows then.
void copy_rows(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes, int64_t rows,
               CopyKind kind, Stream stream) {
  ensure(to_stride >= bytes && from_stride >= bytes, "cuda", "copy: rows of ", bytes, " bytes overlap, strides ",
         to_stride, " and ", from_stride, '.');
  if (to_stride <= kMaxPitch && from_stride <= kMaxPitch)
    return copy_rows_async(to, to_stride, from, from_stride, bytes, rows, kind, stream);
  for (int64_t r = 0; r < rows; ++r)
    copy_async(static_cast<char*>(to) + r * to_stride, static_cast<const char*>(from) + r * from_stride, bytes, kind,
               stream);
}

class CudaBackend final : public DeviceBackend {
 public:
  void* allocate(int64_t bytes) override {
    ensure(bytes >= 0, "cuda", "allocate: got ", bytes, " bytes.");
    void* const data = memory_pool().acquire(bytes);
    if (data != nullptr) return data;
    int64_t free_bytes = 0, total_bytes = 0;
    memory_info(free_bytes, total_bytes);
    fail_with(ErrorCode::kMemory, "cuda", "out of memory on ", to_string(current_device()), ": ", bytes,
              " bytes were requested, ", memory_pool().used_bytes(), " are in use here, ", free_bytes, " of ",
              total_bytes, " are free.");
  }

  void release(void* data, int64_t) noexcept override {
    try {
      memory_pool().release(data);
    } catch (const std::exception& error) {
      // Called from destructors, so the error can only be printed.
      std::fprintf(stderr, "%s\n", error.what());
    }
  }

  void copy(CopyWay way, void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes,
            int64_t rows) override {
    if (bytes <= 0 || rows <= 0) return;
    if (to_stride == bytes && from_stride == bytes) {
      bytes *= rows;
      rows = 1;
    }
    const Stream stream = current_stream();
    const auto queue = [&](CopyKind kind) {
      // With a single row the strides are irrelevant.
      if (rows == 1) return copy_async(to, from, bytes, kind, stream);
      copy_rows(to, to_stride, from, from_stride, bytes, rows, kind, stream);
    };
    if (way == CopyWay::kOnDevice) return queue(CopyKind::kDeviceToDevice);
    refuse_in_capture(way == CopyWay::kFromHost ? "a copy from the host" : "a copy to the host");
    if (way == CopyWay::kFromHost && rows == 1) return staging_ring().copy_to_device(to, from, bytes, stream);
    queue(way == CopyWay::kFromHost ? CopyKind::kHostToDevice : CopyKind::kDeviceToHost);
    stream_synchronize(stream);
  }

  void fill_zero(void* data, int64_t bytes) override { fill_async(data, 0, bytes, current_stream()); }
  void synchronize() override { device_synchronize(); }
  int64_t free_bytes() const override {
    int64_t free_bytes = 0, total_bytes = 0;
    memory_info(free_bytes, total_bytes);
    return free_bytes + memory_pool().kept_bytes();
  }
  int count() const override { return device_count(); }

  IsaMask capabilities() const override {
    const DeviceProperties& p = device_properties(current_device_index());
    const int version = p.major * 10 + p.minor;
    IsaMask mask = isa::kAnyCuda | g_added.load();
    if (version >= 80) mask |= isa::kSm80Mma;
    if (version >= 80 && version <= 90) mask |= isa::kB1Mma;
    if (p.wgmma) mask |= isa::kWgmma;
    return mask;
  }

  // Another text for each device of a host, by its name: ranks compare it. Without a device, returns the reason.
  std::string describe() const override {
    if (device_count() == 0) return why_no_device();
    const DeviceProperties& p = device_properties(current_device_index());
    return concat(p.name, ", compute capability ", p.major, '.', p.minor, ", ", p.multiprocessors, " multiprocessors, ",
                  p.memory_bytes >> 30, " GiB");
  }

  std::vector<std::string> libraries() const override {
    std::vector<std::string> texts;
    for (std::string (*const describe)() : library_texts()) texts.push_back(describe());
    return texts;
  }
};

}  // namespace

DeviceBackend& cuda_backend() {
  static auto* const backend = new CudaBackend;
  return *backend;
}

void add_capability(IsaMask mask) { g_added.fetch_or(mask); }
void add_library(std::string (*describe)()) { library_texts().push_back(describe); }

}  // namespace bitgrad::cuda
