#include "base/block_cache.h"

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "support/catch.h"

namespace bitgrad::detail {
namespace {

constexpr bool kKeeps = BlockCache::kKeeps;

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % BlockCache::kAlignment == 0; }

}  // namespace

TEST_CASE("a size class holds the request, wastes at most an eighth and is a class of its own") {
  CHECK(BlockCache::class_bytes(0) == 64);
  CHECK(BlockCache::class_bytes(1) == 64);
  CHECK(BlockCache::class_bytes(64) == 64);
  CHECK(BlockCache::class_bytes(65) == 128);
  CHECK(BlockCache::class_bytes(1024) == 1024);
  CHECK(BlockCache::class_bytes(1025) == 1152);
  for (int64_t bytes = 1; bytes < (int64_t{1} << 46); bytes += 1 + bytes / 37) {
    const int64_t size = BlockCache::class_bytes(bytes);
    CHECK(size >= bytes);
    CHECK(size % 64 == 0);
    CHECK((size - bytes < 64 || (size - bytes) * 8 <= size));
    CHECK(BlockCache::class_bytes(size) == size);
  }
}

TEST_CASE("a block that was given back serves the next request of its class") {
  BlockCache cache;
  for (const int64_t bytes :
       {int64_t{0}, int64_t{7}, int64_t{1000}, int64_t{5000}, int64_t{3} << 20, int64_t{9} << 20}) {
    void* const first = cache.acquire(bytes);
    REQUIRE(first != nullptr);
    CHECK(aligned(first));
    std::memset(first, 0x5A, static_cast<size_t>(bytes));
    void* const second = cache.acquire(bytes);
    CHECK(first != second);
    cache.release(first, bytes);
    CHECK(cache.kept() == (kKeeps ? BlockCache::class_bytes(bytes) : 0));
    void* const third = cache.acquire(BlockCache::class_bytes(bytes));
    if (kKeeps) CHECK(third == first);
    CHECK(cache.kept() == 0);
    cache.release(second, bytes);
    cache.release(third, bytes);
    cache.trim();
    CHECK(cache.kept() == 0);
  }
}

TEST_CASE("what is kept and what is used stay below the largest use plus a slack") {
  BlockCache cache;
  const int64_t size = BlockCache::kSlack / 2;
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(cache.acquire(size));
  for (void* block : blocks) cache.release(block, size);
  if (!kKeeps) return;
  CHECK(cache.kept() == 6 * size);
  // Another class: nothing fits, and keeping all of it beside the new block would outgrow 6 + 2 blocks.
  void* const other = cache.acquire(size + size / 2);
  CHECK(cache.kept() == 6 * size);
  void* const large = cache.acquire(2 * size);
  CHECK(cache.kept() == 0);
  cache.release(other, size + size / 2);
  cache.release(large, 2 * size);
  CHECK(cache.kept() == 3 * size + size / 2);
}

TEST_CASE("a request that the system refuses gives nothing, and the bound stays") {
  BlockCache cache;
  // Sanitizers end the program instead of refusing.
  if (kKeeps) CHECK(cache.acquire(int64_t{1} << 46) == nullptr);
  void* const block = cache.acquire(2 * BlockCache::kSlack);
  REQUIRE(block != nullptr);
  void* const second = cache.acquire(BlockCache::kSlack);
  cache.release(block, 2 * BlockCache::kSlack);
  cache.release(second, BlockCache::kSlack);
  CHECK(cache.kept() == (kKeeps ? 3 * BlockCache::kSlack : 0));
  void* const third = cache.acquire(4 * BlockCache::kSlack);
  CHECK(cache.kept() == 0);
  cache.release(third, 4 * BlockCache::kSlack);
}

TEST_CASE("threads share a cache without sharing a block") {
  BlockCache cache;
  std::vector<std::thread> threads;
  std::vector<int> faults(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const int64_t bytes = 64 + (i * 37 + t) % 4000;
        auto* block = static_cast<unsigned char*>(cache.acquire(bytes));
        std::memset(block, t, static_cast<size_t>(bytes));
        for (int64_t k = 0; k < bytes; ++k) faults[static_cast<size_t>(t)] += block[k] != t;
        cache.release(block, bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(faults == std::vector<int>(4, 0));
}

}  // namespace bitgrad::detail
