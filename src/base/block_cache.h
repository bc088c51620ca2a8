// Free blocks of CPU memory kept for the next request: a training step asks for the same sizes again and again, and
// the system's allocator would fetch and zero their pages anew each time.
//
// Blocks are aligned to 64 bytes. Sizes are rounded up to classes: multiples of 64 up to 1 KiB, then eight classes for
// each power of two, so at most 1/8 of a block is never asked for (and never touched). The process does not outgrow
// its own peak by the cache: what is in use and what is kept together stay below the largest number of bytes that was
// ever in use, plus kSlack. Blocks of kHugeBytes and more ask for huge pages where the system has them.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

namespace bitgrad::detail {

class BlockCache {
 public:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kSlack = int64_t{8} << 20;
  static constexpr int64_t kHugeBytes = int64_t{4} << 20;

  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache() { trim(); }

  // A block of at least `bytes` (0 .. 2^46), not initialised; nullptr when the system has none.
  void* take(int64_t bytes);
  // Gives back a block that take(bytes) returned.
  void give(void* data, int64_t bytes) noexcept;
  // Returns every kept block to the system.
  void trim() noexcept;
  // Bytes of the kept blocks.
  int64_t kept() const;
  // The size that a request of `bytes` gets.
  static int64_t class_bytes(int64_t bytes);

 private:
  struct Free {
    Free* next;
  };
  static constexpr int kClasses = 16 + 8 * 42;
  static int class_of(int64_t units);
  Free* pop_all() noexcept;
  static void release_all(Free* list) noexcept;
  void* fetch(int64_t size);

  mutable std::mutex mutex_;
  std::array<Free*, kClasses> free_{};
  int64_t used_ = 0, kept_ = 0, peak_ = 0;
};

}  // namespace bitgrad::detail
