// The tracking allocator: every byte of tensors has a kind, and the account that a run prints is this one. It counts
// the bytes that were asked for; what the blocks are rounded up by, and free blocks that are kept for later requests,
// are not in it (docs/architecture.md, rule 7).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "bitgrad/base/device.h"

namespace bitgrad {

// What a block of memory is for. One line of memory_kinds.inc each.
enum class MemoryKind : uint8_t {
#define BITGRAD_MEMORY_KIND(symbol, text) symbol,
#include "bitgrad/base/memory_kinds.inc"
#undef BITGRAD_MEMORY_KIND
  kCount
};
inline constexpr int kMemoryKinds = static_cast<int>(MemoryKind::kCount);
std::string_view memory_kind_name(MemoryKind kind);

// Bytes by kind. A snapshot.
struct MemoryAccount {
  std::array<int64_t, kMemoryKinds> bytes{};
  int64_t total = 0;
  int64_t operator[](MemoryKind kind) const { return bytes[static_cast<size_t>(kind)]; }
};

// What is allocated now.
MemoryAccount memory_now();
// By kind at the moment when the total was largest since the last reset.
MemoryAccount memory_at_peak();
// The largest that each kind alone has been since the last reset (total: the total peak).
MemoryAccount memory_peak_by_kind();
// Starts new peaks from what is allocated now.
void reset_memory_peaks();

// 64-byte aligned memory of `bytes` (0 is legal) counted under `kind`. Throws Error(kMemory) naming the kind and the
// bytes.
void* tracked_allocate(int64_t bytes, MemoryKind kind, Device device = {});
void tracked_release(void* data, int64_t bytes, MemoryKind kind, Device device = {}) noexcept;

// Moves bytes that are allocated from one kind to another (no bytes move in memory, no peak of the total changes).
void tracked_move(int64_t bytes, MemoryKind from, MemoryKind to) noexcept;

// Scratch of a kernel: released at the end of the scope, counted as workspace. Not initialised.
class Workspace {
 public:
  explicit Workspace(int64_t bytes, Device device = current_device())
      : bytes_(bytes), device_(device), data_(tracked_allocate(bytes, workspace_kind(), device)) {}
  ~Workspace() { tracked_release(data_, bytes_, workspace_kind(), device_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  static MemoryKind workspace_kind();
  int64_t bytes_;
  Device device_;
  void* data_;
};

}  // namespace bitgrad
