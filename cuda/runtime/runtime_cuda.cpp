// cuda/runtime/runtime.h on top of the CUDA runtime. Host code, compiled by the C++ compiler; a kernel is the address
// of the host function that nvcc generates for it. Without a driver only device_count succeeds, and nothing calls the
// others.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {
namespace {

cudaStream_t raw(Stream stream);
cudaEvent_t raw(Event event) { return reinterpret_cast<cudaEvent_t>(event); }
cudaGraph_t raw(Graph graph) { return reinterpret_cast<cudaGraph_t>(graph); }
cudaGraphExec_t raw(GraphExec exec) { return reinterpret_cast<cudaGraphExec_t>(exec); }

[[noreturn]] void fail_cuda(cudaError_t status, const char* what, const char* hint = "") {
  cudaGetLastError();  // clears an error that is not sticky
  fail_with(ErrorCode::kDevice, what, "cuda:", current_device_index(), ": ", cudaGetErrorString(status), " (",
            cudaGetErrorName(status), ").", hint);
}
void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) [[unlikely]]
    fail_cuda(status, what);
}

// For functions that destroy something: clears an error that is not sticky; a sticky one resurfaces at the next call.
void forget(cudaError_t status) noexcept {
  if (status != cudaSuccess) cudaGetLastError();
}

// Makes the thread's current device CUDA's current device too.
int bind() {
  thread_local int bound = -1;
  const int device = current_device_index();
  if (device != bound) {
    check(cudaSetDevice(device), "set device");
    bound = device;
  }
  return device;
}

struct Machine {
  int count = 0;
  std::string reason;
  std::vector<DeviceProperties> properties;
  std::vector<cudaStream_t> main;  // created on first use
  std::mutex mutex;
  std::set<std::pair<const void*, int>> large_shared;  // (kernel, device) with opt-in to more than 48 KiB
  std::map<std::tuple<const void*, int, int, int>, int> active_clusters;  // by kernel, device, cluster, shared bytes
};

int attribute(cudaDeviceAttr what, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, what, device), "device attribute");
  return value;
}

// How nvidia-smi and CUDA_VISIBLE_DEVICES name the device: the begin of its UUID, GPU-8932f937.
std::string short_uuid(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 4; ++i)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[static_cast<unsigned char>(uuid.bytes[i]) >> shift & 15];
  return text;
}

DeviceProperties read_properties(int device) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, device), "device properties");
  DeviceProperties out;
  out.name = concat(p.name, " (", short_uuid(p.uuid), ')');
  out.major = p.major;
  out.minor = p.minor;
  out.wgmma = BITGRAD_CUDA_HAS_90A && p.major == 9 && p.minor == 0;
  out.multiprocessors = p.multiProcessorCount;
  out.memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  out.shared_bytes_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return out;
}

Machine& machine() {
  static Machine* const instance = [] {
    auto* const m = new Machine;
    const cudaError_t status = cudaGetDeviceCount(&m->count);
    if (status != cudaSuccess || m->count == 0) {
      cudaGetLastError();
      m->count = 0;
      m->reason = status == cudaSuccess ? "no CUDA-capable device is detected" : cudaGetErrorString(status);
      if (status == cudaErrorInsufficientDriver) m->reason += " (" + cuda_versions() + ')';
      return m;
    }
    for (int d = 0; d < m->count; ++d) m->properties.push_back(read_properties(d));
    m->main.resize(static_cast<size_t>(m->count));
    return m;
  }();
  return *instance;
}

cudaStream_t main_stream() {
  const int device = bind();
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  cudaStream_t& stream = m.main.at(static_cast<size_t>(device));
  // Not the legacy stream, which cannot be captured and synchronizes with all others.
  if (stream == nullptr) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream create");
  return stream;
}

cudaStream_t raw(Stream stream) {
  if (stream == nullptr) return main_stream();
  bind();
  return reinterpret_cast<cudaStream_t>(stream);
}

constexpr int kMaxDevices = 64;
thread_local std::array<Stream, kMaxDevices> t_streams{};

const char* kernel_name(const void* kernel, const LaunchShape& shape) {
  if (shape.name != nullptr) return shape.name;
  const char* name = nullptr;
  return cudaFuncGetName(&name, kernel) == cudaSuccess && name != nullptr ? name : "kernel";
}

void allow_shared(const void* kernel, const LaunchShape& shape) {
  if (!detail::needs_shared_opt_in(shape.shared_bytes)) return;
  const int device = bind();
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (!m.large_shared.emplace(kernel, device).second) return;
  const int max = m.properties[static_cast<size_t>(device)].shared_bytes_per_block;
  cudaFuncAttributes attributes{};
  cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  if (status == cudaSuccess)
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  max - static_cast<int>(attributes.sharedSizeBytes));
  if (status != cudaSuccess) fail_cuda(status, kernel_name(kernel, shape));
}

}  // namespace

// ---- devices
int device_count() noexcept {
  try {
    return machine().count;
  } catch (...) {
    return 0;
  }
}
std::string why_no_device() { return machine().reason; }
std::string cuda_versions() {
  const auto text = [](int v) { return std::to_string(v / 1000) + '.' + std::to_string(v % 1000 / 10); };
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  return "the driver offers CUDA " + text(driver) + ", this build needs " + text(CUDART_VERSION);
}
int current_device_index() {
  const Device device = current_device();
  return device.is_cpu() ? 0 : device.index;
}
const DeviceProperties& device_properties(int device) { return machine().properties.at(static_cast<size_t>(device)); }

// ---- streams and events
Stream stream_create() {
  bind();
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream create");
  return reinterpret_cast<Stream>(stream);
}
void stream_destroy(Stream stream) noexcept {
  if (stream == nullptr) return;
  const auto handle = reinterpret_cast<cudaStream_t>(stream);  // may belong to any device
  forget(cudaStreamSynchronize(handle));
  forget(cudaStreamDestroy(handle));
}
void stream_synchronize(Stream stream) { check(cudaStreamSynchronize(raw(stream)), "synchronize"); }
void device_synchronize() {
  bind();
  check(cudaDeviceSynchronize(), "synchronize");
}
Stream current_stream() { return t_streams.at(static_cast<size_t>(current_device_index())); }
void* native_stream(Stream stream) { return raw(stream); }
void set_current_stream(Stream stream) { t_streams.at(static_cast<size_t>(current_device_index())) = stream; }

Event event_create(bool timed) {
  bind();
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming), "event create");
  return reinterpret_cast<Event>(event);
}
void event_destroy(Event event) noexcept {
  if (event != nullptr) forget(cudaEventDestroy(raw(event)));
}
void event_record(Event event, Stream stream) { check(cudaEventRecord(raw(event), raw(stream)), "event record"); }
void event_synchronize(Event event) { check(cudaEventSynchronize(raw(event)), "event synchronize"); }
bool event_done(Event event) {
  const cudaError_t status = cudaEventQuery(raw(event));
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(status, "event query");
  return true;
}
void stream_wait(Stream stream, Event event) { check(cudaStreamWaitEvent(raw(stream), raw(event), 0), "stream wait"); }
double elapsed_ms(Event begin, Event end) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, raw(begin), raw(end)), "elapsed time");
  return static_cast<double>(ms);
}

// ---- memory
namespace {

// For the cases of the layers, which look at memory of a device from the host (docs/testing.md).
bool managed_memory() {
  static const bool on = [] {
    const char* const text = std::getenv("BITGRAD_CUDA_MANAGED");
    return text != nullptr && std::strcmp(text, "1") == 0;
  }();
  return on;
}

// The end of a copy or launch on `stream`; has happened when this returns if launches are synchronous.
cudaError_t queued(cudaError_t status, Stream stream) {
  if (status != cudaSuccess || !detail::synchronous_launches() || capturing(stream)) return status;
  return cudaStreamSynchronize(raw(stream));
}

}  // namespace

void* device_malloc(int64_t bytes) {
  bind();
  void* data = nullptr;
  if (bytes == 0) return nullptr;
  const cudaError_t status = managed_memory() ? cudaMallocManaged(&data, static_cast<size_t>(bytes))
                                              : cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "malloc");
  return data;
}
void device_free(void* data) {
  bind();
  check(cudaFree(data), "free");
}
void* pinned_malloc(int64_t bytes) {
  bind();
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "pinned malloc");
  return data;
}
void pinned_free(void* data) noexcept { forget(cudaFreeHost(data)); }
void memory_info(int64_t& free_bytes, int64_t& total_bytes) {
  bind();
  size_t free_now = 0, total = 0;
  check(cudaMemGetInfo(&free_now, &total), "memory info");
  free_bytes = static_cast<int64_t>(free_now);
  total_bytes = static_cast<int64_t>(total);
}
void copy_async(void* to, const void* from, int64_t bytes, CopyKind kind, Stream stream) {
  if (bytes <= 0) return;
  constexpr std::array kinds{cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice};
  check(queued(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kinds[static_cast<size_t>(kind)], raw(stream)),
               stream),
        "copy");
}
void copy_rows_async(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes, int64_t rows,
                     CopyKind kind, Stream stream) {
  if (bytes <= 0 || rows <= 0) return;
  constexpr std::array kinds{cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice};
  check(queued(cudaMemcpy2DAsync(to, static_cast<size_t>(to_stride), from, static_cast<size_t>(from_stride),
                                 static_cast<size_t>(bytes), static_cast<size_t>(rows),
                                 kinds[static_cast<size_t>(kind)], raw(stream)),
               stream),
        "copy of rows");
}
void fill_async(void* data, int value, int64_t bytes, Stream stream) {
  if (bytes > 0) check(queued(cudaMemsetAsync(data, value, static_cast<size_t>(bytes), raw(stream)), stream), "fill");
}
void memory_in_use(void*, int64_t, int64_t) {}
void memory_idle(void*, int64_t) {}

// ---- launches
namespace {

struct Launch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute cluster{};

  explicit Launch(const LaunchShape& shape) {
    config.gridDim = {shape.grid.x, shape.grid.y, shape.grid.z};
    config.blockDim = {shape.block.x, shape.block.y, shape.block.z};
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.stream = raw(current_stream());
    if (shape.cluster == 1) return;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};

// By kernel, once somebody asks.
std::atomic<bool> g_counting{false};
std::mutex g_launches_mutex;
std::map<std::string, int64_t> g_launches;

void count_launch(const char* kernel) {
  const std::lock_guard lock(g_launches_mutex);
  ++g_launches[kernel];
}

}  // namespace

int64_t detail::launches(const std::string& kernel) {
  g_counting = true;
  const std::lock_guard lock(g_launches_mutex);
  const auto found = g_launches.find(kernel);
  return found == g_launches.end() ? 0 : found->second;
}
int64_t detail::launches() {
  g_counting = true;
  const std::lock_guard lock(g_launches_mutex);
  int64_t all = 0;
  for (const auto& [kernel, count] : g_launches) all += count;
  return all;
}

int detail::max_active_clusters(const void* kernel, const LaunchShape& shape) {
  const int device = bind();
  Machine& m = machine();
  const std::tuple key{kernel, device, shape.cluster, shape.shared_bytes};
  {
    const std::lock_guard lock(m.mutex);
    if (const auto at = m.active_clusters.find(key); at != m.active_clusters.end()) return at->second;
  }
  int count = m.properties[static_cast<size_t>(device)].multiprocessors;
  if (shape.cluster > 1) {
    allow_shared(kernel, shape);
    LaunchShape one = shape;
    one.grid = {static_cast<unsigned>(shape.cluster)};
    const Launch launch(one);
    const cudaError_t status = cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config);
    if (status != cudaSuccess) fail_cuda(status, kernel_name(kernel, shape));
  }
  const std::lock_guard lock(m.mutex);
  return m.active_clusters[key] = std::max(count, 1);
}

void detail::launch_raw(const void* kernel, void (*)(const void*, void* const*), void* const* args, const size_t*, int,
                        const LaunchShape& shape) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  if (current_device().is_cpu()) [[unlikely]]
    detail::require_device(kernel_name(kernel, shape));
  allow_shared(kernel, shape);
  if (g_counting.load(std::memory_order_relaxed)) [[unlikely]]
    count_launch(kernel_name(kernel, shape));
  const Launch launch(shape);
  const cudaError_t status =
      queued(cudaLaunchKernelExC(&launch.config, kernel, const_cast<void**>(args)), current_stream());
  if (status != cudaSuccess) [[unlikely]]
    fail_cuda(status, kernel_name(kernel, shape));
}

// ---- graphs
void capture_begin(Stream stream) {
  check(cudaStreamBeginCapture(raw(stream), cudaStreamCaptureModeRelaxed), "capture begin");
}
Graph capture_end(Stream stream) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(raw(stream), &graph), "capture end");
  return reinterpret_cast<Graph>(graph);
}
bool capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(raw(stream), &status), "capture status");
  return status != cudaStreamCaptureStatusNone;
}
GraphExec graph_instantiate(Graph graph) {
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, raw(graph), 0), "graph instantiate");
  return reinterpret_cast<GraphExec>(exec);
}
bool graph_update(GraphExec exec, Graph graph) {
  cudaGraphExecUpdateResultInfo info{};
  const cudaError_t status = cudaGraphExecUpdate(raw(exec), raw(graph), &info);
  if (status == cudaErrorGraphExecUpdateFailure) {
    cudaGetLastError();
    return false;
  }
  check(status, "graph update");
  return true;
}
void graph_launch(GraphExec exec, Stream stream) { check(cudaGraphLaunch(raw(exec), raw(stream)), "graph launch"); }
void graph_destroy(Graph graph) noexcept {
  if (graph != nullptr) forget(cudaGraphDestroy(raw(graph)));
}
void graph_exec_destroy(GraphExec exec) noexcept {
  if (exec != nullptr) forget(cudaGraphExecDestroy(raw(exec)));
}

}  // namespace bitgrad::cuda
