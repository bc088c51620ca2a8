// The CUDA device as the framework sees it: memory of the account, copies, several devices, prefetch, graphs of steps.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"
#include "cuda/device/builtins.h"
#include "cuda/register.h"
#include "cuda/runtime/backend.h"
#include "cuda/runtime/staging.h"
#include "cuda/runtime/step_graph.h"
#include "emulation/cuda/emulation.h"
#include "emulation/cuda/memory.h"
#include "kernels/flag.h"
#include "support/catch.h"

namespace bitgrad::cuda {

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
template <typename Body>
std::string error_of(Body&& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return {};
}

BITGRAD_GLOBAL void set_flag(uint32_t* word, uint32_t bits) {
  if (threadIdx.x == 0) atomicOr(word, bits);
}
BITGRAD_GLOBAL void add_values(const int* in, int* out, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) out[i] += in[i];
}
BITGRAD_GLOBAL void fill_values(int* out, int n, int value) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) out[i] = value;
}
bool only_one_device() {
  if (emulation::devices() > 1) return false;
  WARN("skipped: there is one device");
  return true;
}
std::vector<int> fetched(const void* data, int n) {
  std::vector<int> out(static_cast<size_t>(n));
  cuda_backend().copy_to_host(out.data(), data, n * 4);
  return out;
}

TEST_CASE("A CUDA device is found, described, and refused beyond the last one") {
  const int count = bitgrad::device_count(DeviceKind::kCuda);
  CHECK(count == emulation::devices());
  CHECK(count == (std::getenv("BITGRAD_EMULATION_DEVICES") == nullptr ? 1 : emulation::kDevices));
  const Device last = Device::cuda(count - 1);
  const DeviceGuard guard(last);
  CHECK(device_backend(last).describe() ==
        concat("emulated device ", count - 1, ", compute capability 9.0, 132 multiprocessors, 4 GiB"));
  CHECK(has(error_of([&] { DeviceGuard absent(Device::cuda(count)); }, ErrorCode::kDevice), " is absent"));
  CHECK(current_device() == last);
  CHECK(why_absent(DeviceKind::kCuda).empty());
  install_cuda();  // once more changes nothing
  const std::vector<std::string> libraries = device_backend(last).libraries();
  REQUIRE(libraries.size() == 3);
  CHECK(libraries[0] == cuda_versions());
  CHECK(libraries[1].starts_with("cuBLASLt"));
  CHECK(libraries[2].starts_with("NCCL"));
  const auto groups = [](int major, int minor, bool wgmma) {
    emulation::set_capability(major, minor, wgmma);
    return device_isa() & (isa::kSm80Mma | isa::kB1Mma | isa::kWgmma);
  };
  CHECK(groups(7, 5, false) == 0);
  CHECK(groups(8, 0, false) == (isa::kSm80Mma | isa::kB1Mma));
  CHECK(groups(8, 9, false) == (isa::kSm80Mma | isa::kB1Mma));
  CHECK(groups(10, 0, false) == isa::kSm80Mma);
  CHECK(groups(12, 0, false) == isa::kSm80Mma);
  CHECK(groups(9, 0, true) == (isa::kSm80Mma | isa::kB1Mma | isa::kWgmma));
}

TEST_CASE("Memory of a device is in the account, is given again on its stream, and is poison then") {
  const DeviceGuard guard(Device::cuda());
  const int64_t before = memory_now().total;
  void* const first = tracked_allocate(5000, MemoryKind::kWorkspace, Device::cuda());
  CHECK(memory_now().total == before + 5000);
  CHECK(reinterpret_cast<uintptr_t>(first) % 256 == 0);
  cuda_backend().fill_zero(first, 5000);
  tracked_release(first, 5000, MemoryKind::kWorkspace, Device::cuda());
  CHECK(memory_now().total == before);
  CHECK(memory_pool().kept_bytes() >= MemoryPool::class_bytes(5000));
  void* const second = tracked_allocate(4900, MemoryKind::kWorkspace, Device::cuda());
  CHECK(second == first);  // of the same class
  CHECK(fetched(second, 1225) == std::vector<int>(1225, static_cast<int>(0xA5A5A5A5)));
  const Stream side = stream_create();
  set_current_stream(side);
  void* const other = tracked_allocate(4900, MemoryKind::kWorkspace, Device::cuda());
  CHECK(other != first);
  tracked_release(other, 4900, MemoryKind::kWorkspace, Device::cuda());
  set_current_stream(nullptr);
  tracked_release(second, 4900, MemoryKind::kWorkspace, Device::cuda());
  void* const third = tracked_allocate(4900, MemoryKind::kWorkspace, Device::cuda());
  CHECK(third == first);
  tracked_release(third, 4900, MemoryKind::kWorkspace, Device::cuda());
  memory_pool().trim();
  CHECK(memory_pool().kept_bytes() == 0);
  stream_destroy(side);
}

TEST_CASE("Size classes hold what was asked for and waste at most an eighth above 4 KiB") {
  int64_t before = 0;
  for (int64_t bytes : {0, 1, 512, 513, 4096, 4097, 4608, 4609, 9000, 65536, 65537, 1000000, 1 << 30, (1 << 30) + 1}) {
    const int64_t size = MemoryPool::class_bytes(bytes);
    CHECK(size >= std::max<int64_t>(bytes, 1));
    CHECK(size % 512 == 0);
    CHECK(size >= before);
    CHECK(MemoryPool::class_bytes(size) == size);
    if (bytes > 4096) CHECK(size - bytes <= bytes / 8);
    before = size;
  }
}

TEST_CASE("A write past what was asked for is found, though the block is larger") {
  const DeviceGuard guard(Device::cuda());
  auto* const data = static_cast<int*>(cuda_backend().allocate(5000));
  launch(fill_values, {{1}, {32}}, data, 1250, 1);
  cuda_backend().synchronize();
  launch(fill_values, {{1}, {32}}, data, 1251, 1);
  CHECK(has(error_of([] { cuda_backend().synchronize(); }, ErrorCode::kDevice),
            "wrote 0 bytes past an allocation of 5000 bytes"));
  CHECK(has(error_of([&] { memory_pool().release(data); }, ErrorCode::kDevice), "past an allocation of 5000 bytes"));
  memory_pool().release(data);
}

TEST_CASE("A full device first gets the kept blocks back, then the error names the bytes") {
  const DeviceGuard guard(Device::cuda());
  memory_pool().trim();
  int64_t free_bytes = 0, total = 0;
  memory_info(free_bytes, total);
  emulation::set_arena_bytes(0, total - free_bytes + (8 << 20));
  cuda_backend().release(cuda_backend().allocate(5 << 20), 5 << 20);
  void* const large = cuda_backend().allocate(7 << 20);  // only without the kept 5 MiB
  CHECK(memory_pool().kept_bytes() == 0);
  const std::string text =
      error_of([] { tracked_allocate(2 << 20, MemoryKind::kWorkspace, Device::cuda()); }, ErrorCode::kMemory);
  CHECK(has(text, "2097152 bytes"));
  CHECK(has(text, "cuda:0"));
  cuda_backend().release(large, 7 << 20);
  emulation::set_arena_bytes(0, total);
}

TEST_CASE("Copies from the host go through the staging ring, larger than it and of rows") {
  const DeviceGuard guard(Device::cuda());
  const int n = static_cast<int>(StagingRing::kSlotBytes / 4) * 5 + 13;
  std::vector<int> host(static_cast<size_t>(n));
  std::iota(host.begin(), host.end(), 1);
  const std::vector<int> kept = host;
  void* const data = cuda_backend().allocate(int64_t{n} * 4);
  for (const bool lazy : {false, true}) {
    emulation::set_lazy_main_streams(lazy);
    cuda_backend().fill_zero(data, int64_t{n} * 4);
    cuda_backend().copy_from_host(data, host.data(), int64_t{n} * 4);
    std::fill(host.begin(), host.end(), 0);  // allowed once the call has returned
    CHECK(fetched(data, n) == kept);
    host = kept;
  }
  emulation::set_lazy_main_streams(false);
  cuda_backend().copy(CopyWay::kFromHost, data, 12, host.data() + 50, 40, 8, 3);
  CHECK(fetched(data, 8) == std::vector<int>{51, 52, 3, 61, 62, 6, 71, 72});
  cuda_backend().copy(CopyWay::kOnDevice, static_cast<int*>(data) + 100, 4, data, 12, 4, 3);
  CHECK(fetched(static_cast<int*>(data) + 100, 4) == std::vector<int>{51, 61, 71, 104});
  cuda_backend().release(data, int64_t{n} * 4);
}

TEST_CASE("Dense rows and one row are plain copies for any strides, and rows must not overlap") {
  const DeviceGuard guard(Device::cuda());
  DeviceBackend& backend = cuda_backend();
  std::vector<int> host(15), back(15);
  std::iota(host.begin(), host.end(), 1);
  auto* const data = static_cast<int*>(backend.allocate(60));
  auto* const other = static_cast<int*>(backend.allocate(60));
  backend.copy(CopyWay::kFromHost, data, 20, host.data(), 20, 20, 3);
  CHECK(fetched(data, 15) == host);
  backend.copy(CopyWay::kOnDevice, other, 20, data, 20, 20, 3);
  backend.copy(CopyWay::kToHost, back.data(), 20, other, 20, 20, 3);
  CHECK(back == host);
  for (const int64_t stride : {int64_t{0}, int64_t{4}, kMaxPitch + 1}) {
    INFO(stride);
    backend.fill_zero(data, 60);
    backend.fill_zero(other, 60);
    back.assign(15, 0);
    backend.copy(CopyWay::kFromHost, data, stride, host.data(), stride, 20, 1);
    backend.copy(CopyWay::kOnDevice, other, stride, data, stride, 20, 1);
    backend.copy(CopyWay::kToHost, back.data(), stride, other, stride, 20, 1);
    CHECK(back == std::vector<int>{1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  }
  CHECK(has(error_of([&] { backend.copy(CopyWay::kOnDevice, other, 8, data, 20, 20, 3); }, ErrorCode::kBug),
            "rows of 20 bytes overlap, strides 8 and 20"));
  backend.release(other, 60);
  backend.release(data, 60);
}

TEST_CASE("Rows that are further apart than the largest pitch are copied one by one") {
  const DeviceGuard guard(Device::cuda());
  constexpr int64_t kApart = kMaxPitch + 1;
  void* const mapped = mmap(nullptr, static_cast<size_t>(kApart + 4096), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  auto* const first = static_cast<int*>(mapped);
  auto* const second = reinterpret_cast<int*>(static_cast<char*>(mapped) + kApart);
  for (int i = 0; i < 4; ++i) {
    first[i] = i + 1;
    second[i] = i + 11;
  }
  void* const data = cuda_backend().allocate(40);
  cuda_backend().fill_zero(data, 40);
  cuda_backend().copy(CopyWay::kFromHost, data, 20, mapped, kApart, 16, 2);
  CHECK(fetched(data, 10) == std::vector<int>{1, 2, 3, 4, 0, 11, 12, 13, 14, 0});
  first[0] = second[0] = -1;
  cuda_backend().copy(CopyWay::kToHost, mapped, kApart, data, 20, 16, 2);
  CHECK(first[0] == 1);
  CHECK(second[0] == 11);
  CHECK(second[4] == 0);
  cuda_backend().release(data, 40);
  munmap(mapped, static_cast<size_t>(kApart + 4096));
}

TEST_CASE("Two devices have memories of their own") {
  if (only_one_device()) return;
  std::array<void*, 2> data{};
  for (const int i : {0, 1}) {
    const DeviceGuard guard(Device::cuda(i));
    data[static_cast<size_t>(i)] = cuda_backend().allocate(400);
    launch(fill_values, {{1}, {32}}, static_cast<int*>(data[static_cast<size_t>(i)]), 100, 9 + i);
  }
  for (const int i : {0, 1}) {
    const DeviceGuard guard(Device::cuda(i));
    CHECK(fetched(data[static_cast<size_t>(i)], 100) == std::vector<int>(100, 9 + i));
    cuda_backend().release(data[static_cast<size_t>(i)], 400);
  }
}

TEST_CASE("Flag words of a device are read together") {
  const DeviceGuard guard(Device::cuda());
  poll_errors();
  FlagWord quiet, loud;
  launch(set_flag, {{2}, {32}}, loud.word(), 4u);
  quiet.check([] { fail("quiet", "no"); });
  loud.check([] { fail_with(ErrorCode::kNonFinite, "loud", "yes"); });
  CHECK(has(error_of([] { poll_errors(); }, ErrorCode::kNonFinite), "[loud] yes"));
  poll_errors();
}

TEST_CASE("On the CPU a prefetch copies at once and a step runs when it is launched") {
  const std::unique_ptr<Prefetch> prefetch = make_prefetch();
  const std::vector<int> from{1, 2, 3};
  std::vector<int> to(3);
  prefetch->begin();
  prefetch->copy_from_host(to.data(), from.data(), 12);
  prefetch->end();
  prefetch->wait();
  CHECK(to == from);
  const std::unique_ptr<StepRecord> step = make_step_record();
  int count = 0;
  CHECK_FALSE(step->captured());
  CHECK(has(error_of([&] { step->launch(); }, ErrorCode::kUsage), "launch before capture"));
  step->capture([&] { ++count; });
  CHECK(count == 0);
  step->launch();
  step->launch();
  CHECK(count == 2);
}

TEST_CASE("A prefetched batch is there behind wait, poison before it") {
  const DeviceGuard guard(Device::cuda());
  const std::unique_ptr<Prefetch> prefetch = make_prefetch();
  auto* const buffer = static_cast<int*>(cuda_backend().allocate(400));
  auto* const sum = static_cast<int*>(cuda_backend().allocate(400));
  for (int step = 0; step < 6; ++step) {
    const std::vector<int> batch(100, step * step + 1);
    cuda_backend().fill_zero(sum, 400);
    prefetch->begin();
    prefetch->copy_from_host(buffer, batch.data(), 400);
    prefetch->end();
    if (step == 0) {
      launch(add_values, {{1}, {32}}, static_cast<const int*>(buffer), sum, 100);
      CHECK(fetched(sum, 1)[0] == static_cast<int>(0xA5A5A5A5));
      cuda_backend().fill_zero(sum, 400);
    }
    prefetch->wait();
    launch(add_values, {{1}, {32}}, static_cast<const int*>(buffer), sum, 100);
    CHECK(fetched(sum, 100) == batch);
  }
  cuda_backend().release(buffer, 400);
  cuda_backend().release(sum, 400);
}

// A step with scratch of its own: total += 5 * weight.
void step_of(int* total, int weight) {
  auto* const scratch = static_cast<int*>(cuda_backend().allocate(400));
  launch(fill_values, {{1}, {32}}, scratch, 100, 0);
  auto* const more = static_cast<int*>(cuda_backend().allocate(400));
  launch(fill_values, {{1}, {32}}, more, 100, weight);
  for (int i = 0; i < 5; ++i) launch(add_values, {{1}, {32}}, static_cast<const int*>(more), scratch, 100);
  launch(add_values, {{1}, {32}}, static_cast<const int*>(scratch), total, 100);
  cuda_backend().release(more, 400);
  cuda_backend().release(scratch, 400);
}

TEST_CASE("A captured step runs again and again, and its scratch is nobody else's") {
  const DeviceGuard guard(Device::cuda());
  auto* const total = static_cast<int*>(cuda_backend().allocate(400));
  cuda_backend().fill_zero(total, 400);
  step_of(total, 1);
  CHECK(fetched(total, 100) == std::vector<int>(100, 5));
  {
    StepGraph graph;
    CHECK(has(error_of([&] { graph.launch(); }, ErrorCode::kUsage), "launch before capture"));
    graph.capture([&] { step_of(total, 2); });
    CHECK(fetched(total, 100) == std::vector<int>(100, 5));
    // Lives across launches: may not get a block of the graph.
    auto* const witness = static_cast<int*>(cuda_backend().allocate(400));
    launch(fill_values, {{1}, {32}}, witness, 100, 77);
    for (int i = 0; i < 3; ++i) graph.launch();
    CHECK(fetched(total, 100) == std::vector<int>(100, 35));
    CHECK(fetched(witness, 100) == std::vector<int>(100, 77));
    graph.capture([&] { step_of(total, 3); });
    graph.launch();
    CHECK(fetched(total, 100) == std::vector<int>(100, 50));
    const std::string refused = error_of([&] { graph.capture([&] { fetched(total, 1); }); }, ErrorCode::kDevice);
    CHECK(has(refused, "a copy to the host while a graph is captured"));
    CHECK_FALSE(capturing(current_stream()));
    graph.launch();  // the one before
    CHECK(fetched(total, 100) == std::vector<int>(100, 65));
    cuda_backend().release(witness, 400);
    // What the graph keeps for itself is not free.
    memory_pool().trim();
    CHECK(memory_pool().kept_bytes() == 0);
    int64_t free_bytes = 0, all_bytes = 0;
    memory_info(free_bytes, all_bytes);
    CHECK(cuda_backend().free_bytes() == free_bytes);
  }
  CHECK(memory_pool().kept_bytes() == 2 * MemoryPool::class_bytes(400));
  cuda_backend().release(total, 400);
  const int64_t kept = memory_pool().kept_bytes();
  memory_pool().trim();
  CHECK(kept == 3 * MemoryPool::class_bytes(400));
  CHECK(memory_pool().kept_bytes() == 0);
}

TEST_CASE("A captured step ends on its own device, after the work that it has there") {
  if (only_one_device()) return;
  emulation::set_lazy_main_streams(true);
  {
    const DeviceGuard guard(Device::cuda(0));
    std::unique_ptr<StepGraph> graph;
    Event done = nullptr;
    int* total = nullptr;
    {
      const DeviceGuard there(Device::cuda(1));
      total = static_cast<int*>(cuda_backend().allocate(400));
      cuda_backend().fill_zero(total, 400);
      graph = std::make_unique<StepGraph>();
      graph->capture([&] { step_of(total, 2); });
      graph->launch();
      done = event_create();
      event_record(done, current_stream());
      CHECK_FALSE(event_done(done));
    }
    graph.reset();
    CHECK(current_device() == Device::cuda(0));
    CHECK(event_done(done));
    event_destroy(done);
    const DeviceGuard there(Device::cuda(1));
    CHECK(fetched(total, 100) == std::vector<int>(100, 10));
    cuda_backend().release(total, 400);
    memory_pool().trim();
  }
  emulation::set_lazy_main_streams(false);
}

}  // namespace
}  // namespace bitgrad::cuda
