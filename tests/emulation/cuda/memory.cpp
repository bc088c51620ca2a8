#include "emulation/cuda/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "bitgrad/base/error.h"

namespace bitgrad::cuda::emulation {
namespace {

constexpr int64_t kReserved = int64_t{1} << 36;  // address space per device
constexpr int64_t kGrowth = int64_t{4} << 20;    // in whole huge pages
constexpr int64_t kAlign = 512;
constexpr int64_t kGuard = 512;
constexpr int64_t kMostGuard = 1024;  // maximum number of watched bytes after a piece
constexpr unsigned char kGuardByte = 0x5B;

int64_t round_up(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

void protect_range(unsigned char* begin, int64_t bytes, bool readable) {
  if (mprotect(begin, static_cast<size_t>(bytes), readable ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    fail_with(ErrorCode::kMemory, "cuda emulation", "mprotect of ", bytes, " bytes failed: ", std::strerror(errno),
              '.');
}

struct Watched {
  int64_t bytes, block_bytes;
};

struct Arena {
  unsigned char* base = nullptr;
  int64_t top = 0, used = 0, total = int64_t{4} << 30;
  std::map<int64_t, int64_t> free;         // offset -> bytes, neighbours merged
  std::map<int64_t, Watched> allocations;  // made by device_malloc
  std::map<int64_t, Watched> watched;      // pieces of an allocator on top
};

struct DeviceMemory {
  std::mutex mutex;
  Arena arenas[kDevices];
  int open = 0;
  bool protect = true;

  DeviceMemory() {
    const char* const text = std::getenv("BITGRAD_EMULATION_PROTECT");
    protect = !unified() && (text == nullptr || std::strcmp(text, "0") != 0);
    for (Arena& arena : arenas) {
      void* const base =
          mmap(nullptr, kReserved + kGrowth, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base == MAP_FAILED) fail_with(ErrorCode::kMemory, "cuda emulation", "no address space for device memory.");
      // With huge pages, changing the protection touches one entry per huge page. The base is aligned to their size.
      arena.base =
          reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(base) + kGrowth - 1) / kGrowth * kGrowth);
      madvise(arena.base, kReserved, MADV_HUGEPAGE);
    }
  }
  void set_access(bool on) {
    for (const Arena& arena : arenas)
      if (arena.top > 0) protect_range(arena.base, arena.top, on);
  }
};

DeviceMemory& device_memory() {
  static DeviceMemory* const instance = new DeviceMemory;  // never destroyed: static tensors are freed late
  return *instance;
}

int64_t guard_bytes(const Watched& w) { return std::min(kMostGuard, w.block_bytes - w.bytes); }

// Runs for every allocation at every synchronization.
void check_guard(const Arena& arena, int64_t offset, const Watched& w) {
  static const std::vector<unsigned char> good(kMostGuard, kGuardByte);
  const unsigned char* const guard = arena.base + offset + w.bytes;
  const int64_t bytes = guard_bytes(w);
  if (std::memcmp(guard, good.data(), static_cast<size_t>(bytes)) == 0) return;
  int64_t i = 0;
  while (guard[i] == kGuardByte) ++i;
  fail_with(ErrorCode::kDevice, "cuda emulation", "a kernel wrote ", i, " bytes past an allocation of ", w.bytes,
            " bytes.");
}

Arena& arena_of(const void* data) {
  const int device = arena_device_of(data);
  if (device < 0) fail_with(ErrorCode::kDevice, "cuda emulation", "a pointer is not device memory.");
  return device_memory().arenas[device];
}

int64_t allocate_block(Arena& arena, int64_t bytes) {
  for (auto it = arena.free.begin(); it != arena.free.end(); ++it) {
    if (it->second < bytes) continue;
    const int64_t offset = it->first, rest = it->second - bytes;
    arena.free.erase(it);
    if (rest > 0) arena.free[offset + bytes] = rest;
    return offset;
  }
  const int64_t offset = arena.top;
  const int64_t grown = (offset + bytes + kGrowth - 1) / kGrowth * kGrowth;
  if (grown > kReserved) return -1;
  protect_range(arena.base + offset, grown - offset, device_memory().open > 0 || !device_memory().protect);
  arena.top = grown;
  if (grown > offset + bytes) arena.free[offset + bytes] = grown - offset - bytes;
  return offset;
}

void give(Arena& arena, int64_t offset, int64_t bytes) {
  auto next = arena.free.lower_bound(offset);
  if (next != arena.free.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = arena.free.erase(next);
  }
  if (next != arena.free.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  arena.free[offset] = bytes;
}

}  // namespace

MemoryAccess::MemoryAccess() {
  DeviceMemory& m = device_memory();
  const std::lock_guard lock(m.mutex);
  if (m.open++ == 0 && m.protect) m.set_access(true);
}

MemoryAccess::~MemoryAccess() {
  DeviceMemory& m = device_memory();
  const std::lock_guard lock(m.mutex);
  if (--m.open == 0 && m.protect) m.set_access(false);
}

int devices() {
  static const int count = [] {
    const char* const text = std::getenv("BITGRAD_EMULATION_DEVICES");
    return text == nullptr ? 1 : std::clamp(std::atoi(text), 1, kDevices);
  }();
  return count;
}

bool unified() {
  static const bool on = [] {
    const char* const text = std::getenv("BITGRAD_EMULATION_UNIFIED");
    return text != nullptr && std::strcmp(text, "1") == 0;
  }();
  return on;
}

void* arena_allocate(int device, int64_t bytes) {
  if (bytes == 0) return nullptr;
  DeviceMemory& m = device_memory();
  const MemoryAccess access;
  const std::lock_guard lock(m.mutex);
  Arena& arena = m.arenas[device];
  const int64_t block = round_up(bytes) + kGuard;
  if (arena.used + round_up(bytes) > arena.total) return nullptr;
  const int64_t offset = allocate_block(arena, block);
  if (offset < 0) return nullptr;
  arena.used += round_up(bytes);
  arena.allocations[offset] = {bytes, block};
  std::memset(arena.base + offset, kFreshPoison, static_cast<size_t>(bytes));
  std::memset(arena.base + offset + bytes, kGuardByte, static_cast<size_t>(block - bytes));
  return arena.base + offset;
}

void arena_free(void* data) {
  if (data == nullptr) return;
  DeviceMemory& m = device_memory();
  const MemoryAccess access;
  const std::lock_guard lock(m.mutex);
  Arena& arena = arena_of(data);
  const int64_t offset = static_cast<unsigned char*>(data) - arena.base;
  const auto it = arena.allocations.find(offset);
  if (it == arena.allocations.end())
    fail_with(ErrorCode::kDevice, "cuda emulation",
              "device_free got a pointer that is not the begin of an allocation.");
  const Watched w = it->second;
  arena.allocations.erase(it);
  arena.watched.erase(offset);
  arena.used -= round_up(w.bytes);
  give(arena, offset, w.block_bytes);
  check_guard(arena, offset, w);
}

void arena_watch(void* data, int64_t bytes, int64_t block_bytes) {
  DeviceMemory& m = device_memory();
  const MemoryAccess access;
  const std::lock_guard lock(m.mutex);
  Arena& arena = arena_of(data);
  const Watched w{bytes, block_bytes};
  arena.watched[static_cast<unsigned char*>(data) - arena.base] = w;
  std::memset(data, kFreshPoison, static_cast<size_t>(bytes));
  std::memset(static_cast<unsigned char*>(data) + bytes, kGuardByte, static_cast<size_t>(guard_bytes(w)));
}

void arena_unwatch(void* data) {
  DeviceMemory& m = device_memory();
  const MemoryAccess access;
  const std::lock_guard lock(m.mutex);
  Arena& arena = arena_of(data);
  const auto it = arena.watched.find(static_cast<unsigned char*>(data) - arena.base);
  if (it == arena.watched.end()) return;
  const auto [offset, w] = *it;
  arena.watched.erase(it);
  check_guard(arena, offset, w);
}

void arena_check() {
  DeviceMemory& m = device_memory();
  const MemoryAccess access;
  const std::lock_guard lock(m.mutex);
  for (const Arena& arena : m.arenas) {
    for (const auto& [offset, w] : arena.allocations) check_guard(arena, offset, w);
    for (const auto& [offset, w] : arena.watched) check_guard(arena, offset, w);
  }
}

int arena_device_of(const void* data) {
  const auto* const p = static_cast<const unsigned char*>(data);
  for (int d = 0; d < kDevices; ++d) {
    const unsigned char* const base = device_memory().arenas[d].base;
    if (p >= base && p < base + kReserved) return d;
  }
  return -1;
}

bool is_host_memory(const void* data) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  // Position-independent programs, the heap and the stacks are at 0x5500... and above, below 2^47. Mappings below are
  // shadow memory of sanitizers (up to 2^44 + 2^31), where a pair of 4-byte values could look like an address. mincore
  // fails for pages that are not mapped.
  if (address >> 45 == 0 || address >> 47 != 0 || arena_device_of(data) >= 0) return false;
  unsigned char state = 0;
  return mincore(reinterpret_cast<void*>(address / page * page), 1, &state) == 0;
}

void arena_info(int device, int64_t& free_bytes, int64_t& total_bytes) {
  const std::lock_guard lock(device_memory().mutex);
  const Arena& arena = device_memory().arenas[device];
  total_bytes = arena.total;
  free_bytes = arena.total - arena.used;
}

void set_arena_bytes(int device, int64_t bytes) {
  const std::lock_guard lock(device_memory().mutex);
  device_memory().arenas[device].total = bytes;
}

}  // namespace bitgrad::cuda::emulation
