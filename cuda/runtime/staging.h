// Ring of pinned slots through which pageable host memory is copied to a device. The call returns once the bytes are in
// slots; the device reads them while the host continues. A slot is reused once its copy is complete.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {

class StagingRing {
 public:
  static constexpr int kSlots = 4;
  static constexpr int64_t kSlotBytes = int64_t{2} << 20;
  StagingRing() = default;
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // Copies on `stream`. If no pinned memory is available, falls back to the runtime's copy of pageable memory.
  void copy_to_device(void* to, const void* from, int64_t bytes, Stream stream);

 private:
  struct Slot {
    void* data = nullptr;
    Event fetched = nullptr;
  };
  bool ready();
  void free_slots() noexcept;

  std::mutex mutex_;
  std::array<Slot, kSlots> slots_{};
  int next_ = 0;
  bool tried_ = false, usable_ = false;
};

// The ring of the current device. Never destroyed.
StagingRing& staging_ring();

}  // namespace bitgrad::cuda
