// Tracking allocator: every byte of every tensor is accounted under a MemoryKind, and runs print this account. It
// counts the bytes requested, not rounding of blocks or free blocks cached for reuse (docs/architecture.md, rule 7).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "bitgrad/base/device.h"

namespace bitgrad {

// X(symbol, text): the columns of the memory account.
#define BITGRAD_MEMORY_KINDS(X)                                                     \
  X(kValue, "value")            /* canonical low-bit codes of parameters */         \
  X(kDerived, "derived")        /* the same codes in derived layouts */             \
  X(kQuantState, "quant_state") /* scales, zero points, learned quantizer state */  \
  X(kMaster, "master")          /* float masters, and float parameters */           \
  X(kGrad, "grad")              /* accumulated parameter gradients */               \
  X(kOptimizer, "optimizer")    /* optimizer moments */                             \
  X(kBuffer, "buffer")          /* running statistics */                            \
  X(kActivation, "activation")  /* values and gradients between ops */              \
  X(kSaved, "saved")            /* saved for backward: codes, masks */              \
  X(kBatch, "batch")            /* batches of the loader */                         \
  X(kDataset, "dataset")        /* whole data sets */                               \
  X(kKvCache, "kv_cache")       /* keys and values of earlier rows of a sequence */ \
  X(kWorkspace, "workspace")    /* scratch memory of kernels */
// Purpose of an allocation.
enum class MemoryKind : uint8_t {
#define BITGRAD_MEMORY_KIND(symbol, text) symbol,
  BITGRAD_MEMORY_KINDS(BITGRAD_MEMORY_KIND)
#undef BITGRAD_MEMORY_KIND
      kCount
};
inline constexpr int kMemoryKinds = static_cast<int>(MemoryKind::kCount);
std::string_view memory_kind_name(MemoryKind kind);

// Bytes by kind: a snapshot.
struct MemoryAccount {
  std::array<int64_t, kMemoryKinds> bytes{};
  int64_t total = 0;
  int64_t operator[](MemoryKind kind) const { return bytes[static_cast<size_t>(kind)]; }
};

// Current allocations.
MemoryAccount memory_now();
// Allocations by kind at the time when the total peaked since the last reset.
MemoryAccount memory_at_peak();
// Peak of each kind on its own since the last reset (total: peak of the total).
MemoryAccount memory_peak_by_kind();
// Restarts all peaks from the current allocations.
void reset_memory_peaks();

// Number of requests for memory on the CPU that no free block could serve, since the program began: a loop that repeats
// itself soon makes none.
int64_t memory_misses();

// Allocates `bytes` bytes (0 is valid), aligned to 64 bytes, accounted under `kind`. Throws Error(kMemory) naming the
// kind and the size.
void* tracked_allocate(int64_t bytes, MemoryKind kind, Device device = {});
void tracked_release(void* data, int64_t bytes, MemoryKind kind, Device device = {}) noexcept;

// Reclassifies `bytes` allocated bytes. Moves nothing in memory and does not affect the peak of the total.
void tracked_move(int64_t bytes, MemoryKind from, MemoryKind to) noexcept;

// Adds `bytes`, which may be negative, to the account: memory of a block that was given back, or is used again.
void tracked_add(int64_t bytes, MemoryKind kind) noexcept;

// Uninitialized scratch memory of a kernel, accounted as workspace and released at the end of the scope.
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
