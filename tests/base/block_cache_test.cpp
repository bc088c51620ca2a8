#include "base/block_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "bitgrad/base/rng.h"
#include "support/catch.h"

namespace bitgrad::detail {
namespace {

const bool kKeeps = BlockCache::kKeeps;

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

TEST_CASE("what a size has left serves smaller ones, and is one block again when all is free") {
  if (!kKeeps) return;
  BlockCache cache;
  constexpr int64_t kMiB = int64_t{1} << 20;
  void* const large = cache.acquire(12 * kMiB);
  cache.release(large, 12 * kMiB);
  CHECK(cache.misses() == 1);
  std::vector<void*> blocks;
  for (const int64_t size : {5 * kMiB, 3 * kMiB, 4 * kMiB}) {
    blocks.push_back(cache.acquire(size));
    std::memset(blocks.back(), 0x77, static_cast<size_t>(size));
  }
  CHECK(cache.misses() == 1);
  CHECK(cache.kept() == 0);
  for (void* const block : blocks) {
    CHECK(aligned(block));
    CHECK(static_cast<char*>(block) >= static_cast<char*>(large));
    CHECK(static_cast<char*>(block) < static_cast<char*>(large) + 12 * kMiB);
  }
  // A part that lies free beside used ones stays.
  cache.release(blocks[1], 3 * kMiB);
  cache.trim();
  CHECK(cache.kept() == 3 * kMiB);
  cache.release(blocks[0], 5 * kMiB);
  cache.release(blocks[2], 4 * kMiB);
  CHECK(cache.kept() == 12 * kMiB);
  CHECK(cache.acquire(12 * kMiB) == large);
  CHECK(cache.misses() == 1);
  cache.release(large, 12 * kMiB);
  cache.trim();
  CHECK(cache.kept() == 0);
}

namespace {

// A step of a drawn training loop: blocks are kept on the way forward and given back on the way back, beside others
// that live shortly. Sizes differ from layer to layer; together they are more than the bound when each is kept.
void drawn_step(BlockCache& cache, uint64_t seed) {
  struct Block {
    void* data;
    int64_t bytes;
  };
  const RandomStream draws{seed, Purpose::kUser, 1, 0};
  uint64_t i = 0;
  const auto bytes = [&] { return int64_t{1000} << draws.bits32(i++) % 14; };
  const auto get = [&] {
    const int64_t n = bytes() + static_cast<int64_t>(draws.bits32(i++) % 5000);
    return Block{cache.acquire(n), n};
  };
  std::vector<Block> saved;
  const auto layer = [&](bool forward) {
    std::vector<Block> space;
    for (int k = 0; k < 3; ++k) space.push_back(get());
    if (forward) saved.push_back(get());
    for (const Block& block : space) cache.release(block.data, block.bytes);
    if (forward) return;
    cache.release(saved.back().data, saved.back().bytes);
    saved.pop_back();
  };
  for (int k = 0; k < 20; ++k) layer(true);
  for (int k = 0; k < 20; ++k) layer(false);
}

}  // namespace

TEST_CASE("a loop of the same requests comes to ask the system for nothing") {
  if (!kKeeps) return;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    BlockCache cache;
    for (int step = 0; step < 8; ++step) drawn_step(cache, seed);
    const int64_t before = cache.misses();
    for (int step = 0; step < 4; ++step) drawn_step(cache, seed);
    CHECK(cache.misses() == before);
  }
}

TEST_CASE(
    "steps of a convolutional net ask the system for nothing from the third on, and keep little more than the peak") {
  if (!kKeeps) return;
  BlockCache cache;
  int64_t used = 0, peak = 0;
  const auto get = [&](int64_t bytes) {
    used += BlockCache::class_bytes(bytes);
    peak = std::max(peak, used);
    return cache.acquire(bytes);
  };
  const auto give = [&](void* data, int64_t bytes) {
    used -= BlockCache::class_bytes(bytes);
    cache.release(data, bytes);
  };
  const auto step = [&] {
    // Images at batch 100 of CNV's layers: fp32 outputs kept, padded or gathered copies for a while, codes.
    const std::vector<int64_t> images{900 * 6400, 784 * 6400, 144 * 12800, 100 * 12800, 9 * 25600, 25600};
    std::vector<void*> kept, codes;
    for (const int64_t n : images) {
      void* const rows = get(n / 8 + 4096);
      kept.push_back(get(4 * n));
      codes.push_back(get(n / 8));
      give(rows, n / 8 + 4096);
    }
    void* gradient = get(4 * images.back());
    for (size_t i = images.size(); i-- > 0;) {
      const int64_t n = 4 * images[i], below = 4 * images[i == 0 ? 0 : i - 1];
      void* const normalized = get(n);
      give(gradient, n);
      give(codes[i], n / 32);
      void* const narrow = get(n / 2);
      void* const next = get(below);
      give(narrow, n / 2);
      give(normalized, n);
      give(kept[i], n);
      gradient = next;
    }
    give(gradient, 4 * images[0]);
  };
  step();
  step();
  const int64_t before = cache.misses();
  for (int i = 0; i < 5; ++i) step();
  CHECK(cache.misses() == before);
  CHECK(used == 0);
  CHECK(cache.kept() <= peak + peak / 4 + BlockCache::kSlack);
}

TEST_CASE("requests of pieces share system blocks once much is in use") {
  if (!kKeeps) return;
  constexpr int64_t kMiB = int64_t{1} << 20;
  BlockCache cache;
  void* const early = cache.acquire(kMiB);
  CHECK(cache.kept() == 0);  // little is in use: a block of its own
  void* const much = cache.acquire(BlockCache::kSharesFrom);
  const int64_t before = cache.misses();
  std::vector<char*> shared;
  shared.reserve(4);
  for (int i = 0; i < 4; ++i) {
    shared.push_back(static_cast<char*>(cache.acquire(kMiB)));
    CHECK(cache.kept() == (3 - i) * kMiB);
  }
  CHECK(cache.misses() == before + 1);
  CHECK(reinterpret_cast<uintptr_t>(shared[0]) % (2 * kMiB) == 0);
  for (int i = 1; i < 4; ++i) CHECK(shared[static_cast<size_t>(i)] == shared[0] + i * kMiB);
  for (char* block : shared) cache.release(block, kMiB);
  CHECK(cache.kept() == 4 * kMiB);
  void* const whole = cache.acquire(4 * kMiB);  // the pieces are one block again
  CHECK(whole == shared[0]);
  cache.release(whole, 4 * kMiB);
  cache.release(much, BlockCache::kSharesFrom);
  cache.release(early, kMiB);
  cache.trim();
  CHECK(cache.kept() == 0);
}

TEST_CASE("pieces never overlap, and are all given back") {
  BlockCache cache;
  const RandomStream draws{5, Purpose::kUser, 1, 0};
  struct Block {
    unsigned char* data;
    int64_t bytes;
    unsigned char mark;
  };
  std::vector<Block> live;
  uint64_t i = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    if (live.size() < 12 && draws.bits32(i++) % 2 == 0) {
      const uint32_t most = 1u << (10 + draws.bits32(i++) % 12);
      const int64_t bytes = 1 + static_cast<int64_t>(draws.bits32(i++) % most);
      live.push_back({static_cast<unsigned char*>(cache.acquire(bytes)), bytes, static_cast<unsigned char>(turn)});
      REQUIRE(aligned(live.back().data));
      std::memset(live.back().data, live.back().mark, static_cast<size_t>(bytes));
    } else if (!live.empty()) {
      const size_t k = draws.bits32(i++) % live.size();
      const Block block = live[k];
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(k));
      int64_t faults = 0;
      for (int64_t b = 0; b < block.bytes; ++b) faults += block.data[b] != block.mark;
      REQUIRE(faults == 0);
      cache.release(block.data, block.bytes);
    }
  }
  for (const Block& block : live) cache.release(block.data, block.bytes);
  cache.trim();
  CHECK(cache.kept() == 0);
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
