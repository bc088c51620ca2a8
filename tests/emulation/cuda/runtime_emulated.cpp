// cuda/runtime/runtime.h on top of the emulation. Main streams run their work at once. Streams made by stream_create
// defer it until they or one of their events are waited for, so that a copy that nobody waited for shows up as the
// poison that was there before.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "cuda/runtime/runtime.h"
#include "emulation/cuda/emulation.h"
#include "emulation/cuda/memory.h"
#include "emulation/cuda/queue.h"

namespace bitgrad::cuda {

using Operation = std::function<void()>;

struct GraphRecord {
  std::vector<Operation> operations;
  std::vector<std::string> kinds;  // what graph_update compares
  std::vector<Stream> streams;     // participants; the first one began the capture
};
struct GraphExecRecord {
  std::vector<Operation> operations;
  std::vector<std::string> kinds;
};
struct StreamRecord {
  int device = 0;
  bool lazy = false;
  std::deque<Operation> queue;
  uint64_t queued = 0, done = 0;
  GraphRecord* capture = nullptr;
  bool unjoined = false;  // has captured work that the capture's first stream does not wait for yet
};
struct EventRecord {
  Stream stream = nullptr;
  uint64_t position = 0;
  GraphRecord* capture = nullptr;
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

namespace {

using emulation::enqueue;
using emulation::kDevices;

struct Machine {
  std::recursive_mutex mutex;
  std::array<StreamRecord, kDevices> main;
  std::array<DeviceProperties, kDevices> properties;
  std::set<Stream> created;
  std::set<Event> events;
  std::map<const void*, int64_t> pinned;
  Machine() {
    for (int d = 0; d < kDevices; ++d) main[static_cast<size_t>(d)].device = d;
  }
};
Machine& machine() {
  static Machine* const instance = new Machine;
  return *instance;
}

thread_local std::array<Stream, kDevices> t_streams{};

Stream resolve(Stream stream) {
  return stream != nullptr ? stream : &machine().main[static_cast<size_t>(current_device_index())];
}

void drain(Stream stream, uint64_t position) {
  while (stream->done < position && !stream->queue.empty()) {
    Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->done;
    operation();
  }
}

bool lives(Stream stream) {
  for (StreamRecord& main : machine().main)
    if (&main == stream) return true;
  return machine().created.count(stream) > 0;
}

void refuse_capture(Stream stream, const char* what) {
  if (resolve(stream)->capture != nullptr)
    fail_with(ErrorCode::kDevice, what, "cuda:", current_device_index(),
              ": operation not permitted when stream is capturing.");
}

// Ends a capture without making a graph.
void abandon(GraphRecord* graph) {
  for (const Stream s : graph->streams) {
    s->capture = nullptr;
    s->unjoined = false;
  }
  for (const Event event : machine().events)
    if (event->capture == graph) event->capture = nullptr;
  delete graph;
}

bool is_pinned(const void* data, int64_t bytes) {
  const auto& map = machine().pinned;
  auto it = map.upper_bound(data);
  if (it == map.begin()) return false;
  --it;
  return static_cast<const char*>(data) + bytes <= static_cast<const char*>(it->first) + it->second;
}

void copy_now(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes, int64_t rows) {
  const emulation::MemoryAccess access;
  for (int64_t r = 0; r < rows; ++r)
    std::memmove(static_cast<char*>(to) + r * to_stride, static_cast<const char*>(from) + r * from_stride,
                 static_cast<size_t>(bytes));
}

int shared_limit(const DeviceProperties& p) {
  if (p.major == 9 || p.major == 10) return 227 << 10;
  return p.major == 8 && p.minor == 0 ? 163 << 10 : 99 << 10;
}

}  // namespace

namespace emulation {

void enqueue(Stream stream, std::string kind, Operation operation) {
  const std::lock_guard lock(machine().mutex);
  stream = resolve(stream);
  if (stream->capture != nullptr) {
    stream->capture->operations.push_back(std::move(operation));
    stream->capture->kinds.push_back(std::move(kind));
    stream->unjoined = true;
    return;
  }
  stream->queue.push_back(std::move(operation));
  ++stream->queued;
  if (!stream->lazy) drain(stream, stream->queued);
}

void set_capability(int major, int minor, bool wgmma) {
  for (int d = 0; d < kDevices; ++d) {
    DeviceProperties& p = machine().properties[static_cast<size_t>(d)];
    p.major = major;
    p.minor = minor;
    p.wgmma = wgmma;
    p.shared_bytes_per_block = shared_limit(p);
    p.name = concat("emulated device ", d);
    p.multiprocessors = 132;
    int64_t free_bytes = 0;
    arena_info(d, free_bytes, p.memory_bytes);
  }
}

void set_lazy_main_streams(bool lazy) {
  for (StreamRecord& stream : machine().main) {
    stream.lazy = lazy;
    if (!lazy) drain(&stream, stream.queued);
  }
}

}  // namespace emulation

// ---- devices
int device_count() noexcept { return emulation::devices(); }
std::string cuda_versions() { return "emulated: no driver"; }
std::string why_no_device() { return {}; }

const DeviceProperties& device_properties(int device) {
  static const bool once = (emulation::set_capability(9, 0, true), true);
  static_cast<void>(once);
  return machine().properties.at(static_cast<size_t>(device));
}

int current_device_index() {
  const Device device = current_device();
  return device.is_cpu() ? 0 : device.index;
}

// ---- streams and events
Stream stream_create() {
  auto* const stream = new StreamRecord;
  stream->device = current_device_index();
  stream->lazy = true;
  const std::lock_guard lock(machine().mutex);
  machine().created.insert(stream);
  return stream;
}

void stream_destroy(Stream stream) noexcept {
  if (stream == nullptr) return;
  const std::lock_guard lock(machine().mutex);
  if (stream->capture != nullptr) abandon(stream->capture);
  while (!stream->queue.empty()) {
    try {
      drain(stream, stream->queued);
    } catch (...) {  // an error of one operation; the others still run
    }
  }
  machine().created.erase(stream);
  for (const Event event : machine().events)  // the work that they mark is done
    if (event->stream == stream) *event = EventRecord{nullptr, 0, nullptr, event->time};
  delete stream;
}

void stream_synchronize(Stream stream) {
  refuse_capture(stream, "stream_synchronize");
  const std::lock_guard lock(machine().mutex);
  stream = resolve(stream);
  drain(stream, stream->queued);
  emulation::arena_check();
}

void device_synchronize() {
  const std::lock_guard lock(machine().mutex);
  for (const Stream stream : machine().created)
    if (stream->device == current_device_index()) drain(stream, stream->queued);
  stream_synchronize(nullptr);
}

Stream current_stream() { return t_streams[static_cast<size_t>(current_device_index())]; }
void* native_stream(Stream) { return nullptr; }
void set_current_stream(Stream stream) { t_streams[static_cast<size_t>(current_device_index())] = stream; }

Event event_create(bool timed) {
  auto* const event = new EventRecord;
  if (timed) event->time = std::make_shared<std::chrono::steady_clock::time_point>();
  const std::lock_guard lock(machine().mutex);
  machine().events.insert(event);
  return event;
}

void event_destroy(Event event) noexcept {
  const std::lock_guard lock(machine().mutex);
  machine().events.erase(event);
  delete event;
}

void event_record(Event event, Stream stream) {
  const std::lock_guard lock(machine().mutex);
  stream = resolve(stream);
  if (event->time != nullptr)
    enqueue(stream, "event", [time = event->time] { *time = std::chrono::steady_clock::now(); });
  event->stream = stream;
  event->capture = stream->capture;
  event->position = stream->queued;
}

void event_synchronize(Event event) {
  const std::lock_guard lock(machine().mutex);
  if (event->capture != nullptr)
    fail_with(ErrorCode::kDevice, "event_synchronize", "cuda:", current_device_index(),
              ": the event was recorded in a capture.");
  if (event->stream != nullptr) drain(event->stream, event->position);
}

bool event_done(Event event) {
  const std::lock_guard lock(machine().mutex);
  return event->stream == nullptr || event->stream->done >= event->position;
}

void stream_wait(Stream stream, Event event) {
  const std::lock_guard lock(machine().mutex);
  stream = resolve(stream);
  if (event->capture != nullptr) {  // the fork or the join of a capture
    if (stream->capture == nullptr) {
      stream->capture = event->capture;
      stream->capture->streams.push_back(stream);
    }
    event->stream->unjoined = false;
    if (stream != stream->capture->streams.front()) stream->unjoined = true;
    return;
  }
  if (event->stream == nullptr) return;
  if (stream->capture != nullptr)
    fail_with(ErrorCode::kDevice, "stream_wait", "cuda:", current_device_index(),
              ": a capturing stream waits for an event outside of the capture.");
  enqueue(stream, "wait", [from = event->stream, position = event->position] {
    if (lives(from)) drain(from, position);  // a destroyed stream has finished its work
  });
}

double elapsed_ms(Event begin, Event end) {
  return std::chrono::duration<double, std::milli>(*end->time - *begin->time).count();
}

// ---- memory
void* device_malloc(int64_t bytes) { return emulation::arena_allocate(current_device_index(), bytes); }

void device_free(void* data) {
  const std::lock_guard lock(machine().mutex);
  for (StreamRecord& stream : machine().main) drain(&stream, stream.queued);  // cudaFree waits for the device
  for (const Stream stream : machine().created) drain(stream, stream->queued);
  emulation::arena_free(data);
}

void* pinned_malloc(int64_t bytes) {
  void* const data = std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64));
  const std::lock_guard lock(machine().mutex);
  if (data != nullptr) machine().pinned[data] = bytes;
  return data;
}

void pinned_free(void* data) noexcept {
  const std::lock_guard lock(machine().mutex);
  machine().pinned.erase(data);
  std::free(data);
}

void memory_info(int64_t& free_bytes, int64_t& total_bytes) {
  emulation::arena_info(current_device_index(), free_bytes, total_bytes);
}

namespace {

void queue_copy(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes, int64_t rows,
                CopyKind kind, Stream stream) {
  const bool to_device = kind != CopyKind::kDeviceToHost, from_device = kind != CopyKind::kHostToDevice;
  const bool fits =
      (emulation::arena_device_of(to) >= 0) == to_device && (emulation::arena_device_of(from) >= 0) == from_device;
  if (!fits && !emulation::unified())
    fail_with(ErrorCode::kDevice, "copy", "cuda:", current_device_index(),
              ": invalid argument: a pointer is not where the kind of the copy says.");
  const std::lock_guard lock(machine().mutex);
  const int64_t host_bytes = (rows - 1) * (to_device ? from_stride : to_stride) + bytes;
  const bool async = kind == CopyKind::kDeviceToDevice || is_pinned(to_device ? from : to, host_bytes);
  const auto copy = [=](const void* source) { copy_now(to, to_stride, source, from_stride, bytes, rows); };
  const std::string name = concat("copy ", bytes, " x ", rows);
  if (async) return enqueue(stream, name, [=] { copy(from); });
  refuse_capture(stream, "copy");
  if (kind == CopyKind::kHostToDevice) {
    const auto* const begin = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + host_bytes);
    return enqueue(stream, name, [=] { copy(staged->data()); });
  }
  enqueue(stream, name, [=] { copy(from); });
  stream_synchronize(stream);
}

}  // namespace

void copy_async(void* to, const void* from, int64_t bytes, CopyKind kind, Stream stream) {
  if (bytes > 0) queue_copy(to, bytes, from, bytes, bytes, 1, kind, stream);
}

void copy_rows_async(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes, int64_t rows,
                     CopyKind kind, Stream stream) {
  if (bytes <= 0 || rows <= 0) return;
  // As strict as cudaMemcpy2DAsync, which checks the pitches even for a single row.
  if (to_stride < bytes || from_stride < bytes || to_stride > kMaxPitch || from_stride > kMaxPitch)
    fail_with(ErrorCode::kDevice, "copy", "cuda:", current_device_index(), ": invalid pitch argument: rows of ", bytes,
              " bytes, strides ", to_stride, " and ", from_stride, '.');
  queue_copy(to, to_stride, from, from_stride, bytes, rows, kind, stream);
}

void fill_async(void* data, int value, int64_t bytes, Stream stream) {
  if (bytes <= 0) return;
  enqueue(stream, concat("fill ", bytes), [=] {
    const emulation::MemoryAccess access;
    std::memset(data, value, static_cast<size_t>(bytes));
  });
}

void memory_in_use(void* data, int64_t bytes, int64_t block_bytes) {
  enqueue(current_stream(), "in use", [=] { emulation::arena_watch(data, bytes, block_bytes); });
}
void memory_idle(void* data, int64_t) {
  enqueue(current_stream(), "idle", [=] { emulation::arena_unwatch(data); });
}

// ---- graphs
void capture_begin(Stream stream) {
  const std::lock_guard lock(machine().mutex);
  refuse_capture(stream, "capture_begin");
  stream = resolve(stream);
  stream->capture = new GraphRecord;
  stream->capture->streams.push_back(stream);
}

Graph capture_end(Stream stream) {
  const std::lock_guard lock(machine().mutex);
  stream = resolve(stream);
  GraphRecord* const graph = stream->capture;
  if (graph == nullptr)
    fail_with(ErrorCode::kDevice, "capture_end", "cuda:", current_device_index(), ": the stream is not capturing.");
  bool joined = true;
  for (const Stream s : graph->streams) {
    if (s != stream && s->unjoined) joined = false;
    s->capture = nullptr;
    s->unjoined = false;
  }
  if (!joined) {
    delete graph;
    fail_with(ErrorCode::kDevice, "capture_end", "cuda:", current_device_index(),
              ": capture has unjoined work of another stream.");
  }
  graph->streams.clear();
  return graph;
}

bool capturing(Stream stream) { return resolve(stream)->capture != nullptr; }

GraphExec graph_instantiate(Graph graph) { return new GraphExecRecord{graph->operations, graph->kinds}; }

bool graph_update(GraphExec exec, Graph graph) {
  if (exec->kinds != graph->kinds) return false;
  exec->operations = graph->operations;
  return true;
}

void graph_launch(GraphExec exec, Stream stream) {
  for (size_t i = 0; i < exec->operations.size(); ++i) enqueue(stream, exec->kinds[i], exec->operations[i]);
}

void graph_destroy(Graph graph) noexcept { delete graph; }
void graph_exec_destroy(GraphExec exec) noexcept { delete exec; }

}  // namespace bitgrad::cuda
