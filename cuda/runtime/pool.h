// Caches freed device memory per device. A block belongs to the stream that was current when it was allocated and is
// reused on that stream only, so stream order also orders its users. Sizes are rounded up to classes: multiples of 512
// bytes up to 4 KiB, then eight classes per power of two.
//
// A captured graph uses the same addresses at every launch. Allocations made while a PoolScope is alive come from a
// private pool and return to it, so nobody else gets these blocks before the pool is closed.
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

  // Allocates at least `bytes` on the current stream of the current device, aligned to 256 bytes. Returns nullptr if
  // the device is out of memory even after cached blocks were freed.
  void* acquire(int64_t bytes);
  // Work already queued on the current stream may still use the block.
  void release(void* data);
  // Waits for the device and frees all cached blocks, except those of private pools.
  void trim();

  int64_t used_bytes() const;  // of allocated blocks, rounded up to their size classes
  int64_t kept_bytes() const;  // of free blocks available to everyone, i.e. not in private pools
  static int64_t class_bytes(int64_t bytes);

  // Private pools have numbers > 0. Allocations of the calling thread use pool `pool` until select(0).
  int open();
  void close(int pool);         // makes its free blocks available to everyone
  static int select(int pool);  // returns the previous pool

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

// The pool of the current device.
MemoryPool& memory_pool();

// Directs this thread's allocations to a private pool for the lifetime of the scope.
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
