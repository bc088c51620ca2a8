// Pinned memory through which pageable host memory goes to a device: the call returns when the bytes lie in a slot, the
// device fetches them while the host goes on. A slot is used again when its fetch is done.
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

  // On `stream`. Where no pinned memory is to be had, the runtime's own way.
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

// Of the current device. Never destroyed.
StagingRing& staging_ring();

}  // namespace bitgrad::cuda
