// The wgmma product: a persistent grid of blocks with one producer and two consumer warpgroups.
//
// The producer loads stages of 128 bytes of k (rows of A and B, by TMA, with the 128-byte swizzle) into a ring in
// shared memory. Each consumer multiplies 64 rows of the tile by all its columns and then converts its sums to C while
// the producer loads the next tile. The blocks of a cluster are stacked vertically and share the columns: each loads
// its part for all of them (multicast).
//
// Tiles of 64 rows are for short k. The consumers take turns: one multiplies while the other converts its sums to C. A
// turn starts when the last products of the other consumer have been issued, so the tensor cores have no gap. By then
// the other consumer's phases of each stage have ended, so parity is unambiguous.
//
// Barriers: full[s] counts the bytes of stage s; empty[s] counts the consumers of all blocks of the cluster, because a
// producer writes to all of them.
#pragma once

#include "cuda/kernels/gemm/wgmma/context.h"

#if BITGRAD_SM90A || defined(BITGRAD_CUDA_EMULATED)
#include "cuda/kernels/gemm/wgmma/output.h"
#include "cuda/kernels/gemm/wgmma/store.h"
#include "cuda/kernels/gemm/wgmma/unpack.h"

namespace bitgrad::cuda::gemm {

template <typename Tile>
BITGRAD_DEVICE inline void load_rows(const Tile& tile, const RingPlace& place, int row, int block) {
  using Memory = typename Tile::Memory;
  const WgmmaArgs& args = tile.args;
  if constexpr (Tile::kBits == 8) {
    barrier_arrive_expect(tile.full(place.stage), Memory::kRowBytes + Memory::kColumnBytes);
    tma_load(tile.rows(place.stage), &args.rows, tile.full(place.stage), block * kBlockBytes, row);
  } else {
    constexpr int kBlock = 1024 * Tile::kBits;  // 64 rows, 128 codes
    const int left = args.fragments.row_blocks - row / 64, blocks = left < 0 ? 0 : left < 2 ? left : 2;
    barrier_arrive_expect(tile.full(place.stage), static_cast<uint32_t>(blocks * kBlock) + Memory::kColumnBytes);
    for (int i = 0; i < blocks; ++i) {
      const int64_t at = (static_cast<int64_t>(row / 64 + i) * args.k_blocks + block) * kBlock;
      bulk_load(tile.rows(place.stage) + i * kBlock, args.fragments.data + at, kBlock, tile.full(place.stage));
    }
  }
}

// Called by one thread.
template <typename Tile>
BITGRAD_DEVICE inline void produce(const Tile& tile) {
  const WgmmaArgs& args = tile.args;
  constexpr int kCluster = Tile::kCluster, kShare = Tile::kColumns / kCluster;
  RingPlace place;
  for (int32_t index = tile.first(); index < tile.count(); index += tile.step()) {
    const TilePoint at = tile.at(index);
    const int row = tile.first_row(at), share = static_cast<int>(cluster_rank()) * kShare;
    const int end = tile.end_block(index);
    for (int block = tile.first_block(index); block < end; ++block, place.next()) {
      barrier_wait(tile.empty(place.stage), place.parity ^ 1);
      load_rows(tile, place, row, block);
      uint8_t* columns = tile.columns(place.stage) + share * kBlockBytes;
      const int column = at.column * Tile::kColumns + share;
      if constexpr (kCluster == 1) {
        tma_load(columns, &args.columns, tile.full(place.stage), block * kBlockBytes, column);
      } else {
        tma_load_multicast(columns, &args.columns, tile.full(place.stage), block * kBlockBytes, column,
                           (1u << kCluster) - 1);
      }
    }
  }
}

// Warps 1 to 3 of the producer fill the tables of column pairs, ahead of the consumers by as many tiles as there are
// tables.
template <typename Tile>
BITGRAD_DEVICE inline void fill_pairs(const Tile& tile) {
  const int thread = static_cast<int>(threadIdx.x) - 32;
  int table = 0;
  uint32_t parity = 0;
  for (int32_t index = tile.first(); index < tile.count(); index += tile.step()) {
    barrier_wait(tile.pairs_empty(table), parity ^ 1);
    fill_columns(tile.args, tile.pairs(table), Tile::kColumns, tile.at(index).column * Tile::kColumns, thread);
    __syncwarp();
    if (thread % 32 == 0) barrier_arrive(tile.pairs_full(table));
    if (++table < Tile::Memory::kTables) continue;
    table = 0;
    parity ^= 1;
  }
}

template <typename Tile>
BITGRAD_DEVICE inline void release(const Tile& tile, int stage) {
  const uint32_t thread = threadIdx.x % kWarpgroup;
  if (thread < Tile::kCluster) barrier_arrive_at(tile.empty(stage), thread);
}

// Index of a word in the staging buffer, by line of C (or its transpose) and column. The groups of eight columns are
// xored with `key`, so that a warp's fragments access different banks.
BITGRAD_HD constexpr int staging_word(int line, int column, int key) {
  return line * kStagingColumns + (((column / 8) ^ key) * 8) + column % 8;
}

// Stores the warpgroup's sums, from row `row` and column `column` of the tile operands, to C. If kTransposed, rows of
// the tile are columns of C.
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

// Computes the sums of one tile, both operands in shared memory.
template <WgmmaType kType, typename Tile>
BITGRAD_DEVICE inline void multiply(const Tile& tile, RingPlace& place, int consumer, int blocks,
                                    int32_t (&d)[Tile::kColumns / 2]) {
  const uint32_t own_rows = Tile::kTurns ? 0 : static_cast<uint32_t>(consumer) * 64 * kBlockBytes;
  for (int block = 0; block < blocks; ++block, place.next()) {
    barrier_wait(tile.full(place.stage), place.parity);
    const uint64_t a = describe_tile(shared_address(tile.rows(place.stage)) + own_rows);
    const uint64_t b = describe_tile(shared_address(tile.columns(place.stage)));
    wgmma_fence();
    BITGRAD_UNROLL
    for (int step = 0; step < kBlockBytes / kStepBytes; ++step)
      wgmma_ss<kType>(d, advance(a, step), advance(b, step), block + step != 0);
    wgmma_commit();
    wgmma_wait<1>();  // the products of the previous stage no longer read it
    if (block != 0) release(tile, place.before());
  }
  if constexpr (Tile::kTurns)
    if (threadIdx.x % kWarpgroup == 0) barrier_arrive(tile.turn(1 - consumer));
  wgmma_wait<0>();
  wgmma_fence_sums(d);
  release(tile, place.before());
}

// Same, with rows unpacked in registers. Each step is committed on its own: its registers are free once the next step
// is in flight, and the compiler keeps this form of product asynchronous.
template <WgmmaType kType, int kBits, typename Tile>
BITGRAD_DEVICE inline void multiply_fragments(const Tile& tile, RingPlace& place, int consumer, int blocks,
                                              int32_t (&d)[Tile::kColumns / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  uint32_t a[2][4];
  int last = 0;
  for (int block = 0; block < blocks; ++block, place.next()) {
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
  wgmma_fence_sums(d);
  release(tile, last);
}

// Waits for the consumer's turn. parity is 0 for its first tile, then alternates.
template <typename Tile>
BITGRAD_DEVICE inline void wait_for_turn(const Tile& tile, int consumer, uint32_t parity) {
  if constexpr (Tile::kTurns) barrier_wait(tile.turn(consumer), consumer == 0 ? parity ^ 1 : parity);
}

// kSums: products of bits, whose sums need corrections.
template <bool kSums, typename Tile, typename Multiply>
BITGRAD_DEVICE inline void consume(const Tile& tile, int consumer, Multiply multiply_tile) {
  constexpr int kTakes = Tile::kTurns ? kConsumers : 1;  // a consumer takes every kTakes-th tile
  const int table = Tile::kTurns ? consumer : 0, skipped = Tile::kTurns ? tile.args.k_blocks : 0;
  uint8_t* const staging = tile.shared + Tile::Memory::kStagingAt + consumer * kStagingWords * 4;
  int32_t d[Tile::kColumns / 2];
  RingPlace place;
  place.skip(table * skipped);
  uint32_t parity = 0;
  for (int32_t index = tile.first() + table * tile.step(); index < tile.count();
       index += kTakes * tile.step(), parity ^= 1, place.skip(skipped)) {
    const TilePoint at = tile.at(index);
    const int blocks = tile.end_block(index) - tile.first_block(index);
    const int row = tile.first_row(at) + (Tile::kTurns ? 0 : 64 * consumer), column = at.column * Tile::kColumns;
    if constexpr (Tile::kStore == WgmmaStore::kSplit) {
      multiply_tile(place, blocks, d);
      add_to_sums(tile.args, d, row, column);
    } else if constexpr (Tile::kStore == WgmmaStore::kGeneral) {
      multiply_tile(place, blocks, d);
      store_tile<Tile::kBits != 8>(tile.args, d, reinterpret_cast<int32_t*>(staging), row, column, 1 + consumer);
    } else {
      const RowPair rows = load_row_pair(tile.args, row);
      wait_for_turn(tile, consumer, parity);
      multiply_tile(place, blocks, d);
      barrier_wait(tile.pairs_full(table), parity);
      store_fragments<Tile::kStore, kSums, Tile::kBits != 8>(tile.args, d, rows, tile.pairs(table), staging, row,
                                                             column, 1 + consumer);
      // All threads have read the table: they have passed the last barrier of the stores.
      if (threadIdx.x % kWarpgroup == 0) barrier_arrive(tile.pairs_empty(table));
    }
  }
  if constexpr (is_fragment_store(Tile::kStore))
    if (threadIdx.x % kWarpgroup == 0) tma_store_wait_all();
}

template <typename Tile>
BITGRAD_DEVICE inline void init_barriers(const Tile& tile) {
  constexpr int kReaders = Tile::kTurns ? 1 : kConsumers;  // consumers per tile in a block
  for (int stage = 0; stage < kStages; ++stage) {
    barrier_init(tile.full(stage), 1);
    barrier_init(tile.empty(stage), kReaders * Tile::kCluster);
  }
  for (int table = 0; table < Tile::Memory::kTables; ++table) {
    barrier_init(tile.pairs_full(table), kFillThreads / 32);
    barrier_init(tile.pairs_empty(table), kReaders);
  }
  for (int consumer = 0; consumer < kConsumers; ++consumer) barrier_init(tile.turn(consumer), 1);
  barrier_fence_init();
  if constexpr (Tile::kBits == 8) prefetch_tensor_map(&tile.args.rows);
  prefetch_tensor_map(&tile.args.columns);
  if constexpr (is_fragment_store(Tile::kStore)) prefetch_tensor_map(&tile.args.store.c);
}

// The kernel body. multiply_tile(tile, place, consumer, blocks, d) computes the sums of one tile over `blocks` blocks
// of k.
template <WgmmaStore kStore, bool kSums, int kColumns, int kBits, int kCluster, int kRows, typename Multiply>
BITGRAD_DEVICE inline void run_tiles(const WgmmaArgs& args, Multiply multiply_tile) {
  const TileContext<kStore, kColumns, kBits, kCluster, kRows> tile{args, dynamic_shared<uint8_t>()};
  if (threadIdx.x == 0) init_barriers(tile);
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }
  // Uses 128 * 40 + 256 * 232 of 64 Ki registers.
  if (threadIdx.x < kWarpgroup) {
    decrease_registers<40>();
    if (threadIdx.x == 0) produce(tile);
    if constexpr (is_fragment_store(kStore))
      if (threadIdx.x >= 32) fill_pairs(tile);
  } else {
    increase_registers<232>();
    const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
    consume<kSums>(tile, consumer, [&](RingPlace& place, int blocks, int32_t(&d)[kColumns / 2]) {
      multiply_tile(tile, place, consumer, blocks, d);
    });
  }
  if constexpr (kCluster != 1) cluster_sync();  // no block exits while another may still arrive at its barriers
}

}  // namespace bitgrad::cuda::gemm
#endif
