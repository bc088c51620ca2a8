// Free blocks of CPU memory kept for the next request: a training step asks for the same sizes again and again, and
// the system's allocator would fetch and zero their pages anew each time.
//
// Blocks are aligned to 64 bytes. Sizes are rounded up to classes: multiples of 64 up to 1 KiB, then eight classes for
// each power of two, so at most 1/8 of a block is never asked for (and never touched). The process does not outgrow
// its own peak by the cache: what is in use and what is kept together stay below the largest number of bytes that was
// ever in use, plus kSlack, counted in sizes of classes. Blocks of kHugeBytes and more ask for huge pages where the
// system has them: they begin at a huge page, and the system gets their size rounded up to whole ones of 2 MiB.
// Sanitized builds keep nothing, so that a use after release is seen.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

// gcc defines macros, clang has features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BITGRAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BITGRAD_SANITIZED 1
#endif
#endif

namespace bitgrad::detail {

class BlockCache {
 public:
#if defined(BITGRAD_SANITIZED)
  static constexpr bool kKeeps = false;
#else
  static constexpr bool kKeeps = true;
#endif
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kSlack = int64_t{8} << 20;
  static constexpr int64_t kHugeBytes = int64_t{4} << 20;

  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache() { trim(); }

  // A block of at least `bytes` (0 .. 2^46), not initialised; nullptr when the system has none.
  void* acquire(int64_t bytes);
  // Gives back a block that acquire(bytes) returned.
  void release(void* data, int64_t bytes) noexcept;
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
