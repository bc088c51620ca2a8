#include "base/block_cache.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bitgrad::detail {
namespace {

constexpr int64_t kSmallUnits = 16;  // classes below are multiples of kAlignment
constexpr int64_t kHugePage = int64_t{2} << 20;

// Exponent of the step between classes at `units` > kSmallUnits.
int step_of(int64_t units) { return std::bit_width(static_cast<uint64_t>(units - 1)) - 4; }

int64_t class_units(int64_t bytes) {
  const int64_t units = std::max<int64_t>(1, (bytes + BlockCache::kAlignment - 1) / BlockCache::kAlignment);
  if (units <= kSmallUnits) return units;
  const int step = step_of(units);
  return ((units - 1) >> step << step) + (int64_t{1} << step);
}

void* system_block(int64_t size) {
  const bool huge = size >= BlockCache::kHugeBytes;
  void* data = std::aligned_alloc(static_cast<size_t>(huge ? kHugePage : BlockCache::kAlignment),
                                  static_cast<size_t>(huge ? (size + kHugePage - 1) / kHugePage * kHugePage : size));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // A hint: without huge pages the block is as good. The last, partial one stays small.
  if (huge && data != nullptr) madvise(data, static_cast<size_t>(size / kHugePage * kHugePage), MADV_HUGEPAGE);
#endif
  return data;
}

}  // namespace

int64_t BlockCache::class_bytes(int64_t bytes) { return class_units(bytes) * kAlignment; }

int BlockCache::class_of(int64_t units) {
  if (units <= kSmallUnits) return static_cast<int>(units) - 1;
  const int step = step_of(units);
  return static_cast<int>(kSmallUnits) + 8 * (step - 1) + static_cast<int>((units - 1) >> step) - 8;
}

void* BlockCache::acquire(int64_t bytes) {
  const int64_t units = class_units(bytes), size = units * kAlignment;
  Free* surplus = nullptr;
  {
    const std::lock_guard lock(mutex_);
    used_ += size;
    if (Free*& head = free_[static_cast<size_t>(class_of(units))]; head != nullptr) {
      Free* const block = head;
      head = block->next;
      kept_ -= size;
      return block;
    }
    if (used_ + kept_ > peak_ + kSlack) surplus = pop_all();
  }
  release_all(surplus);
  return fetch(size);
}

void* BlockCache::fetch(int64_t size) {
  void* data = system_block(size);
  if (data == nullptr) {
    trim();
    data = system_block(size);
  }
  const std::lock_guard lock(mutex_);
  if (data == nullptr) {
    used_ -= size;
    return nullptr;
  }
  peak_ = std::max(peak_, used_);
  return data;
}

void BlockCache::release(void* data, int64_t bytes) noexcept {
  if (data == nullptr) return;
  const int64_t units = class_units(bytes), size = units * kAlignment;
  {
    const std::lock_guard lock(mutex_);
    used_ -= size;
    if (kKeeps && used_ + kept_ + size <= peak_ + kSlack) {
      Free*& head = free_[static_cast<size_t>(class_of(units))];
      head = new (data) Free{head};
      kept_ += size;
      return;
    }
  }
  std::free(data);
}

BlockCache::Free* BlockCache::pop_all() noexcept {
  Free* list = nullptr;
  for (Free*& head : free_) {
    while (head != nullptr) {
      Free* const block = head;
      head = block->next;
      block->next = list;
      list = block;
    }
  }
  kept_ = 0;
  return list;
}

void BlockCache::release_all(Free* list) noexcept {
  while (list != nullptr) {
    Free* const next = list->next;
    std::free(list);
    list = next;
  }
}

void BlockCache::trim() noexcept {
  Free* list = nullptr;
  {
    const std::lock_guard lock(mutex_);
    list = pop_all();
  }
  release_all(list);
}

int64_t BlockCache::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace bitgrad::detail
