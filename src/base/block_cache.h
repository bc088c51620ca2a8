// Cache of free CPU memory blocks. A training step requests the same sizes over and over, and the system allocator
// would map and zero their pages anew each time.
//
// Blocks are aligned to 64 bytes. Sizes are rounded up to classes: multiples of 64 up to 1 KiB, then eight classes per
// power of two, so rounding wastes at most 1/8 of a block.
//
// Requests of kPieceBytes and more are served by pieces of system blocks: a request takes the smallest cached piece
// that fits, and the remainder becomes a piece of its own; free neighbours are merged. Leftovers of one size thus serve
// other sizes, and a loop that repeats its requests soon stops asking the system for memory.
//
// The cache does not push the process beyond its own peak. The bound is the largest number of bytes ever in use plus
// kSlack, in class sizes. Before a request to the system would push memory in use plus cached memory above it, the
// whole cache is returned. Each time that happens, the bound grows by 1/64 of the peak, at most 16 times, so that a
// loop whose pieces fit badly settles too. Free pieces that share a system block with used ones cannot be returned and
// may exceed the bound.
//
// System blocks of kHugeBytes and more request huge pages where available: they start on a huge page and their size is
// rounded up to multiples of 2 MiB. Once kSharesFrom bytes are in use, smaller requests for pieces come from system
// blocks of that size too: weights and caches of a few hundred KiB each, read once per token, otherwise spend as long
// in page walks as in reading. Sanitized builds cache nothing, so that use after release is detected.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace bitgrad::detail {

class BlockCache {
 public:
  static const bool kKeeps;  // false with AddressSanitizer and ThreadSanitizer
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kSlack = int64_t{8} << 20;
  static constexpr int64_t kHugeBytes = int64_t{4} << 20;
  static constexpr int64_t kPieceBytes = int64_t{64} << 10;
  static constexpr int64_t kSharesFrom = kHugeBytes;

  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache() { trim(); }

  // Returns an uninitialized block of at least `bytes` (0 .. 2^46), or nullptr if the system has no memory.
  void* acquire(int64_t bytes);
  // Releases a block that acquire(bytes) returned.
  void release(void* data, int64_t bytes) noexcept;
  // Returns all cached blocks to the system, except free pieces that share a system block with used ones.
  void trim() noexcept;
  // Bytes in cached blocks.
  int64_t kept() const;
  // Number of requests that went to the system.
  int64_t misses() const;
  // The size that a request of `bytes` is rounded up to.
  static int64_t class_bytes(int64_t bytes);

 private:
  struct Free {
    Free* next;
  };
  // Part of a system block; `before` and `after` are its neighbours there. Free pieces are in the list of their class.
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
  void* fetch(int64_t size, int64_t system_size);
  // All functions below need the lock.
  int64_t system_size(int64_t size) const;
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
  std::array<Piece*, kClasses> pieces_{};   // all at least as large as their class
  std::unordered_map<void*, Piece> known_;  // keyed by address
  int64_t used_ = 0, kept_ = 0, small_kept_ = 0, peak_ = 0, misses_ = 0, returns_ = 0;
};

}  // namespace bitgrad::detail
