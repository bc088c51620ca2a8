#include "cuda/runtime/staging.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace bitgrad::cuda {

bool StagingRing::ready() {
  if (tried_) return usable_;
  try {
    for (Slot& slot : slots_) {
      slot.data = pinned_malloc(kSlotBytes);
      if (slot.data == nullptr) {  // give up for good: let the runtime copy pageable memory
        free_slots();
        tried_ = true;
        return false;
      }
      slot.fetched = event_create();
    }
  } catch (...) {  // a device error; the next copy tries again
    free_slots();
    throw;
  }
  tried_ = usable_ = true;
  return true;
}

void StagingRing::free_slots() noexcept {
  for (Slot& slot : slots_) {
    event_destroy(slot.fetched);
    if (slot.data != nullptr) pinned_free(slot.data);
    slot = {};
  }
}

void StagingRing::copy_to_device(void* to, const void* from, int64_t bytes, Stream stream) {
  const std::lock_guard lock(mutex_);
  if (!ready()) return copy_async(to, from, bytes, CopyKind::kHostToDevice, stream);
  for (int64_t done = 0; done < bytes; done += kSlotBytes) {
    Slot& slot = slots_[static_cast<size_t>(next_)];
    next_ = (next_ + 1) % kSlots;
    const int64_t part = std::min(bytes - done, kSlotBytes);
    event_synchronize(slot.fetched);
    std::memcpy(slot.data, static_cast<const char*>(from) + done, static_cast<size_t>(part));
    copy_async(static_cast<char*>(to) + done, slot.data, part, CopyKind::kHostToDevice, stream);
    event_record(slot.fetched, stream);
  }
}

StagingRing& staging_ring() {
  static auto* const rings = new std::vector<StagingRing>(static_cast<size_t>(device_count()));
  return rings->at(static_cast<size_t>(current_device_index()));
}

}  // namespace bitgrad::cuda
