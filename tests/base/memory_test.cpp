#include "bitgrad/base/memory.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

TEST_CASE("Every memory kind has its own name") {
  for (int i = 0; i < kMemoryKinds; ++i) {
    const std::string_view name = memory_kind_name(static_cast<MemoryKind>(i));
    CHECK(!name.empty());
    for (int j = 0; j < i; ++j) CHECK(name != memory_kind_name(static_cast<MemoryKind>(j)));
  }
  CHECK(memory_kind_name(MemoryKind::kQuantState) == "quant_state");
}

TEST_CASE("The account follows allocations, and the peak is split as it was at the total peak") {
  const MemoryAccount start = memory_now();
  reset_memory_peaks();
  void* a = tracked_allocate(1000, MemoryKind::kMaster);
  void* b = tracked_allocate(500, MemoryKind::kGrad);
  tracked_release(a, 1000, MemoryKind::kMaster);
  void* c = tracked_allocate(900, MemoryKind::kSaved);
  void* d = tracked_allocate(100, MemoryKind::kMaster);  // total 1500 again: not above the first peak
  const auto delta = [&](const MemoryAccount& account, MemoryKind kind) { return account[kind] - start[kind]; };
  const MemoryAccount now = memory_now(), peak = memory_at_peak(), kinds = memory_peak_by_kind();
  CHECK(now.total - start.total == 1500);
  CHECK(delta(now, MemoryKind::kSaved) == 900);
  CHECK(peak.total - start.total == 1500);
  CHECK(delta(peak, MemoryKind::kMaster) == 1000);
  CHECK(delta(peak, MemoryKind::kGrad) == 500);
  CHECK(delta(peak, MemoryKind::kSaved) == 0);
  CHECK(delta(kinds, MemoryKind::kMaster) == 1000);
  CHECK(delta(kinds, MemoryKind::kSaved) == 900);
  CHECK(kinds.total == peak.total);
  void* e = tracked_allocate(1, MemoryKind::kBuffer);
  CHECK(memory_at_peak().total - start.total == 1501);
  CHECK(delta(memory_at_peak(), MemoryKind::kMaster) == 100);
  tracked_release(b, 500, MemoryKind::kGrad);
  tracked_release(c, 900, MemoryKind::kSaved);
  tracked_release(d, 100, MemoryKind::kMaster);
  tracked_release(e, 1, MemoryKind::kBuffer);
  CHECK(memory_now().bytes == start.bytes);
  CHECK(memory_now().total == start.total);
  CHECK(memory_at_peak().total - start.total == 1501);
  reset_memory_peaks();
  CHECK(memory_at_peak().total == start.total);
  CHECK(memory_peak_by_kind().bytes == start.bytes);
}

TEST_CASE("Memory is aligned to 64 bytes, also of 0 bytes, and null is released silently") {
  for (int64_t bytes : {0, 1, 63, 64, 65, 4097}) {
    auto* data = static_cast<uint8_t*>(tracked_allocate(bytes, MemoryKind::kBatch));
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(data) % 64 == 0);
    for (int64_t i = 0; i < bytes; ++i) data[i] = 1;
    tracked_release(data, bytes, MemoryKind::kBatch);
  }
  const int64_t before = memory_now().total;
  tracked_release(nullptr, 100, MemoryKind::kBatch);
  CHECK(memory_now().total == before);
}

TEST_CASE("A workspace counts as workspace while it lives") {
  const int64_t before = memory_now()[MemoryKind::kWorkspace];
  {
    const Workspace scratch(256);
    scratch.as<uint8_t>()[255] = 1;
    CHECK(memory_now()[MemoryKind::kWorkspace] == before + 256);
  }
  CHECK(memory_now()[MemoryKind::kWorkspace] == before);
}

TEST_CASE("Too much memory is an error of code 4 that names the kind and the bytes and changes no account") {
  const MemoryAccount before = memory_now();
  for (int64_t bytes : {int64_t{1} << 50, INT64_MAX}) {
    const auto call = [&] { tracked_allocate(bytes, MemoryKind::kActivation); };
    CHECK(test::error_code_of(call) == 4);
    CHECK(test::contains(test::error_of(call), "activation"));
    CHECK(test::contains(test::error_of(call), std::to_string(bytes)));
  }
  CHECK(test::error_code_of([] { tracked_allocate(-1, MemoryKind::kGrad); }) == 70);
  CHECK(memory_now().bytes == before.bytes);
}

TEST_CASE("An absent device is an error of code 6 that names it") {
  const auto call = [] { tracked_allocate(8, MemoryKind::kGrad, Device{DeviceKind::kCuda, 9}); };
  CHECK(test::error_code_of(call) == 6);
  CHECK(test::contains(test::error_of(call), "cuda:9"));
  CHECK(to_string(Device{}) == "cpu");
  CHECK(test::contains(test::error_of([] { register_device_backend(DeviceKind::kCpu, nullptr); }), "cpu"));
  CHECK(test::error_of([] { register_backend_installer(DeviceKind::kCpu, nullptr); }) ==
        "[register_backend_installer] the backend of cpu cannot be replaced.");
}

TEST_CASE("The account is exact when several threads allocate at once") {
  const MemoryAccount before = memory_now();
  reset_memory_peaks();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      const auto kind = static_cast<MemoryKind>(t);
      for (int i = 0; i < 2000; ++i) tracked_release(tracked_allocate(64, kind), 64, kind);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(memory_now().bytes == before.bytes);
  const MemoryAccount peak = memory_at_peak();
  int64_t sum = 0;
  for (int64_t bytes : peak.bytes) sum += bytes;
  CHECK(sum == peak.total);
  CHECK(peak.total >= before.total + 64);
  CHECK(peak.total <= before.total + 4 * 64);
}

}  // namespace
}  // namespace bitgrad
