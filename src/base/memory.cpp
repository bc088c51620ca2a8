// The counters behind the tracking allocator. One lock, taken once per allocation or release, keeps the three snapshots
// exact.
#include "bitgrad/base/memory.h"

#include <algorithm>
#include <mutex>

#include "bitgrad/base/error.h"

namespace bitgrad {
namespace {

constexpr std::array<std::string_view, kMemoryKinds> kKindNames{
#define BITGRAD_MEMORY_KIND(symbol, text) text,
    BITGRAD_MEMORY_KINDS(BITGRAD_MEMORY_KIND)
#undef BITGRAD_MEMORY_KIND
};

struct Book {
  std::mutex mutex;
  MemoryAccount now;
  MemoryAccount at_peak;
  MemoryAccount by_kind;
};

// Never destroyed: tensors with static storage duration are released late.
Book& book() {
  static Book* const instance = new Book;
  return *instance;
}

void add(MemoryKind kind, int64_t bytes) {
  const size_t k = static_cast<size_t>(kind);
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  b.now.bytes[k] += bytes;
  b.now.total += bytes;
  if (b.now.total > b.at_peak.total) b.at_peak = b.now;
  b.by_kind.bytes[k] = std::max(b.by_kind.bytes[k], b.now.bytes[k]);
  b.by_kind.total = std::max(b.by_kind.total, b.now.total);
}

}  // namespace

std::string_view memory_kind_name(MemoryKind kind) {
  const size_t k = static_cast<size_t>(kind);
  ensure(k < kKindNames.size(), "memory_kind_name", "no memory kind ", k, '.');
  return kKindNames[k];
}

MemoryAccount memory_now() {
  const std::lock_guard lock(book().mutex);
  return book().now;
}

MemoryAccount memory_at_peak() {
  const std::lock_guard lock(book().mutex);
  return book().at_peak;
}

MemoryAccount memory_peak_by_kind() {
  const std::lock_guard lock(book().mutex);
  return book().by_kind;
}

void reset_memory_peaks() {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  b.at_peak = b.now;
  b.by_kind = b.now;
}

void* tracked_allocate(int64_t bytes, MemoryKind kind, Device device) {
  const std::string_view name = memory_kind_name(kind);
  ensure(bytes >= 0, "memory", "a block of kind ", name, " was requested with ", bytes, " bytes.");
  void* data = nullptr;
  try {
    const DeviceGuard guard(device);
    data = device_backend(device).allocate(bytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMemory) throw;
    fail_with(ErrorCode::kMemory, "memory", "no memory for a block of kind ", name, " on ", to_string(device), ": ",
              bytes, " bytes requested, ", memory_now().total, " bytes in use. Use a smaller batch or model.");
  }
  add(kind, bytes);
  return data;
}

void tracked_release(void* data, int64_t bytes, MemoryKind kind, Device device) noexcept {
  if (data == nullptr) return;
  try {
    const DeviceGuard guard(device);
    device_backend(device).release(data, bytes);
    add(kind, -bytes);
  } catch (...) {
    // Reached only if the device's backend was removed: its memory is gone, and the account keeps the bytes as in use.
  }
}

void tracked_move(int64_t bytes, MemoryKind from, MemoryKind to) noexcept {
  Book& b = book();
  const std::lock_guard lock(b.mutex);
  b.now.bytes[static_cast<size_t>(from)] -= bytes;
  int64_t& grown = b.now.bytes[static_cast<size_t>(to)];
  grown += bytes;
  b.by_kind.bytes[static_cast<size_t>(to)] = std::max(b.by_kind.bytes[static_cast<size_t>(to)], grown);
}

void tracked_add(int64_t bytes, MemoryKind kind) noexcept { add(kind, bytes); }

MemoryKind Workspace::workspace_kind() { return MemoryKind::kWorkspace; }

}  // namespace bitgrad
