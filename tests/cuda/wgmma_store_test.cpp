// Stores of wgmma products from fragments (TMA boxes) against int64 sums, and which products have them.
#include <cstdint>

#include "wgmma_problem.h"

namespace bitgrad::cuda {

using namespace kernels;
namespace {

using wgmma_test::check_rs;
using wgmma_test::check_ss;
using wgmma_test::Options;

// Rows of C that TMA can write, if they end on a piece of 16 bytes. Another piece lies behind each.
Options boxed(DType out, int64_t n) {
  Options options;
  options.out = out;
  const int64_t unit = out == dtypes::bf16 ? 8 : 4;
  options.extra_ldc = (unit - n % unit) % unit + unit;
  return options;
}

TEST_CASE("Stores from fragments have the values of numerics.md at the edges of tiles and boxes") {
  struct Case {
    int64_t m, n, k;
    gemm::TileForm form;
    int blocks;
  };
  constexpr Case kCases[] = {{1, 1, 128, gemm::kWideTile256, 4},      {64, 64, 128, gemm::kNarrowTile128, 4},
                             {129, 257, 640, gemm::kWideTile256, 4},  {300, 33, 200, gemm::kNarrowTile128, 1},
                             {520, 520, 130, gemm::kWideTile256, 2},  {67, 290, 712, gemm::kNarrowTile128, 2},
                             {257, 130, 1024, gemm::kWideTile256, 2}, {200, 260, 1600, gemm::kNarrowTile128, 3},
                             {1, 8, 128, gemm::kWideTile256, 4},      {129, 264, 640, gemm::kWideTile256, 4},
                             {300, 40, 200, gemm::kNarrowTile128, 1}, {67, 296, 712, gemm::kNarrowTile128, 2}};
  int variant = 0;
  for (const Case& c : kCases)
    for (const DType type : {dtypes::int8, dtypes::uint8, dtypes::bint1, dtypes::int1})
      for (const DType out : {dtypes::bf16, dtypes::fp32}) {
        Options options = boxed(out, c.n);
        options.scale_rows = variant % 5 != 1;
        options.scale_columns = variant % 5 != 2;
        options.scale_tensor = variant % 5 == 3;
        options.bias = variant % 3 == 0;
        check_ss(type, type, c.m, c.n, c.k, options, c.form, c.blocks);
        ++variant;
      }
  for (const auto& [a, b] : {std::pair{dtypes::bint1, dtypes::int1}, {dtypes::int1, dtypes::bint1}}) {
    Options options = boxed(dtypes::bf16, 140);
    options.scale_rows = options.scale_columns = true;
    check_ss(a, b, 70, 140, 1024, options, gemm::kWideTile256);
  }
}

TEST_CASE("Consumers that alternate, tile by tile, have the sums of those that share a tile") {
  struct Case {
    int64_t m, n, k;
    int blocks;
  };
  // One tile, an odd number of them, more tiles than clusters, more and fewer stages than the ring.
  constexpr Case kCases[] = {
      {1, 8, 16, 4}, {256, 256, 512, 4}, {300, 264, 640, 4}, {520, 600, 130, 4}, {260, 1032, 1000, 8}};
  int variant = 0;
  for (const Case& c : kCases)
    for (const DType type : {dtypes::int8, dtypes::bint1})
      for (const DType out : {dtypes::bf16, dtypes::fp32}) {
        Options options = boxed(out, c.n);
        options.scale_rows = variant % 5 != 1;
        options.scale_columns = variant % 5 != 2;
        options.bias = type == dtypes::int8 && variant % 3 == 0;
        check_ss(type, type, c.m, c.n, c.k * (type == dtypes::bint1 ? 8 : 1), options, gemm::kTurnsTile256, c.blocks);
        ++variant;
      }
}

TEST_CASE("Stores from fragments of weights in registers turn the tile") {
  int variant = 0;
  for (const DType weight : {dtypes::int4, dtypes::bint1, dtypes::uint3, dtypes::ternary, dtypes::int7})
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {37, 72}, {300, 270}, {65, 600}}) {
      Options options = boxed(dtypes::bf16, n);
      options.scale_rows = variant % 5 != 1;
      options.scale_columns = variant % 5 != 2;
      options.scale_tensor = variant % 5 == 3;
      options.bias = variant % 2 == 0;
      check_rs(variant % 3 == 0 ? dtypes::uint8 : dtypes::int8, weight, m, n, 140 + 64 * (variant % 4), options,
               gemm::kWideTile256, 2 + 2 * (variant % 2));
      ++variant;
    }
}

TEST_CASE("Products are stored from fragments where TMA can write C, and through sums elsewhere") {
  const DeviceGuard guard(Device::cuda());
  test::DeviceArray<uint8_t> c(64 * 1024, uint8_t{0});
  test::DeviceArray<float> bias(64, 1.0f);
  test::DeviceArray<int32_t> zero(64, 1);
  test::DeviceArray<int64_t> minus(64, int64_t{1});
  const auto plan = [&](DType type, DType out, const auto& change, bool weights = false) {
    GemmArgs args;
    args.m = args.n = args.ldc = 64;
    args.k = 128;
    args.a = {c.data(), type, layouts::canonical, 128, false, {}};
    args.b = args.a;
    args.c = c.data();
    args.c_dtype = out;
    change(args);
    gemm::WgmmaArgs made = gemm::common_args(args);
    return gemm::plan_store(args, weights, made);
  };
  using gemm::WgmmaStore;
  const auto nothing = [](GemmArgs&) {};
  CHECK(plan(dtypes::int8, dtypes::bf16, nothing) == WgmmaStore::kBf16);
  CHECK(plan(dtypes::bint1, dtypes::fp32, nothing) == WgmmaStore::kFp32);
  CHECK(plan(dtypes::int8, dtypes::bf16, nothing, true) == WgmmaStore::kBf16);
  CHECK(plan(dtypes::int8, dtypes::fp32, nothing, true) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::int32, nothing) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::bf16, [&](GemmArgs& x) { x.bias = bias.data(); }) == WgmmaStore::kBf16);
  CHECK(plan(dtypes::bint1, dtypes::bf16, [&](GemmArgs& x) { x.bias = bias.data(); }) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::bf16, [](GemmArgs& x) { x.accumulate = true; }) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::bf16, [](GemmArgs& x) { x.ldc = 68; }) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::fp32, [](GemmArgs& x) { x.ldc = 68; }) == WgmmaStore::kFp32);
  CHECK(plan(dtypes::int8, dtypes::bf16, [](GemmArgs& x) { x.n = 56; }) == WgmmaStore::kBf16);
  CHECK(plan(dtypes::int8, dtypes::bf16, [](GemmArgs& x) { x.n = 60; }) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::fp32, [](GemmArgs& x) { x.n = 60; }) == WgmmaStore::kFp32);
  CHECK(plan(dtypes::int8, dtypes::fp32, [](GemmArgs& x) { x.n = 62; }) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::bf16, [&](GemmArgs& x) { x.c = c.data() + 8; }) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::bf16, [&](GemmArgs& x) { x.a.scale.zero = zero.data(); }) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::bf16, [&](GemmArgs& x) { x.row_minus = minus.data(); }) == WgmmaStore::kGeneral);
  const RandomStream draws{1, Purpose::kInit, 2, 3};
  CHECK(plan(dtypes::int8, dtypes::bf16, [&](GemmArgs& x) { x.sr = &draws; }) == WgmmaStore::kGeneral);
  CHECK(plan(dtypes::int8, dtypes::fp32, [](GemmArgs& x) { x.ldc = int64_t{1} << 29; }) == WgmmaStore::kGeneral);
}

}  // namespace
}  // namespace bitgrad::cuda
