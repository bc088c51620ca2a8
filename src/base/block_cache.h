// Free blocks of CPU memory kept for the next request: a training step asks for the same sizes again and again, and
// the system's allocator would fetch and zero their pages anew each time.
//
// Blocks are aligned to 64 bytes. Sizes are rounded up to classes: multiples of 64 up to 1 KiB, then eight classes for
// each power of two, so at most 1/8 of a block is never asked for.
//
// Blocks of kPieceBytes and more are pieces of blocks of the system: a request takes a kept piece of the smallest class
// that holds it, and what it leaves is a piece of its own; free neighbours become one again. So what one size has left
// serves the others, and a loop of the same requests soon asks the system for nothing more.
//
// The process does not outgrow its own peak by the cache: before more is taken from the system than the largest number
// of bytes that was ever in use, plus kSlack, counted in sizes of classes, everything kept goes back. Each time that
// happens 1/64 of that number is added, at most 16 times, so that a loop whose pieces fit badly comes to rest too. Only
// free pieces beside used ones of the same block of the system stay, and may exceed that.
//
// Blocks of the system of kHugeBytes and more ask for huge pages where there are any: they begin at a huge page, and
// their size is rounded up to whole ones of 2 MiB. Sanitized builds keep nothing, so that a use after release is seen.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>

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
  static constexpr int64_t kPieceBytes = int64_t{64} << 10;

  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache() { trim(); }

  // A block of at least `bytes` (0 .. 2^46), not initialised; nullptr when the system has none.
  void* acquire(int64_t bytes);
  // Gives back a block that acquire(bytes) returned.
  void release(void* data, int64_t bytes) noexcept;
  // Returns every kept block to the system, but for free pieces beside used ones.
  void trim() noexcept;
  // Bytes of the kept blocks.
  int64_t kept() const;
  // How often a block was asked of the system.
  int64_t misses() const;
  // The size that a request of `bytes` gets.
  static int64_t class_bytes(int64_t bytes);

 private:
  struct Free {
    Free* next;
  };
  // Of a block of the system; `before` and `after` lie beside it there. Free ones are in a list of their class.
  struct Piece {
    void* data = nullptr;
    int64_t size = 0;
    Piece *before = nullptr, *after = nullptr, *previous = nullptr, *next = nullptr;
    bool free = false;
    bool whole() const { return before == nullptr && after == nullptr; }
  };
  static constexpr int kClasses = 16 + 8 * 42;
  static int class_of(int64_t units);
  static int class_below(int64_t size);
  static void release_all(Free* list) noexcept;
  void* fetch(int64_t size);
  // With the lock held:
  // Of what is used and kept.
  bool over_bound() const { return used_ + kept_ > bound(); }
  int64_t bound() const { return peak_ + kSlack + peak_ / 64 * std::min<int64_t>(returns_, 16); }
  void* take_kept(int64_t size);
  Piece* new_piece(void* data, int64_t size);
  void split(Piece& piece, int64_t size);
  void join(Piece& piece, Piece& after) noexcept;
  void link(Piece& piece) noexcept;
  void unlink(Piece& piece) noexcept;
  Piece& give_piece(void* data) noexcept;
  Free* forget(Piece& piece, Free* list) noexcept;
  Free* pop_all() noexcept;

  mutable std::mutex mutex_;
  std::array<Free*, kClasses> free_{};      // below kPieceBytes
  std::array<Piece*, kClasses> pieces_{};   // each of at least the size of its class
  std::unordered_map<void*, Piece> known_;  // by their data
  int64_t used_ = 0, kept_ = 0, small_kept_ = 0, peak_ = 0, misses_ = 0, returns_ = 0;
};

}  // namespace bitgrad::detail
