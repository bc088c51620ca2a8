// The wgmma product: a persistent grid of blocks with one producer and two consumer warpgroups.
//
// The producer brings stages of 128 bytes of k (rows of A and of B, TMA, 128-byte swizzle) into a ring in shared
// memory; each consumer multiplies 64 rows of the tile by all its columns and then turns its sums into C through a
// staging buffer, while the producer fetches the next tile. In a cluster of two the blocks lie under each other and
// share the columns: each fetches one half for both (multicast).
//
// Order of waits: full[s] counts the bytes of stage s; empty[s] counts the consumers of all blocks of the cluster,
// since a producer writes into all of them.
#pragma once

#include "cuda/device/descriptor.h"
#include "cuda/device/wgmma.h"
#include "cuda/kernels/gemm/wgmma_args.h"

namespace bitgrad::cuda::gemm {

inline constexpr int kTileRows = 128, kConsumers = 2, kStages = 4;
inline constexpr int kWgmmaThreads = (1 + kConsumers) * kWarpgroup;
inline constexpr int kStagingColumns = 64;
inline constexpr int kStagingWords = 64 * kStagingColumns;  // of one consumer

// Shared memory of a tile of 128 rows and kColumns columns. kBits of the row operand: 8 = bytes of any kind through
// TMA, less = codes in layout frag64.
template <int kColumns, int kBits>
struct TileMemory {
  static constexpr int kRowBytes = kTileRows * kBlockBytes * kBits / 8;
  static constexpr int kColumnBytes = kColumns * kBlockBytes;
  static constexpr int kStageBytes = (kRowBytes + kColumnBytes + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  static constexpr int kStagingAt = kStages * kStageBytes;
  static constexpr int kPairsAt = kStagingAt + kConsumers * kStagingWords * 4;  // ColumnPair of the tile
  static constexpr int kBarriersAt = kPairsAt + kColumns / 2 * 16;
  static constexpr int kBytes = kBarriersAt + (2 * kStages + 2) * 8;
};

}  // namespace bitgrad::cuda::gemm

#if BITGRAD_SM90A || defined(BITGRAD_CUDA_EMULATED)
#include "cuda/kernels/gemm/wgmma_output.h"
#include "cuda/kernels/gemm/wgmma_store.h"
#include "cuda/kernels/gemm/wgmma_unpack.h"

namespace bitgrad::cuda::gemm {

// Where a flow of control stands in the ring of stages.
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  BITGRAD_DEVICE int before() const { return (stage + kStages - 1) % kStages; }
  BITGRAD_DEVICE void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

template <int kColumns, int kBits, int kCluster>
struct TileContext {
  using Memory = TileMemory<kColumns, kBits>;
  const WgmmaArgs& args;
  uint8_t* shared;

  // Tiles of the cluster.
  BITGRAD_DEVICE int32_t first() const { return static_cast<int32_t>(blockIdx.x) / kCluster; }
  BITGRAD_DEVICE int32_t step() const { return static_cast<int32_t>(gridDim.x) / kCluster; }
  BITGRAD_DEVICE uint8_t* rows(int stage) const { return shared + stage * Memory::kStageBytes + Memory::kColumnBytes; }
  BITGRAD_DEVICE uint8_t* columns(int stage) const { return shared + stage * Memory::kStageBytes; }
  BITGRAD_DEVICE Barrier* full(int stage) const {
    return reinterpret_cast<Barrier*>(shared + Memory::kBarriersAt) + stage;
  }
  BITGRAD_DEVICE Barrier* empty(int stage) const { return full(stage) + kStages; }
  // The table of column pairs: filled in for a tile, read by both consumers.
  BITGRAD_DEVICE Barrier* pairs_full() const { return full(0) + 2 * kStages; }
  BITGRAD_DEVICE Barrier* pairs_empty() const { return pairs_full() + 1; }
  BITGRAD_DEVICE ColumnPair* pairs() const { return reinterpret_cast<ColumnPair*>(shared + Memory::kPairsAt); }
  BITGRAD_DEVICE int first_row(const TilePoint& tile) const {
    return (tile.row * kCluster + static_cast<int>(cluster_rank())) * kTileRows;
  }
};

template <int kColumns, int kBits, int kCluster>
BITGRAD_DEVICE inline void load_rows(const TileContext<kColumns, kBits, kCluster>& tile, const RingPlace& place,
                                     int row, int block) {
  using Memory = TileMemory<kColumns, kBits>;
  const WgmmaArgs& args = tile.args;
  if constexpr (kBits == 8) {
    barrier_arrive_expect(tile.full(place.stage), Memory::kRowBytes + Memory::kColumnBytes);
    tma_load(tile.rows(place.stage), &args.rows, tile.full(place.stage), block * kBlockBytes, row);
  } else {
    constexpr int kBlock = 1024 * kBits;  // 64 rows, 128 codes
    const int left = args.fragments.row_blocks - row / 64, blocks = left < 0 ? 0 : left < 2 ? left : 2;
    barrier_arrive_expect(tile.full(place.stage), static_cast<uint32_t>(blocks * kBlock) + Memory::kColumnBytes);
    for (int i = 0; i < blocks; ++i) {
      const int64_t at = (static_cast<int64_t>(row / 64 + i) * args.k_blocks + block) * kBlock;
      bulk_load(tile.rows(place.stage) + i * kBlock, args.fragments.data + at, kBlock, tile.full(place.stage));
    }
  }
}

// One thread.
template <int kColumns, int kBits, int kCluster>
BITGRAD_DEVICE inline void produce(const TileContext<kColumns, kBits, kCluster>& tile) {
  const WgmmaArgs& args = tile.args;
  constexpr int kShare = kColumns / kCluster;
  RingPlace place;
  for (int32_t index = tile.first(); index < args.schedule.count(); index += tile.step()) {
    const TilePoint at = args.schedule.at(index);
    const int row = tile.first_row(at), share = static_cast<int>(cluster_rank()) * kShare;
    for (int block = 0; block < args.k_blocks; ++block, place.next()) {
      barrier_wait(tile.empty(place.stage), place.parity ^ 1);
      load_rows(tile, place, row, block);
      uint8_t* columns = tile.columns(place.stage) + share * kBlockBytes;
      const int column = at.column * kColumns + share;
      if constexpr (kCluster == 1) {
        tma_load(columns, &args.columns, tile.full(place.stage), block * kBlockBytes, column);
      } else {
        tma_load_multicast(columns, &args.columns, tile.full(place.stage), block * kBlockBytes, column,
                           (1u << kCluster) - 1);
      }
    }
  }
}

// Warps 1 to 3 of the producer: the table of column pairs, one tile ahead of the consumers at most.
template <int kColumns, int kBits, int kCluster>
BITGRAD_DEVICE inline void fill_pairs(const TileContext<kColumns, kBits, kCluster>& tile) {
  const int thread = static_cast<int>(threadIdx.x) - 32;
  uint32_t parity = 0;
  for (int32_t index = tile.first(); index < tile.args.schedule.count(); index += tile.step(), parity ^= 1) {
    barrier_wait(tile.pairs_empty(), parity ^ 1);
    fill_columns(tile.args, tile.pairs(), kColumns, tile.args.schedule.at(index).column * kColumns, thread);
    __syncwarp();
    if (thread % 32 == 0) barrier_arrive(tile.pairs_full());
  }
}

template <int kColumns, int kBits, int kCluster>
BITGRAD_DEVICE inline void release(const TileContext<kColumns, kBits, kCluster>& tile, int stage) {
  const uint32_t thread = threadIdx.x % kWarpgroup;
  if (thread < kCluster) barrier_arrive_at(tile.empty(stage), thread);
}

// Word of the staging buffer: line of C (or its transpose), group of eight and element in it. The groups are xored with
// `key` so that a warp's fragments meet different banks.
BITGRAD_HD constexpr int staging_word(int line, int column, int key) {
  return line * kStagingColumns + (((column / 8) ^ key) * 8) + column % 8;
}

// The sums of the warpgroup, rows row.. and columns column.. of the tile operands, to C. kTransposed: rows of the tile
// are columns of C.
template <bool kTransposed, int kCount>
BITGRAD_DEVICE inline void store_tile(const WgmmaArgs& args, const int32_t (&d)[kCount], int32_t* staging, int row,
                                      int column, int barrier) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  BITGRAD_NO_UNROLL
  for (int chunk = 0; chunk < kCount / 32; ++chunk) {
    BITGRAD_UNROLL
    for (int own = 0; own < kCount / 32; ++own) {
      if (own != chunk) continue;
      BITGRAD_UNROLL
      for (int i = 0; i < 32; ++i) {
        const TilePoint p = accumulator_point(thread, i);
        const int word =
            kTransposed ? staging_word(p.column, p.row, p.column / 2 % 4) : staging_word(p.row, p.column, p.row % 4);
        staging[word] = d[own * 32 + i];
      }
    }
    named_barrier_sync(barrier, kWarpgroup);
    BITGRAD_NO_UNROLL
    for (int piece = thread; piece < 512; piece += kWarpgroup) {
      const int line = piece / 8, group = piece % 8, key = kTransposed ? line / 2 % 4 : line % 4;
      const int i = kTransposed ? column + chunk * kStagingColumns + line : row + line;
      const int j = kTransposed ? row + group * 8 : column + chunk * kStagingColumns + group * 8;
      if (i >= args.out.m || j >= args.out.n) continue;
      const int left = static_cast<int>(args.out.n) - j;
      finish_piece(args, i, j, left < 8 ? left : 8, staging + staging_word(line, group * 8, key));
    }
    named_barrier_sync(barrier, kWarpgroup);
  }
}

// The sums of one tile, both operands in shared memory.
template <WgmmaType kType, int kColumns, int kCluster>
BITGRAD_DEVICE inline void multiply(const TileContext<kColumns, 8, kCluster>& tile, RingPlace& place, int consumer,
                                    int32_t (&d)[kColumns / 2]) {
  for (int block = 0; block < tile.args.k_blocks; ++block, place.next()) {
    barrier_wait(tile.full(place.stage), place.parity);
    const uint64_t a =
        describe_tile(shared_address(tile.rows(place.stage)) + static_cast<uint32_t>(consumer) * 64 * kBlockBytes);
    const uint64_t b = describe_tile(shared_address(tile.columns(place.stage)));
    wgmma_fence();
    BITGRAD_UNROLL
    for (int step = 0; step < kBlockBytes / kStepBytes; ++step)
      wgmma_ss<kType>(d, advance(a, step), advance(b, step), block + step != 0);
    wgmma_commit();
    wgmma_wait<1>();  // the products of the stage before are done with it
    if (block != 0) release(tile, place.before());
  }
  wgmma_wait<0>();
  wgmma_settle(d);
  release(tile, place.before());
}

// The same with rows that are unpacked in registers. Each step is committed alone: its registers are free again when
// the next one is under way, and the compiler keeps products of this form asynchronous.
template <WgmmaType kType, int kBits, int kColumns, int kCluster>
BITGRAD_DEVICE inline void multiply_fragments(const TileContext<kColumns, kBits, kCluster>& tile, RingPlace& place,
                                              int consumer, int32_t (&d)[kColumns / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  uint32_t a[2][4];
  int last = 0;
  for (int block = 0; block < tile.args.k_blocks; ++block, place.next()) {
    barrier_wait(tile.full(place.stage), place.parity);
    const uint8_t* fragments = tile.rows(place.stage) + consumer * frag64_layout::block_bytes(kBits);
    const FragmentWords<kBits> words = load_fragments<kBits>(fragments, thread);
    const uint64_t b = describe_tile(shared_address(tile.columns(place.stage)));
    BITGRAD_UNROLL
    for (int step = 0; step < kBlockBytes / kStepBytes; ++step) {
      BITGRAD_UNROLL
      for (int r = 0; r < 4; ++r) a[step % 2][r] = signed_bytes(top_codes(words, step, r), tile.args.fragments);
      wgmma_fence();
      wgmma_rs<kType>(d, a[step % 2], advance(b, step), block + step != 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (step == 0 && block != 0) release(tile, last);
    }
    last = place.stage;
  }
  wgmma_wait<0>();
  wgmma_settle(d);
  release(tile, last);
}

// kSums: of bits, whose sums need corrections.
template <WgmmaStore kStore, bool kSums, int kColumns, int kBits, int kCluster, typename Multiply>
BITGRAD_DEVICE inline void consume(const TileContext<kColumns, kBits, kCluster>& tile, int consumer,
                                   Multiply multiply_tile) {
  using Memory = TileMemory<kColumns, kBits>;
  uint8_t* const staging = tile.shared + Memory::kStagingAt + consumer * kStagingWords * 4;
  int32_t d[kColumns / 2];
  RingPlace place;
  uint32_t parity = 0;
  for (int32_t index = tile.first(); index < tile.args.schedule.count(); index += tile.step(), parity ^= 1) {
    const TilePoint at = tile.args.schedule.at(index);
    const int row = tile.first_row(at) + 64 * consumer, column = at.column * kColumns;
    if constexpr (kStore == WgmmaStore::kGeneral) {
      multiply_tile(place, d);
      store_tile<kBits != 8>(tile.args, d, reinterpret_cast<int32_t*>(staging), row, column, 1 + consumer);
    } else {
      const RowPair rows = load_row_pair(tile.args, row);
      multiply_tile(place, d);
      barrier_wait(tile.pairs_full(), parity);
      store_fragments<kStore, kSums, kBits != 8>(tile.args, d, rows, tile.pairs(), staging, row, column, 1 + consumer);
      // All have read the table: they were at the last barrier of the stores.
      if (threadIdx.x % kWarpgroup == 0) barrier_arrive(tile.pairs_empty());
    }
  }
  if constexpr (kStore != WgmmaStore::kGeneral)
    if (threadIdx.x % kWarpgroup == 0) tma_store_wait_all();
}

// The kernel. multiply_tile(tile, place, consumer, d) makes the sums of one tile.
template <WgmmaStore kStore, bool kSums, int kColumns, int kBits, int kCluster, typename Multiply>
BITGRAD_DEVICE inline void run_tiles(const WgmmaArgs& args, Multiply multiply_tile) {
  const TileContext<kColumns, kBits, kCluster> tile{args, dynamic_shared<uint8_t>()};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(tile.full(stage), 1);
      barrier_init(tile.empty(stage), kConsumers * kCluster);
    }
    barrier_init(tile.pairs_full(), kFillThreads / 32);
    barrier_init(tile.pairs_empty(), kConsumers);
    barrier_fence_init();
    if constexpr (kBits == 8) prefetch_tensor_map(&args.rows);
    prefetch_tensor_map(&args.columns);
    if constexpr (kStore != WgmmaStore::kGeneral) prefetch_tensor_map(&args.store.c);
  }
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  // 128 * 40 + 256 * 232 registers of the 64 Ki.
  if (threadIdx.x < kWarpgroup) {
    decrease_registers<40>();
    if (threadIdx.x == 0) produce(tile);
    if constexpr (kStore != WgmmaStore::kGeneral)
      if (threadIdx.x >= 32) fill_pairs(tile);
  } else {
    increase_registers<232>();
    const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
    consume<kStore, kSums>(
        tile, consumer, [&](RingPlace& place, int32_t(&d)[kColumns / 2]) { multiply_tile(tile, place, consumer, d); });
  }
  if constexpr (kCluster != 1) cluster_sync();  // no block ends while another may still arrive at its barriers
}

}  // namespace bitgrad::cuda::gemm
#endif
