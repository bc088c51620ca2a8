// The interface between this project and the CUDA runtime. Two implementations of the same functions: runtime_cuda.cpp
// (the CUDA runtime, linked statically) and tests/emulation/cuda/runtime_emulated.cpp (tests). All functions act on the
// current device (bitgrad/base/device.h) of the calling thread. Errors are bitgrad::Error(kDevice) with CUDA's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace bitgrad::cuda {

// ---- devices
struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  bool wgmma = false;        // sm_90a code of this build runs on the device
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int shared_bytes_per_block = 0;  // maximum with opt-in
};
// 0 without a GPU or a driver, with the reason in why_no_device(). Never throws.
int device_count() noexcept;
std::string why_no_device();
std::string cuda_versions();  // "the driver offers CUDA 13.1, this build needs 13.0"; 0.0: there is no driver
const DeviceProperties& device_properties(int device);
int current_device_index();  // of the calling thread; 0 while its current device is the CPU

// ---- streams and events
struct StreamRecord;
using Stream = StreamRecord*;  // nullptr: the device's main stream
struct EventRecord;
using Event = EventRecord*;

Stream stream_create();
// Waits for the stream's work. Functions that destroy something are called by destructors, so they swallow errors.
void stream_destroy(Stream stream) noexcept;
void stream_synchronize(Stream stream);
void device_synchronize();
// The stream on which the calling thread launches; the device's main stream by default.
Stream current_stream();
void set_current_stream(Stream stream);
// The native cudaStream_t, for libraries; nullptr in the emulation.
void* native_stream(Stream stream);

Event event_create(bool timed = false);
void event_destroy(Event event) noexcept;
void event_record(Event event, Stream stream);
void event_synchronize(Event event);
bool event_done(Event event);
void stream_wait(Stream stream, Event event);  // work queued on `stream` from now on waits for the event
double elapsed_ms(Event begin, Event end);     // both events timed and completed

// ---- memory
enum class CopyKind { kHostToDevice, kDeviceToHost, kDeviceToDevice };
void* device_malloc(int64_t bytes);  // nullptr for 0 bytes or if the device is out of memory
void device_free(void* data);
void* pinned_malloc(int64_t bytes);  // host memory for asynchronous copies; nullptr if none is available
void pinned_free(void* data) noexcept;
void memory_info(int64_t& free_bytes, int64_t& total_bytes);
// Asynchronous if the host side is pinned. A pageable source has been read when this returns.
void copy_async(void* to, const void* from, int64_t bytes, CopyKind kind, Stream stream);
// Copies `rows` rows of `bytes` bytes. Strides are in bytes, from `bytes` (even for a single row) to kMaxPitch.
constexpr int64_t kMaxPitch = (int64_t{1} << 31) - 1;
void copy_rows_async(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes, int64_t rows,
                     CopyKind kind, Stream stream);
void fill_async(void* data, int value, int64_t bytes, Stream stream);
// For allocators on top of device_malloc: `bytes` of the block at `data` are in use from now on, or none are. The
// emulation poisons allocated memory and checks the bytes past it, in the order of the current stream. No-ops on CUDA.
void memory_in_use(void* data, int64_t bytes, int64_t block_bytes);
void memory_idle(void* data, int64_t block_bytes);

// ---- launches
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct LaunchShape {
  Dim3 grid, block;
  int shared_bytes = 0;        // dynamic shared memory per block; opts in if it exceeds 48 KiB with the static arrays
  int cluster = 1;             // blocks per cluster, along x
  const char* name = nullptr;  // for errors; nullptr: the kernel's own name
};

namespace detail {
// Both implementations of launch_raw check this first. A kernel works on memory of the current device, so having the
// CPU as the current device is an error that names the kernel.
void require_device(const char* kernel);
// BITGRAD_CUDA_SYNC=1: each launch waits for its kernel, so that a fault is reported with the kernel's name, and each
// copy for its end. Ignored during graph capture.
bool synchronous_launches();
void set_synchronous_launches(bool on);  // for tests
// For tests: the number of launches of kernels with this name (LaunchShape::name, otherwise the function's), and of all
// kernels. CUDA counts from the first call on, and not what a graph replays.
int64_t launches(const std::string& kernel);
int64_t launches();
// More than 48 KiB of static plus dynamic shared memory needs an opt-in before the launch. Static arrays use at most
// kMostStaticShared bytes (scripts/check_cubins.py).
constexpr int kMostStaticShared = 32 << 10, kSharedWithoutOptIn = 48 << 10;
constexpr bool needs_shared_opt_in(int dynamic_bytes) {
  return dynamic_bytes > kSharedWithoutOptIn - kMostStaticShared;
}
// call(kernel, args) runs the kernel as one CUDA thread (emulation). sizes are the bytes of each argument.
void launch_raw(const void* kernel, void (*call)(const void*, void* const*), void* const* args, const size_t* sizes,
                int count, const LaunchShape& shape);

#if defined(BITGRAD_CUDA_EMULATED)
// A GPU may fail to read host memory, so host pointers in arguments are an error. Padding contains stack garbage and is
// cleared in the copy that is checked; structs are not checked by a compiler that cannot clear it (clang 16).
void refuse_host_pointers(const void* kernel, const LaunchShape& shape, int argument, const void* data, size_t bytes);
template <typename T>
void refuse_host_pointers_in(const void* kernel, const LaunchShape& shape, int argument, T value) {
#if __has_builtin(__builtin_clear_padding)
  if constexpr (std::is_class_v<T>) __builtin_clear_padding(&value);
#else
  if constexpr (std::is_class_v<T>) return;
#endif
  refuse_host_pointers(kernel, shape, argument, &value, sizeof value);
}
#endif

template <typename... P, size_t... I>
void call_kernel(const void* kernel, void* const* args, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(P...)>(const_cast<void*>(kernel))(*static_cast<std::remove_cv_t<P>*>(args[I])...);
}
}  // namespace detail

// The number of clusters of this shape (grid ignored) that fit on the current device at the same time, at least 1.
namespace detail {
int max_active_clusters(const void* kernel, const LaunchShape& shape);
}
template <typename... P>
int max_active_clusters(void (*kernel)(P...), const LaunchShape& shape) {
  return detail::max_active_clusters(reinterpret_cast<const void*>(kernel), shape);
}

// Queues kernel(args...) on the current stream. Arguments are plain values: pointers, numbers, structs of these. An
// empty grid launches nothing.
template <typename... P, typename... A>
void launch(void (*kernel)(P...), const LaunchShape& shape, const A&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has");
  static_assert((std::is_trivially_copyable_v<P> && ...), "kernel arguments are copied as bytes");
  const auto go = [&](std::remove_cv_t<P>... values) {
#if defined(BITGRAD_CUDA_EMULATED)
    int argument = 0;
    (detail::refuse_host_pointers_in(reinterpret_cast<const void*>(kernel), shape, argument++, values), ...);
#endif
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&values))..., nullptr};
    const size_t sizes[] = {sizeof(P)..., 0};
    detail::launch_raw(
        reinterpret_cast<const void*>(kernel),
        [](const void* k, void* const* a) { detail::call_kernel<P...>(k, a, std::index_sequence_for<P...>{}); },
        pointers, sizes, static_cast<int>(sizeof...(P)), shape);
  };
  go(static_cast<P>(args)...);
}

// ---- graphs
struct GraphRecord;
using Graph = GraphRecord*;
struct GraphExecRecord;
using GraphExec = GraphExecRecord*;

void capture_begin(Stream stream);
Graph capture_end(Stream stream);
bool capturing(Stream stream);
GraphExec graph_instantiate(Graph graph);
bool graph_update(GraphExec exec, Graph graph);  // false if the topology differs: instantiate again
void graph_launch(GraphExec exec, Stream stream);
void graph_destroy(Graph graph) noexcept;
void graph_exec_destroy(GraphExec exec) noexcept;

}  // namespace bitgrad::cuda
