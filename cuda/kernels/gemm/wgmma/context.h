// A tile of the wgmma products in shared memory: sizes, offsets, barriers, and the ring of stages (tile.h).
#pragma once

#include "cuda/device/fragments.h"
#include "cuda/device/wgmma.h"
#include "cuda/kernels/gemm/wgmma/args.h"

namespace bitgrad::cuda::gemm {

inline constexpr int kTileRows = 128, kConsumers = 2, kStages = 4;
inline constexpr int kWgmmaThreads = (1 + kConsumers) * kWarpgroup;
inline constexpr int kStagingColumns = 64;
inline constexpr int kStagingWords = 64 * kStagingColumns;  // per consumer

// Shared memory of a tile of kRows (128 or 64) rows and kColumns columns. kBits describes the row operand: 8 for bytes
// of any kind through TMA, less for codes in layout frag64.
template <int kColumns, int kBits, int kRows>
struct TileMemory {
  static constexpr int kTables = kRows == kTileRows ? 1 : kConsumers;  // of column pairs, one per tile in flight
  static constexpr int kRowBytes = kRows * kBlockBytes * kBits / 8;
  static constexpr int kColumnBytes = kColumns * kBlockBytes;
  static constexpr int kStageBytes = (kRowBytes + kColumnBytes + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  static constexpr int kStagingAt = kStages * kStageBytes;
  static constexpr int kPairsAt = kStagingAt + kConsumers * kStagingWords * 4;  // ColumnPair
  static constexpr int kBarriersAt = kPairsAt + kTables * kColumns / 2 * 16;
  static constexpr int kBytes = kBarriersAt + (2 * (kStages + kTables) + kConsumers) * 8;
};

}  // namespace bitgrad::cuda::gemm

#if BITGRAD_SM90A || defined(BITGRAD_CUDA_EMULATED)
#include "cuda/kernels/gemm/wgmma/store.h"

namespace bitgrad::cuda::gemm {

// A position in the ring of stages.
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  BITGRAD_DEVICE int before() const { return (stage + kStages - 1) % kStages; }
  BITGRAD_DEVICE void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
  // Skips the stages of a tile that the other consumer processes.
  BITGRAD_DEVICE void skip(int stages) {
    stage += stages;
    parity ^= static_cast<uint32_t>(stage / kStages) & 1u;
    stage %= kStages;
  }
};

template <WgmmaStore kTileStore, int kTileColumns, int kRowBits, int kClusterBlocks, int kBlockTileRows>
struct TileContext {
  static constexpr WgmmaStore kStore = kTileStore;
  static constexpr int kColumns = kTileColumns, kBits = kRowBits, kCluster = kClusterBlocks, kRows = kBlockTileRows;
  static constexpr bool kTurns = kRows != kTileRows;  // each consumer has its own tile
  using Memory = TileMemory<kColumns, kBits, kRows>;
  const WgmmaArgs& args;
  uint8_t* shared;

  // The cluster processes tiles first(), first() + step(), ... below count(). In a split product each part of k covers
  // all tiles.
  BITGRAD_DEVICE int32_t first() const { return static_cast<int32_t>(blockIdx.x) / kCluster; }
  BITGRAD_DEVICE int32_t step() const { return static_cast<int32_t>(gridDim.x) / kCluster; }
  BITGRAD_DEVICE int32_t count() const {
    return args.schedule.count() * (kStore == WgmmaStore::kSplit ? args.split.parts : 1);
  }
  BITGRAD_DEVICE TilePoint at(int32_t index) const {
    return args.schedule.at(kStore == WgmmaStore::kSplit ? index % args.schedule.count() : index);
  }
  // The tile's blocks of k: [first_block, end_block).
  BITGRAD_DEVICE int32_t first_block(int32_t index) const {
    return kStore == WgmmaStore::kSplit ? part_begin(index / args.schedule.count()) : 0;
  }
  BITGRAD_DEVICE int32_t end_block(int32_t index) const {
    return kStore == WgmmaStore::kSplit ? part_begin(index / args.schedule.count() + 1) : args.k_blocks;
  }
  BITGRAD_DEVICE uint8_t* rows(int stage) const { return shared + stage * Memory::kStageBytes + Memory::kColumnBytes; }
  BITGRAD_DEVICE uint8_t* columns(int stage) const { return shared + stage * Memory::kStageBytes; }
  BITGRAD_DEVICE Barrier* full(int stage) const {
    return reinterpret_cast<Barrier*>(shared + Memory::kBarriersAt) + stage;
  }
  BITGRAD_DEVICE Barrier* empty(int stage) const { return full(stage) + kStages; }
  // Barriers of the column pair tables, which are filled for a tile and read by its consumers.
  BITGRAD_DEVICE Barrier* pairs_full(int table) const { return full(0) + 2 * kStages + table; }
  BITGRAD_DEVICE Barrier* pairs_empty(int table) const { return pairs_full(table) + Memory::kTables; }
  // On this barrier the other consumer signals that it is this one's turn.
  BITGRAD_DEVICE Barrier* turn(int consumer) const { return pairs_full(0) + 2 * Memory::kTables + consumer; }
  BITGRAD_DEVICE ColumnPair* pairs(int table) const {
    return reinterpret_cast<ColumnPair*>(shared + Memory::kPairsAt) + table * kColumns / 2;
  }
  BITGRAD_DEVICE int32_t part_begin(int32_t part) const {
    return static_cast<int32_t>(int64_t{args.k_blocks} * part / args.split.parts);
  }
  BITGRAD_DEVICE int first_row(const TilePoint& tile) const {
    return (tile.row * kCluster + static_cast<int>(cluster_rank())) * kRows;
  }
};

}  // namespace bitgrad::cuda::gemm
#endif
