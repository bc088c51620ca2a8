// Free blocks of device memory kept for the next request, per device. A block belongs to the stream that was current
// when it was asked for, and is given again on that stream only: the stream's order then is the order of its users.
// Sizes are rounded up to classes: multiples of 512 bytes up to 4 KiB, then eight classes for each power of two.
//
// A captured graph uses the same addresses again whenever it is launched. What is asked for while a PoolScope lives
// comes from a private pool, and goes back to it: nobody else gets these blocks before the pool is closed.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda {

class MemoryPool {
 public:
  explicit MemoryPool(int device) : device_(device) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // At least `bytes` on the current stream of the current device, aligned to 256 bytes; null when the device has none,
  // also after the kept blocks went back to it.
  void* acquire(int64_t bytes);
  // The work of the current stream that uses the block may still be on its way.
  void release(void* data);
  // Returns all kept blocks to the device (waits for it).
  void trim();

  int64_t used_bytes() const;  // of blocks given out, in sizes of classes
  int64_t kept_bytes() const;  // of free blocks that everyone can ask for: not those of private pools
  static int64_t class_bytes(int64_t bytes);

  // Private pools: numbers > 0. Requests of the calling thread go to `pool` until select(0).
  int open();
  void close(int pool);         // its free blocks are for all again
  static int select(int pool);  // returns the one before

 private:
  struct Block {
    int64_t bytes = 0;
    Stream stream = nullptr;
    int pool = 0;
  };
  using Key = std::tuple<int, Stream, int64_t>;

  void* pop(int pool, Stream stream, int64_t bytes);

  const int device_;
  mutable std::mutex mutex_;
  std::map<Key, std::vector<void*>> free_;
  std::unordered_map<void*, Block> blocks_;
  int64_t used_ = 0, kept_ = 0;
  int last_pool_ = 0;
};

// Of the current device.
MemoryPool& memory_pool();

// Requests of this thread go to a private pool while it lives.
class PoolScope {
 public:
  explicit PoolScope(int pool) : outer_(MemoryPool::select(pool)) {}
  ~PoolScope() { MemoryPool::select(outer_); }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  int outer_;
};

}  // namespace bitgrad::cuda
