// Primitives of sm_90a in the emulation: mbarriers, TMA copies, products of warpgroups; and what it says about misuse.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cuda/device/fragments.h"
#include "cuda/device/matrix_store.h"
#include "cuda/device/tma.h"
#include "cuda/device/wgmma.h"
#include "cuda/runtime/runtime.h"
#include "device_array.h"
#include "emulation/cuda/emulation.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad::cuda {
namespace {

using test::contains;
using test::DeviceArray;
using test::error_of;

constexpr int kN = 128, kTileA = 64 * kBlockBytes, kTileB = kN * kBlockBytes, kShared = kTileA + kTileB + 64;

std::vector<uint8_t> random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> out(count);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
  return out;
}

LaunchShape one_warpgroup(int threads = kWarpgroup) {
  LaunchShape shape;
  shape.block.x = static_cast<unsigned>(threads);
  shape.shared_bytes = kShared;
  return shape;
}

// A [64, 128 bytes] and B [128, 128 bytes] through TMA, D through the fragments. kFromRegisters: A by operand_point.
template <WgmmaType kType, bool kFromRegisters>
BITGRAD_GLOBAL void multiply_once(TensorMap a_map, TensorMap b_map, const uint8_t* a, int32_t* out) {
  uint8_t* shared = dynamic_shared<uint8_t>();
  Barrier* full = reinterpret_cast<Barrier*>(shared + kTileA + kTileB);
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_fence_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier_arrive_expect(full, kTileA + kTileB);
    tma_load(shared, &a_map, full, 0, 0);
    tma_load(shared + kTileA, &b_map, full, 0, 0);
  }
  barrier_wait(full, 0);
  const uint64_t da = describe_tile(shared_address(shared)), db = describe_tile(shared_address(shared + kTileA));
  const int thread = static_cast<int>(threadIdx.x);
  int32_t d[kN / 2];
  for (int32_t& x : d) x = 12345;
  uint32_t registers[4][4] = {};
  for (int step = 0; step < 4; ++step)
    for (int i = 0; i < 4; ++i)
      for (int byte = 0; byte < 4; ++byte) {
        const TilePoint p = operand_point(thread, i, byte);
        registers[step][i] |= uint32_t{a[p.row * kBlockBytes + step * kStepBytes + p.column]} << (8 * byte);
      }
  wgmma_fence();
  for (int step = 0; step < 4; ++step) {
    if constexpr (kFromRegisters) {
      wgmma_rs<kType>(d, registers[step], advance(db, step), step != 0);
    } else {
      wgmma_ss<kType>(d, advance(da, step), advance(db, step), step != 0);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_fence_sums(d);
  for (int i = 0; i < kN / 2; ++i) {
    const TilePoint p = accumulator_point(thread, i);
    out[p.row * kN + p.column] = d[i];
  }
}

int64_t dot(WgmmaType type, const uint8_t* a, const uint8_t* b) {
  const bool signed_a = type == WgmmaType::kS8S8 || type == WgmmaType::kS8U8;
  const bool signed_b = type == WgmmaType::kS8S8 || type == WgmmaType::kU8S8;
  int64_t sum = 0;
  for (int k = 0; k < kBlockBytes; ++k) {
    if (type == WgmmaType::kB1) {
      sum += std::popcount(static_cast<unsigned>(a[k] & b[k]));
      continue;
    }
    const int x = signed_a ? static_cast<int8_t>(a[k]) : a[k], y = signed_b ? static_cast<int8_t>(b[k]) : b[k];
    sum += x * y;
  }
  return sum;
}

template <WgmmaType kType, bool kFromRegisters>
void check_product() {
  const std::vector<uint8_t> a = random_bytes(64 * kBlockBytes, 1), b = random_bytes(kN * kBlockBytes, 2);
  DeviceArray<uint8_t> da(a), db(b);
  DeviceArray<int32_t> out(64 * kN, 7);
  launch(multiply_once<kType, kFromRegisters>, one_warpgroup(),
         make_tensor_map(da.data(), kBlockBytes, 64, kBlockBytes, 64),
         make_tensor_map(db.data(), kBlockBytes, kN, kBlockBytes, kN), da.data(), out.data());
  const std::vector<int32_t> got = out.values();
  for (int r = 0; r < 64; ++r)
    for (int c = 0; c < kN; ++c)
      REQUIRE(got[static_cast<size_t>(r * kN + c)] ==
              dot(kType, &a[static_cast<size_t>(r * kBlockBytes)], &b[static_cast<size_t>(c * kBlockBytes)]));
}

TEST_CASE_METHOD(test::OnDevice, "wgmma multiplies swizzled tiles of every type") {
  check_product<WgmmaType::kS8S8, false>();
  check_product<WgmmaType::kS8U8, false>();
  check_product<WgmmaType::kU8S8, false>();
  check_product<WgmmaType::kU8U8, false>();
  check_product<WgmmaType::kB1, false>();
}

TEST_CASE_METHOD(test::OnDevice, "wgmma multiplies rows from registers") {
  check_product<WgmmaType::kS8S8, true>();
  check_product<WgmmaType::kS8U8, true>();
}

// Sends the box at (row, column) back row by row.
BITGRAD_GLOBAL void copy_box(TensorMap map, int column, int row, int rows, uint8_t* out) {
  uint8_t* shared = dynamic_shared<uint8_t>();
  Barrier* full = reinterpret_cast<Barrier*>(shared + kTileB);
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_arrive_expect(full, static_cast<uint32_t>(rows * kBlockBytes));
    tma_load(shared, &map, full, column, row);
  }
  __syncthreads();
  barrier_wait(full, 0);
  for (int i = static_cast<int>(threadIdx.x); i < rows * kBlockBytes; i += static_cast<int>(blockDim.x))
    out[i] = shared[swizzle128(static_cast<uint32_t>(i))];
}

TEST_CASE_METHOD(test::OnDevice, "A TMA box is swizzled, and elements outside the matrix arrive as zeros") {
  constexpr int kRows = 40, kColumns = 200, kStride = 208, kBox = 24;
  const std::vector<uint8_t> matrix = random_bytes(kRows * kStride, 3);
  DeviceArray<uint8_t> data(matrix);
  const TensorMap map = make_tensor_map(data.data(), kColumns, kRows, kStride, kBox);
  for (const int row : {0, 17, 24, 39, 40, -5}) {
    for (const int column : {0, 128, 96, 256, -16}) {
      DeviceArray<uint8_t> out(kBox * kBlockBytes, uint8_t{9});
      launch(copy_box, one_warpgroup(64), map, column, row, kBox, out.data());
      const std::vector<uint8_t> got = out.values();
      for (int r = 0; r < kBox; ++r)
        for (int c = 0; c < kBlockBytes; ++c) {
          const int y = row + r, x = column + c;
          const bool inside = y >= 0 && y < kRows && x >= 0 && x < kColumns;
          REQUIRE(got[static_cast<size_t>(r * kBlockBytes + c)] ==
                  (inside ? matrix[static_cast<size_t>(y * kStride + x)] : 0));
        }
    }
  }
}

// Two boxes of bytes that count up from `first`, in groups of their own; the second over the first where `over`.
BITGRAD_GLOBAL void store_boxes(TensorMap map, int column, int row, bool over, bool waits) {
  uint8_t* const shared = dynamic_shared<uint8_t>();
  if (threadIdx.x != 0) return;
  for (int turn = 0; turn < 2; ++turn) {
    uint8_t* const box = shared + (over ? 0 : turn * 8 * kBlockBytes);
    if (over && turn == 1) tma_store_wait_read<0>();
    for (int i = 0; i < 8 * kBlockBytes; ++i)
      box[swizzle128(static_cast<uint32_t>(i))] = static_cast<uint8_t>(1 + turn * 100 + i % 97);
    tma_store_fence();
    tma_store(&map, box, column, row + 8 * turn);
    tma_store_commit();
  }
  if (waits) tma_store_wait_all();
}

TEST_CASE_METHOD(test::OnDevice,
                 "A TMA store writes the pieces of 16 bytes that begin inside of the matrix, and is waited for") {
  constexpr int kRows = 12, kColumns = 200, kWritten = 208, kStride = 224;
  const auto byte = [](int turn, int i) { return static_cast<uint8_t>(1 + turn * 100 + i % 97); };
  const uint64_t before = emulation::seed();
  for (const uint64_t seed : {0, 1, 2, 3})
    for (const bool over : {false, true})
      for (const int column : {0, 128, 96}) {
        emulation::set_seed(seed);
        DeviceArray<uint8_t> data(kRows * kStride, uint8_t{7});
        const TensorMap map = make_tensor_map(data.data(), kColumns, kRows, kStride, 8);
        launch(store_boxes, one_warpgroup(32), map, column, 0, over, true);
        const std::vector<uint8_t> got = data.values();
        for (int r = 0; r < kRows; ++r)
          for (int c = 0; c < kStride; ++c) {
            const int x = c - column;
            const bool inside = c < kWritten && x >= 0 && x < kBlockBytes;
            REQUIRE(got[static_cast<size_t>(r * kStride + c)] ==
                    (inside ? byte(r / 8, r % 8 * kBlockBytes + x) : uint8_t{7}));
          }
      }
  DeviceArray<uint8_t> data(kRows * kStride, uint8_t{7});
  const TensorMap map = make_tensor_map(data.data(), kColumns, kRows, kStride, 8);
  emulation::set_seed(1);
  CHECK(contains(error_of([&] {
                   launch(store_boxes, one_warpgroup(32), map, 0, 0, false, false);
                   device_synchronize();
                 }),
                 "ended with TMA stores that nobody waited for"));
  emulation::set_seed(before);
}

BITGRAD_GLOBAL void store_fragments_of(uint16_t* out, bool transposed) {
  uint16_t* const shared = dynamic_shared<uint16_t>();
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t words[4];
  for (int i = 0; i < 4; ++i) {  // element (r, c) of matrix i is 100 i + 8 r + c
    const int first = 100 * i + 8 * (lane / 4) + 2 * (lane % 4);
    words[i] = static_cast<uint32_t>(first) | static_cast<uint32_t>(first + 1) << 16;
  }
  if (transposed)
    store_matrices<true>(shared + lane * 8, words);
  else
    store_matrices<false>(shared + lane * 8, words);
  __syncwarp();
  for (int i = lane; i < 256; i += 32) out[i] = shared[i];
}

TEST_CASE_METHOD(test::OnDevice, "Matrices are stored from fragments, also transposed, and floats packed as bf16") {
  for (const bool transposed : {false, true}) {
    DeviceArray<uint16_t> out(256, uint16_t{0});
    launch(store_fragments_of, one_warpgroup(32), out.data(), transposed);
    const std::vector<uint16_t> got = out.values();
    for (int i = 0; i < 256; ++i) {
      const int row = i / 8 % 8, column = i % 8;
      REQUIRE(got[static_cast<size_t>(i)] == 100 * (i / 64) + (transposed ? 8 * column + row : 8 * row + column));
    }
  }
  CHECK(pack_bf16(1.0f, -2.0f) == 0xC0003F80u);
  CHECK(pack_bf16(1.00390625f, 1.01171875f) == 0x3F823F80u);  // ties go to even
  CHECK(pack_bf16(3e38f, std::nanf("")) == 0x7FFF7F62u);
}

TEST_CASE_METHOD(test::OnDevice, "A tensor map that the driver would refuse is an error that names the rule") {
  alignas(16) static uint8_t bytes[1024];
  CHECK(contains(error_of([] { make_tensor_map(bytes + 4, 64, 4, 64, 4); }), "[tensor map] address: got"));
  CHECK(contains(error_of([] { make_tensor_map(bytes, 64, 4, 72, 4); }),
                 "row stride: got 72 bytes, expected a multiple of 16"));
  CHECK(contains(error_of([] { make_tensor_map(bytes, 64, 4, 64, 257); }), "box: got 257 rows, expected 1 to 256"));
  CHECK(contains(error_of([] { make_tensor_map(bytes, 0, 4, 64, 4); }), "matrix: got [4, 0] bytes"));
  CHECK(error_of([] { make_tensor_map(bytes, 64, 4, 64, 256); }).empty());
}

// Two blocks each send half of a tile to both.
BITGRAD_GLOBAL void share_halves(TensorMap map, uint8_t* out) {
  uint8_t* shared = dynamic_shared<uint8_t>();
  Barrier* full = reinterpret_cast<Barrier*>(shared + kTileB);
  const int rank = static_cast<int>(cluster_rank());
  if (threadIdx.x == 0) barrier_init(full, 1);
  cluster_sync();
  if (threadIdx.x == 0) {
    barrier_arrive_expect(full, 16 * kBlockBytes);
    tma_load_multicast(shared + rank * 8 * kBlockBytes, &map, full, 0, rank * 8, 3);
  }
  barrier_wait(full, 0);
  for (int i = static_cast<int>(threadIdx.x); i < 16 * kBlockBytes; i += static_cast<int>(blockDim.x))
    out[rank * 16 * kBlockBytes + i] = shared[swizzle128(static_cast<uint32_t>(i))];
  cluster_sync();
}

TEST_CASE_METHOD(test::OnDevice, "A multicast copy reaches every block of the cluster and its barrier") {
  const std::vector<uint8_t> matrix = random_bytes(16 * kBlockBytes, 4);
  DeviceArray<uint8_t> data(matrix), out(2 * 16 * kBlockBytes, uint8_t{0});
  LaunchShape shape = one_warpgroup(64);
  shape.grid.x = 2;
  shape.cluster = 2;
  launch(share_halves, shape, make_tensor_map(data.data(), kBlockBytes, 16, kBlockBytes, 8), out.data());
  const std::vector<uint8_t> got = out.values();
  for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == matrix[i % matrix.size()]);
}

enum class Misuse { kNoFence, kFewThreads, kPastShared, kUninitialised, kTooManyArrivals, kNeverArrives, kOddTile };

BITGRAD_GLOBAL void misuse(Misuse what, TensorMap map) {
  uint8_t* shared = dynamic_shared<uint8_t>();
  Barrier* barrier = reinterpret_cast<Barrier*>(shared + kTileA + kTileB);
  int32_t d[kN / 2] = {};
  const uint64_t tile = describe_tile(shared_address(shared));
  switch (what) {
    case Misuse::kNoFence:
      wgmma_ss<WgmmaType::kS8S8>(d, tile, tile, false);
      break;
    case Misuse::kFewThreads:
    case Misuse::kPastShared:
      wgmma_fence();
      wgmma_ss<WgmmaType::kS8S8>(d, tile, describe_tile(kTileA + kTileB), false);
      wgmma_commit();
      wgmma_wait<0>();
      break;
    case Misuse::kUninitialised:
      barrier_wait(barrier, 0);
      break;
    case Misuse::kTooManyArrivals:
      if (threadIdx.x == 0) barrier_init(barrier, 2);
      __syncthreads();
      if (threadIdx.x == 0) {
        barrier_arrive_expect(barrier, 16);
        barrier_arrive_expect(barrier, 16);
        barrier_arrive_expect(barrier, 16);
      }
      break;
    case Misuse::kNeverArrives:
      if (threadIdx.x == 0) barrier_init(barrier, 1);
      __syncthreads();
      barrier_wait(barrier, 0);
      break;
    case Misuse::kOddTile:
      if (threadIdx.x == 0) {
        barrier_init(barrier, 1);
        tma_load(shared + 512, &map, barrier, 0, 0);
      }
      break;
  }
}

TEST_CASE_METHOD(test::OnDevice, "Misused primitives end the launch with a text that says what was wrong") {
  DeviceArray<uint8_t> data(64 * kBlockBytes, uint8_t{1});
  const TensorMap map = make_tensor_map(data.data(), kBlockBytes, 64, kBlockBytes, 64);
  const auto text = [&](Misuse what, int threads) {
    return error_of([&] {
      launch(misuse, one_warpgroup(threads), what, map);
      device_synchronize();
    });
  };
  CHECK(contains(text(Misuse::kNoFence, 128), "wgmma without wgmma_fence"));
  CHECK(contains(text(Misuse::kFewThreads, 96), "less than a whole warpgroup"));
  CHECK(contains(text(Misuse::kPastShared, 128), "matrix descriptor of wgmma reaches past shared memory"));
  CHECK(contains(text(Misuse::kUninitialised, 32), "mbarrier was waited for before it was initialised"));
  CHECK(contains(text(Misuse::kTooManyArrivals, 32), "more arrivals at an mbarrier than"));
  CHECK(contains(text(Misuse::kNeverArrives, 32), "mbarrier, parity 0"));
  CHECK(contains(text(Misuse::kOddTile, 32), "must go to a multiple of 1024 bytes"));
}

}  // namespace
}  // namespace bitgrad::cuda
