// Memory, streams, events and graphs of the runtime seam, on emulated devices.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "cuda/device/builtins.h"
#include "cuda/support.h"
#include "emulation/cuda/emulation.h"
#include "emulation/cuda/memory.h"

namespace bitgrad::cuda {
namespace {

template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kDevice);
    return error.what();
  }
  return {};
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

BITGRAD_GLOBAL void add_one(int* values, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) values[i] += 1;
}
void add_one_to(int* data, int n) { launch(add_one, {{static_cast<unsigned>(n + 63) / 64}, {64}}, data, n); }
BITGRAD_GLOBAL void write_one(unsigned char* at) { *at = 1; }
BITGRAD_GLOBAL void copy_values(const int* from, int* to, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) to[i] = from[i];
}

TEST_CASE_METHOD(OnDevice, "The host cannot touch device memory outside of launches and copies") {
  if (const char* off = std::getenv("BITGRAD_EMULATION_PROTECT"); off != nullptr && std::strcmp(off, "0") == 0) return;
  DeviceArray<int> a(std::vector<int>(10, 3));
  add_one_to(a.data(), 10);
  for (const bool writes : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      for (const int number : {SIGSEGV, SIGBUS}) std::signal(number, [](int) { _exit(42); });
      volatile int* const p = a.data();
      if (writes)
        *p = 1;
      else
        static_cast<void>(*p);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 42);
  }
  CHECK(a.values() == std::vector<int>(10, 4));
}

TEST_CASE_METHOD(OnDevice, "Fresh device memory is poison, also where it was used before") {
  for (int round = 0; round < 2; ++round) {
    DeviceArray<unsigned> a(size_t{100});
    CHECK(a.values() == std::vector<unsigned>(100, 0xA5A5A5A5u));
    fill_async(a.data(), 0, a.bytes(), nullptr);
    CHECK(a.values() == std::vector<unsigned>(100, 0));
  }
}

TEST_CASE_METHOD(OnDevice, "A write past an allocation is an error at the next synchronization, which names its size") {
  auto* const data = static_cast<unsigned char*>(device_malloc(1000));
  launch(write_one, {{1}, {1}}, data + 999);
  stream_synchronize(nullptr);
  launch(write_one, {{1}, {1}}, data + 1003);
  const std::string text = "a kernel wrote 3 bytes past an allocation of 1000 bytes";
  CHECK(has(error_of([] { stream_synchronize(nullptr); }), text));
  CHECK(has(error_of([&] { device_free(data); }), text));
  stream_synchronize(nullptr);
  CHECK(has(error_of([&] { device_free(data); }), "not the begin of an allocation"));
}

TEST_CASE_METHOD(OnDevice, "Zero bytes need no memory, as in cudaMalloc") {
  CHECK(device_malloc(0) == nullptr);
  device_free(nullptr);
}

TEST_CASE_METHOD(OnDevice, "Launches that are waited for name the kernel that failed") {
  auto* const data = static_cast<unsigned char*>(device_malloc(1000));
  emulation::set_lazy_main_streams(true);
  const auto write = [&](unsigned char* at) {
    return error_of([&] { launch(write_one, {.grid = {1}, .block = {1}, .name = "writer"}, at); });
  };
  CHECK(write(data + 1003) == "");  // seen later, by whoever waits next
  CHECK(has(error_of([] { stream_synchronize(nullptr); }), "a kernel wrote 3 bytes past"));
  detail::set_synchronous_launches(true);
  CHECK(has(write(data + 999), "[writer] "));  // still broken
  const std::string text = write(data + 1001);
  CHECK(has(text, "[writer] "));
  CHECK(has(text, "past an allocation of 1000 bytes"));
  capture_begin(nullptr);  // what is captured does not run
  CHECK(write(data) == "");
  graph_destroy(capture_end(nullptr));
  detail::set_synchronous_launches(false);
  emulation::set_lazy_main_streams(false);
  CHECK(has(error_of([&] { device_free(data); }), "past an allocation of 1000 bytes"));
}

TEST_CASE_METHOD(OnDevice, "A full device gives no memory, and gives it again after a release") {
  int64_t free_bytes = 0, total = 0;
  memory_info(free_bytes, total);
  emulation::set_arena_bytes(0, total - free_bytes + (1 << 20));
  void* const data = device_malloc(1 << 20);
  CHECK(data != nullptr);
  CHECK(device_malloc(1) == nullptr);
  device_free(data);
  void* const again = device_malloc(512);
  CHECK(again != nullptr);
  device_free(again);
  emulation::set_arena_bytes(0, total);
}

TEST_CASE_METHOD(OnDevice, "Copies of rows respect both strides, and wrong pointers are refused") {
  std::vector<int> host(6 * 10, -1);
  for (int i = 0; i < 60; ++i) host[static_cast<size_t>(i)] = i;
  DeviceArray<int> a(std::vector<int>(6 * 7, 0));
  copy_rows_async(a.data(), 7 * 4, host.data(), 10 * 4, 5 * 4, 6, CopyKind::kHostToDevice, nullptr);
  const std::vector<int> v = a.values();
  for (int r = 0; r < 6; ++r)
    for (int c = 0; c < 7; ++c) CHECK(v[static_cast<size_t>(r * 7 + c)] == (c < 5 ? r * 10 + c : 0));
  std::vector<int> back(6 * 8, -5);
  copy_rows_async(back.data(), 8 * 4, a.data(), 7 * 4, 5 * 4, 6, CopyKind::kDeviceToHost, nullptr);
  for (int r = 0; r < 6; ++r)
    for (int c = 0; c < 8; ++c) CHECK(back[static_cast<size_t>(r * 8 + c)] == (c < 5 ? r * 10 + c : -5));
  CHECK(has(error_of([&] { copy_async(host.data(), back.data(), 4, CopyKind::kHostToDevice, nullptr); }),
            "invalid argument"));
  CHECK(has(error_of([&] { copy_rows_async(a.data(), 4, host.data(), 40, 8, 2, CopyKind::kHostToDevice, nullptr); }),
            "invalid pitch"));
  // One row too: the pitches are looked at, and a plain copy has none.
  const auto to_device = [&](int64_t to_stride, int64_t from_stride, int64_t bytes) {
    copy_rows_async(a.data(), to_stride, host.data(), from_stride, bytes, 1, CopyKind::kHostToDevice, nullptr);
  };
  CHECK(has(error_of([&] { to_device(4, 8, 8); }), "invalid pitch"));
  CHECK(has(error_of([&] { to_device(8, 4, 8); }), "invalid pitch"));
  CHECK(has(error_of([&] { to_device(8, kMaxPitch + 1, 8); }), "invalid pitch"));
  CHECK(has(error_of([&] { to_device(kMaxPitch + 1, 8, 8); }), "invalid pitch"));
  to_device(8, kMaxPitch, 8);
  copy_async(a.data(), host.data(), 160, CopyKind::kHostToDevice, nullptr);
  CHECK(a.values()[39] == 39);
}

TEST_CASE_METHOD(OnDevice, "What ends a stream, an event or a graph does not throw") {
  static_assert(noexcept(stream_destroy(nullptr))&& noexcept(event_destroy(nullptr))&& noexcept(
      graph_destroy(nullptr))&& noexcept(graph_exec_destroy(nullptr))&& noexcept(pinned_free(nullptr)));
  stream_destroy(nullptr);
  event_destroy(nullptr);
  graph_destroy(nullptr);
  graph_exec_destroy(nullptr);
  // The stream's late work is done, and its error is there at the next synchronization.
  auto* const data = static_cast<unsigned char*>(device_malloc(1000));
  Stream side = stream_create();
  set_current_stream(side);
  launch(write_one, {{1}, {1}}, data + 1003);
  set_current_stream(nullptr);
  stream_destroy(side);
  const std::string text = "a kernel wrote 3 bytes past an allocation of 1000 bytes";
  CHECK(has(error_of([] { stream_synchronize(nullptr); }), text));
  CHECK(has(error_of([&] { device_free(data); }), text));
  // A stream that takes part in a capture ends it.
  side = stream_create();
  const Event fork = event_create();
  capture_begin(nullptr);
  event_record(fork, nullptr);
  stream_wait(side, fork);
  stream_destroy(side);
  CHECK_FALSE(capturing(nullptr));
  CHECK(has(error_of([] { capture_end(nullptr); }), "not capturing"));
  event_destroy(fork);
}

TEST_CASE_METHOD(OnDevice, "A copy on another stream is seen only behind its event") {
  auto* const pinned = static_cast<int*>(pinned_malloc(400));
  for (int i = 0; i < 100; ++i) pinned[i] = i;
  DeviceArray<int> a(size_t{100}), early(size_t{100}), late(size_t{100});
  const Stream side = stream_create();
  const Event done = event_create();
  copy_async(a.data(), pinned, 400, CopyKind::kHostToDevice, side);
  event_record(done, side);
  CHECK_FALSE(event_done(done));
  launch(copy_values, {{1}, {32}}, static_cast<const int*>(a.data()), early.data(), 100);
  CHECK(early.values()[5] == static_cast<int>(0xA5A5A5A5));  // nobody waited
  stream_wait(nullptr, done);
  launch(copy_values, {{1}, {32}}, static_cast<const int*>(a.data()), late.data(), 100);
  CHECK(late.values()[5] == 5);
  CHECK(event_done(done));
  // Pinned memory is read when the copy runs; what is changed before shows.
  copy_async(a.data(), pinned, 400, CopyKind::kHostToDevice, side);
  pinned[7] = -7;
  stream_synchronize(side);
  CHECK(a.values()[7] == -7);
  // Pageable memory has been read when the call returns.
  std::vector<int> pageable(100, 1);
  copy_async(a.data(), pageable.data(), 400, CopyKind::kHostToDevice, side);
  pageable[0] = 2;
  stream_synchronize(side);
  CHECK(a.values()[0] == 1);
  event_destroy(done);
  stream_destroy(side);
  pinned_free(pinned);
}

TEST_CASE_METHOD(OnDevice, "Main streams that run late order what they got") {
  emulation::set_lazy_main_streams(true);
  DeviceArray<int> a(std::vector<int>(10, 0));
  for (int i = 0; i < 3; ++i) add_one_to(a.data(), 10);
  const Event event = event_create(true);
  event_record(event, nullptr);
  CHECK_FALSE(event_done(event));
  event_synchronize(event);
  CHECK(a.values() == std::vector<int>(10, 3));
  event_destroy(event);
  emulation::set_lazy_main_streams(false);
}

TEST_CASE_METHOD(OnDevice, "A captured graph runs when it is launched, with the arguments of its capture") {
  DeviceArray<int> a(std::vector<int>(10, 0)), b(std::vector<int>(10, 100));
  capture_begin(nullptr);
  CHECK(capturing(nullptr));
  add_one_to(a.data(), 10);
  add_one_to(a.data(), 5);
  CHECK(has(error_of([] { stream_synchronize(nullptr); }), "not permitted when stream is capturing"));
  const Graph graph = capture_end(nullptr);
  CHECK_FALSE(capturing(nullptr));
  CHECK(a.values() == std::vector<int>(10, 0));
  const GraphExec exec = graph_instantiate(graph);
  graph_destroy(graph);
  for (int i = 0; i < 3; ++i) graph_launch(exec, nullptr);
  CHECK(a.values() == std::vector<int>{6, 6, 6, 6, 6, 3, 3, 3, 3, 3});
  const auto captured = [&](int launches) {
    capture_begin(nullptr);
    for (int i = 0; i < launches; ++i) add_one_to(b.data(), 10);
    return capture_end(nullptr);
  };
  const Graph longer = captured(3), same = captured(2);
  CHECK_FALSE(graph_update(exec, longer));
  CHECK(graph_update(exec, same));
  graph_launch(exec, nullptr);
  CHECK(b.values() == std::vector<int>(10, 102));
  CHECK(a.values()[0] == 6);
  graph_destroy(longer);
  graph_destroy(same);
  graph_exec_destroy(exec);
  CHECK(has(error_of([] { capture_end(nullptr); }), "not capturing"));
}

TEST_CASE_METHOD(OnDevice,
                 "A capture includes another stream between two events, and refuses one that does not come back") {
  DeviceArray<int> a(std::vector<int>(8, 0));
  const Stream side = stream_create();
  const Event fork = event_create(), join = event_create();
  for (const bool joins : {true, false}) {
    capture_begin(nullptr);
    event_record(fork, nullptr);
    stream_wait(side, fork);
    set_current_stream(side);
    add_one_to(a.data(), 8);
    set_current_stream(nullptr);
    event_record(join, side);
    if (!joins) {
      CHECK(has(error_of([] { capture_end(nullptr); }), "unjoined"));
      continue;
    }
    stream_wait(nullptr, join);
    const Graph graph = capture_end(nullptr);
    const GraphExec exec = graph_instantiate(graph);
    graph_launch(exec, nullptr);
    CHECK(a.values()[0] == 1);
    graph_destroy(graph);
    graph_exec_destroy(exec);
  }
  event_destroy(fork);
  event_destroy(join);
  stream_destroy(side);
}

}  // namespace
}  // namespace bitgrad::cuda
