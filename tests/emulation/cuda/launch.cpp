// Launches of cuda/runtime/runtime.h on the emulated device: kernel names, limits of launch shapes, and the
// distribution of clusters over host threads.
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "emulation/cuda/block.h"
#include "emulation/cuda/emulation.h"
#include "emulation/cuda/memory.h"
#include "emulation/cuda/queue.h"

namespace bitgrad::cuda {
namespace {

std::string symbol_name(const void* kernel) {
  Dl_info info{};
  if (dladdr(kernel, &info) == 0 || info.dli_sname == nullptr || info.dli_saddr != kernel)
    return concat("kernel at ", kernel);
  int status = 0;
  char* const text = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  const std::string name = status == 0 ? text : info.dli_sname;
  std::free(text);
  return name.substr(0, name.find('('));
}

std::string kernel_name(const void* kernel, const LaunchShape& shape) {
  if (shape.name != nullptr) return shape.name;
  static std::mutex mutex;
  static std::map<const void*, std::string> names;
  const std::lock_guard lock(mutex);
  std::string& name = names[kernel];  // cached, because dladdr searches every symbol of the program
  if (name.empty()) name = symbol_name(kernel);
  return name;
}

// Bytes of a kernel's static shared arrays, by symbol, as ptxas reports them for the same source.
int static_shared_bytes(const void* kernel) {
  static const std::map<std::string_view, int> sizes{
#define BITGRAD_STATIC_SHARED(symbol, bytes) {symbol, bytes},
#include "emulation/cuda/static_shared.inc"
#undef BITGRAD_STATIC_SHARED
      {"_ZN7bitgrad4cuda16keeps_1000_bytesEv", 1000},  // of tests/cuda/emulation_test.cpp
  };
  static std::mutex mutex;
  static std::map<const void*, int> known;
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = known.try_emplace(kernel, 0);
  if (!fresh) return at->second;
  Dl_info info{};
  if (dladdr(kernel, &info) == 0 || info.dli_sname == nullptr || info.dli_saddr != kernel) return 0;
  const auto found = sizes.find(info.dli_sname);
  return at->second = found == sizes.end() ? 0 : found->second;
}

void check_shape(const std::string& name, const void* kernel, const LaunchShape& s) {
  const auto bad = [&](const auto&... parts) {
    fail_with(ErrorCode::kDevice, name, "cuda:", current_device_index(),
              ": invalid configuration argument: ", parts...);
  };
  const DeviceProperties& p = device_properties(current_device_index());
  const int64_t threads = int64_t{s.block.x} * s.block.y * s.block.z;
  if (threads < 1 || threads > 1024 || s.block.z > 64) bad("got ", threads, " threads per block, expected 1 .. 1024.");
  if (s.grid.x > 0x7fffffffu || s.grid.y > 65535 || s.grid.z > 65535)
    bad("got a grid of ", s.grid.x, " x ", s.grid.y, " x ", s.grid.z, " blocks.");
  const int static_bytes = static_shared_bytes(kernel);
  if (s.shared_bytes < 0 || s.shared_bytes + static_bytes > p.shared_bytes_per_block)
    bad("got ", s.shared_bytes, " bytes of dynamic and ", static_bytes, " of static shared memory, expected at most ",
        p.shared_bytes_per_block, " in all.");
  if (s.cluster < 1 || s.cluster > 8 ||
      (s.cluster > 1 && (p.major < 9 || s.grid.x % static_cast<unsigned>(s.cluster) != 0)))
    bad("got clusters of ", s.cluster, " blocks in a grid of ", s.grid.x, " on capability ", p.major, '.', p.minor,
        '.');
}

std::mutex g_launches_mutex;
std::map<std::string, int64_t> g_launches;

struct FreeBytes {
  void operator()(void* data) const { std::free(data); }
};
struct ArgumentBytes {
  std::vector<std::unique_ptr<void, FreeBytes>> storage;
  std::vector<void*> pointers;
};

struct LaunchRecord {
  emulation::Grid grid;
  const void* kernel = nullptr;
  void (*call)(const void*, void* const*) = nullptr;
  ArgumentBytes arguments;
  int64_t clusters = 0;
};

void run_launch(const LaunchRecord& launch) {
  {
    const std::lock_guard lock(g_launches_mutex);
    ++g_launches[launch.grid.kernel];
  }
  const emulation::MemoryAccess access;
  const int64_t n = launch.clusters, grain = (n + 255) / 256;
  const uint64_t seed = emulation::seed();
  const DeviceGuard host(Device::cpu());  // lets host loops run in parallel again
  const int64_t stride = seed == 0 || n % 7919 == 0 ? 1 : 7919 % n,
                offset = static_cast<int64_t>(seed % static_cast<uint64_t>(n));
  parallel_ranges(n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      emulation::run_cluster(launch.grid, (i * stride + offset) % n * launch.grid.cluster);
  });
}

}  // namespace

int64_t detail::launches(const std::string& kernel) {
  const std::lock_guard lock(g_launches_mutex);
  const auto found = g_launches.find(kernel);
  return found == g_launches.end() ? 0 : found->second;
}

int64_t detail::launches() {
  const std::lock_guard lock(g_launches_mutex);
  int64_t all = 0;
  for (const auto& [kernel, count] : g_launches) all += count;
  return all;
}

int detail::max_active_clusters(const void*, const LaunchShape& shape) {
  return std::max(1, device_properties(current_device_index()).multiprocessors / shape.cluster);
}

// Detects pointers as 8-byte words that are addresses of this process.
void detail::refuse_host_pointers(const void* kernel, const LaunchShape& shape, int argument, const void* data,
                                  size_t bytes) {
  if (emulation::unified()) return;
  for (size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, static_cast<const char*>(data) + at, sizeof word);
    if (emulation::is_host_memory(word))
      fail_with(ErrorCode::kDevice, kernel_name(kernel, shape), "cuda:", current_device_index(), ": argument ",
                argument, ", byte ", at, ", is a pointer to host memory (", word, "), expected device memory.");
  }
}

void detail::launch_raw(const void* kernel, void (*call)(const void*, void* const*), void* const* args,
                        const size_t* sizes, int count, const LaunchShape& shape) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  const auto record = std::make_shared<LaunchRecord>();
  record->grid.kernel = kernel_name(kernel, shape);
  detail::require_device(record->grid.kernel.c_str());
  check_shape(record->grid.kernel, kernel, shape);
  record->grid.grid = {shape.grid.x, shape.grid.y, shape.grid.z};
  record->grid.block = {shape.block.x, shape.block.y, shape.block.z};
  record->grid.cluster = shape.cluster;
  record->grid.shared_bytes = shape.shared_bytes;
  record->kernel = kernel;
  record->call = call;
  for (int i = 0; i < count; ++i) {
    std::unique_ptr<void, FreeBytes> bytes(std::aligned_alloc(128, (sizes[i] + 127) / 128 * 128));  // tensor maps: 64
    std::memcpy(bytes.get(), args[i], sizes[i]);
    record->arguments.pointers.push_back(bytes.get());
    record->arguments.storage.push_back(std::move(bytes));
  }
  record->grid.context = record.get();
  record->grid.call = [](const void* context) {
    const auto* const launch = static_cast<const LaunchRecord*>(context);
    launch->call(launch->kernel, launch->arguments.pointers.data());
  };
  record->clusters = int64_t{shape.grid.x} * shape.grid.y * shape.grid.z / shape.cluster;
  emulation::enqueue(current_stream(), record->grid.kernel, [record] { run_launch(*record); });
  if (!synchronous_launches() || capturing(current_stream())) return;
  try {
    stream_synchronize(current_stream());
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(record->grid.kernel) != std::string_view::npos) throw;
    fail_with(error.code(), record->grid.kernel, error.what());
  }
}

}  // namespace bitgrad::cuda
