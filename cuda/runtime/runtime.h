// The seam between this project and the CUDA runtime: what host code may ask of a GPU. Two implementations of the same
// functions: runtime_cuda.cpp (the CUDA runtime, linked statically) and tests/emulation/cuda/runtime_emulated.cpp
// (tests). All act on the current device (bitgrad/base/device.h) of the calling thread. Errors: bitgrad::Error(kDevice)
// with CUDA's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace bitgrad::cuda {

// ---- devices
// ----------------------------------------------------------------------------------------------------------------
struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  bool wgmma = false;        // sm_90a code of this build runs here
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int shared_bytes_per_block = 0;  // with the opt-in
};
// 0 without a GPU or a driver; never throws. why_no_device() then says why.
int device_count() noexcept;
std::string why_no_device();
const DeviceProperties& device_properties(int device);
int current_device_index();  // of the calling thread; 0 while its current device is the CPU

// ---- streams and events
// -----------------------------------------------------------------------------------------------------
struct StreamRecord;
using Stream = StreamRecord*;  // null: the device's main stream
struct EventRecord;
using Event = EventRecord*;

Stream stream_create();
// Waits for the stream's work. This and the other functions that end something swallow errors: destructors call them.
void stream_destroy(Stream stream) noexcept;
void stream_synchronize(Stream stream);
void device_synchronize();
// The stream that launches of the calling thread go to; the device's main stream by default.
Stream current_stream();
void set_current_stream(Stream stream);
// The cudaStream_t behind a stream, for libraries; null in the emulation.
void* native_stream(Stream stream);

Event event_create(bool timed = false);
void event_destroy(Event event) noexcept;
void event_record(Event event, Stream stream);
void event_synchronize(Event event);
bool event_done(Event event);
void stream_wait(Stream stream, Event event);  // work queued on `stream` from now on comes after the event
double elapsed_ms(Event begin, Event end);     // of timed events that are done

// ---- memory
// -----------------------------------------------------------------------------------------------------------------
enum class CopyKind { kHostToDevice, kDeviceToHost, kDeviceToDevice };
void* device_malloc(int64_t bytes);  // null when the device has too little memory, and for 0 bytes
void device_free(void* data);
void* pinned_malloc(int64_t bytes);  // host memory that copies may read while the host goes on; null when there is none
void pinned_free(void* data) noexcept;
void memory_info(int64_t& free_bytes, int64_t& total_bytes);
// Asynchronous where the host side is pinned. A pageable source has been read when this returns.
void copy_async(void* to, const void* from, int64_t bytes, CopyKind kind, Stream stream);
// `rows` rows of `bytes`, strides in bytes: none below `bytes`, also where there is one row, none above kMaxPitch.
constexpr int64_t kMaxPitch = (int64_t{1} << 31) - 1;
void copy_rows_async(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes, int64_t rows,
                     CopyKind kind, Stream stream);
void peer_copy_async(void* to, int to_device, const void* from, int from_device, int64_t bytes, Stream stream);
void fill_async(void* data, int value, int64_t bytes, Stream stream);
// For an allocator above device_malloc: `bytes` of the block at data are in use from now on, or none. The emulation
// poisons what is handed out and watches the bytes past it, in the order of the current stream; CUDA needs nothing.
void memory_in_use(void* data, int64_t bytes, int64_t block_bytes);
void memory_idle(void* data, int64_t block_bytes);

// ---- launches
// ---------------------------------------------------------------------------------------------------------------
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct LaunchShape {
  Dim3 grid, block;
  int shared_bytes = 0;        // dynamic shared memory per block; beyond 48 KiB with the static arrays it is opted into
  int cluster = 1;             // blocks of a cluster, along x
  const char* name = nullptr;  // for errors; else the name of the kernel
};

namespace detail {
// What both implementations of launch_raw ask first: a kernel runs on memory of the current device, so the CPU as the
// current device is an error that names the kernel.
void require_device(const char* kernel);
// BITGRAD_CUDA_SYNC=1: a launch waits for its kernel, so that a fault is reported with the kernel's name. Not while a
// graph is captured.
bool synchronous_launches();
void set_synchronous_launches(bool on);  // for tests
// More than 48 KiB of static and dynamic shared memory together must be allowed before the launch. Static arrays have
// at most kMostStaticShared bytes (scripts/check_cubins.py).
constexpr int kMostStaticShared = 32 << 10, kSharedWithoutOptIn = 48 << 10;
constexpr bool needs_shared_opt_in(int dynamic_bytes) {
  return dynamic_bytes > kSharedWithoutOptIn - kMostStaticShared;
}
// call(kernel, args) runs the kernel as one CUDA thread (emulation). sizes: bytes of each argument.
void launch_raw(const void* kernel, void (*call)(const void*, void* const*), void* const* args, const size_t* sizes,
                int count, const LaunchShape& shape);

#if defined(BITGRAD_CUDA_EMULATED)
// A GPU reads host memory only by luck: pointers to it in an argument are an error. Padding holds whatever was on the
// stack, so it is cleared in the copy that is looked at.
void refuse_host_pointers(const void* kernel, const LaunchShape& shape, int argument, const void* data, size_t bytes);
template <typename T>
void refuse_host_pointers_in(const void* kernel, const LaunchShape& shape, int argument, T value) {
  if constexpr (std::is_class_v<T>) __builtin_clear_padding(&value);
  refuse_host_pointers(kernel, shape, argument, &value, sizeof value);
}
#endif

template <typename... P, size_t... I>
void call_kernel(const void* kernel, void* const* args, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(P...)>(const_cast<void*>(kernel))(*static_cast<std::remove_cv_t<P>*>(args[I])...);
}
}  // namespace detail

// Queues kernel(args...) on the current stream. The arguments are plain values (pointers, numbers, structs of these).
// An empty grid is no launch.
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
// -----------------------------------------------------------------------------------------------------------------
struct GraphRecord;
using Graph = GraphRecord*;
struct GraphExecRecord;
using GraphExec = GraphExecRecord*;

void capture_begin(Stream stream);
Graph capture_end(Stream stream);
bool capturing(Stream stream);
GraphExec graph_instantiate(Graph graph);
bool graph_update(GraphExec exec, Graph graph);  // false: the shape differs, instantiate again
void graph_launch(GraphExec exec, Stream stream);
void graph_destroy(Graph graph) noexcept;
void graph_exec_destroy(GraphExec exec) noexcept;

}  // namespace bitgrad::cuda
