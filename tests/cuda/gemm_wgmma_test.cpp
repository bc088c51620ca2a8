// Products by wgmma on an emulated sm_90a against int64 sums: shapes at and past the edges of tiles, more tiles than
// blocks, all outputs and corrections.
#include <cstdint>

#include "cuda/kernels/gemm/args.h"
#include "support/expect_error.h"
#include "wgmma_problem.h"

namespace bitgrad::cuda {

using namespace kernels;
namespace {

using gemm::TileForm;
using wgmma_test::check_rs;
using wgmma_test::check_ss;
using wgmma_test::Options;

constexpr TileForm kForms[] = {gemm::kWideTile256, gemm::kNarrowTile128};

TEST_CASE("wgmma products of bytes equal int64 sums at the edges of tiles") {
  Options options;
  options.out = dtypes::int32;
  for (const TileForm form : kForms) {
    check_ss(dtypes::int8, dtypes::int8, 1, 1, 1, options, form);
    check_ss(dtypes::int8, dtypes::int8, 128, 128, 128, options, form);
    check_ss(dtypes::int8, dtypes::int8, 129, 257, 129, options, form);
    check_ss(dtypes::int8, dtypes::int8, 64, 65, 700, options, form);
    check_ss(dtypes::int8, dtypes::int8, 127, 8, 31, options, form);
  }
}

TEST_CASE("wgmma products of signed and unsigned bytes keep every sign") {
  Options options;
  options.out = dtypes::int32;
  for (const TileForm form : kForms)
    for (const DType a : {dtypes::int8, dtypes::uint8})
      for (const DType b : {dtypes::int8, dtypes::uint8}) check_ss(a, b, 70, 140, 200, options, form);
}

TEST_CASE("More tiles than blocks, and more stages than the ring, wrap around") {
  Options options;
  options.out = dtypes::int32;
  check_ss(dtypes::int8, dtypes::int8, 300, 300, 130, options, gemm::kNarrowTile128, 2);
  check_ss(dtypes::int8, dtypes::int8, 300, 150, 128 * 7 + 5, options, gemm::kNarrowTile128, 1);
  check_ss(dtypes::int8, dtypes::int8, 600, 520, 300, options, gemm::kWideTile256, 2);
  check_ss(dtypes::int8, dtypes::int8, 520, 300, 128 * 6, options, gemm::kWideTile256, 4);
}

TEST_CASE("wgmma products of bits equal int64 sums of their numbers") {
  Options options;
  options.out = dtypes::int32;
  for (const TileForm form : kForms)
    for (const DType a : {dtypes::bint1, dtypes::int1})
      for (const DType b : {dtypes::bint1, dtypes::int1}) {
        check_ss(a, b, 70, 140, 1024, options, form);
        check_ss(a, b, 130, 9, 2050, options, form);
        check_ss(a, b, 3, 3, 77, options, form);
      }
  check_ss(dtypes::bint1, dtypes::bint1, 300, 200, 3000, options, gemm::kNarrowTile128, 2);
  check_ss(dtypes::bint1, dtypes::bint1, 520, 270, 1500, options, gemm::kWideTile256, 2);
}

TEST_CASE("The epilogue of wgmma scales, adds and rounds as numerics.md says") {
  for (const DType type : {dtypes::int8, dtypes::bint1}) {
    for (const DType out : {dtypes::fp32, dtypes::bf16}) {
      for (int variant = 0; variant < 8; ++variant) {
        Options options;
        options.out = out;
        options.scale_rows = variant != 1;
        options.scale_columns = variant != 2;
        options.scale_tensor = variant == 3;
        options.bias = variant % 2 == 0;
        options.accumulate = variant == 4 || variant == 7;
        options.stochastic = variant >= 5 && out == dtypes::bf16;
        options.extra_ldc = variant == 6 ? 3 : variant == 0 ? 8 : 0;
        check_ss(type, type, 67, 136 + variant % 3, 250, options, kForms[variant % 2]);
      }
    }
  }
}

TEST_CASE("Zero points and row_minus correct the sums of wgmma") {
  for (const DType type : {dtypes::int8, dtypes::uint8, dtypes::bint1, dtypes::int1}) {
    for (int variant = 1; variant < 8; ++variant) {
      Options options;
      options.zero_a = variant & 1;
      options.zero_b = variant & 2;
      options.row_minus = variant & 4;
      options.scale_tensor = variant == 3;
      options.scale_rows = true;
      if (variant == 4) {
        options.out = dtypes::int64;
        options.scale_rows = false;
      }
      check_ss(type, type, 66, 131, 190, options, gemm::kNarrowTile128);
    }
  }
}

TEST_CASE("Products that are split over k give the bits of whole ones") {
  const auto check = [](DType a, DType b, int64_t m, int64_t n, int64_t k, const Options& options, int parts,
                        int blocks) {
    static uint32_t seed = 9000;
    static int parts_now;
    parts_now = parts;
    wgmma_test::Problem(a, b, m, n, k, options, ++seed)
        .check([](const GemmArgs& args, TileForm, int most) { gemm::run_wgmma_split(args, parts_now, most); },
               gemm::kNarrowTile128, blocks);
  };
  Options options;
  options.out = dtypes::int32;
  for (const int parts : {2, 3, 7}) {
    check(dtypes::int8, dtypes::int8, 130, 131, 128 * 7 + 5, options, parts, 4);
    check(dtypes::uint8, dtypes::int8, 1, 9, 128 * 9, options, parts, 16);
  }
  check(dtypes::int8, dtypes::uint8, 64, 300, 100, options, 5, 2);  // one block of k: one part
  check(dtypes::uint8, dtypes::uint8, 128, 128, 128 * 5, options, 5, 132);
  check(dtypes::bint1, dtypes::int1, 70, 140, 1024 * 5 + 16, options, 3, 4);
  for (const DType out : {dtypes::fp32, dtypes::bf16})
    for (int variant = 0; variant < 6; ++variant) {
      Options value;
      value.out = out;
      value.scale_rows = value.scale_columns = true;
      value.scale_tensor = variant == 1;
      value.bias = variant % 2 == 0;
      value.accumulate = variant == 2;
      value.stochastic = variant == 3 && out == dtypes::bf16;
      value.extra_ldc = variant == 4 ? 3 : 0;
      value.zero_a = value.zero_b = variant == 5;
      check(variant % 2 == 0 ? dtypes::int8 : dtypes::bint1, variant % 2 == 0 ? dtypes::int8 : dtypes::bint1, 67,
            136 + variant % 3, 1024 * 4 + 8 * variant, value, 2 + variant % 3, 5);
    }
}

TEST_CASE("Few tiles of long k are split, and only these") {
  CHECK(gemm::split_parts(512, 512, 8192, false) == 8);
  CHECK(gemm::split_parts(128, 128, 1 << 16, false) == 16);
  CHECK(gemm::split_parts(1024, 1024, 16384, false) == 2);
  CHECK(gemm::split_parts(512, 512, 512, false) == 1);
  CHECK(gemm::split_parts(4096, 4096, 8192, false) == 1);
  CHECK(gemm::split_parts(1, 1, 1, true) == 1);
  CHECK(gemm::split_parts(0, 512, 8192, false) == 1);
  CHECK(gemm::split_parts(512, 0, 8192, false) == 1);
}

TEST_CASE("Weights of every width and kind are unpacked in registers") {
  Options options;
  options.out = dtypes::int32;
  int turn = 0;
  for (const DType weight : {dtypes::int1, dtypes::bint1, dtypes::ternary, dtypes::int2, dtypes::int3, dtypes::int4,
                             dtypes::int5, dtypes::int6, dtypes::int7, dtypes::uint2, dtypes::uint3, dtypes::uint4,
                             dtypes::uint5, dtypes::uint6, dtypes::uint7}) {
    for (const DType activation : {dtypes::int8, dtypes::uint8}) {
      check_rs(activation, weight, 70, 75, 200, options, kForms[turn % 2]);
      ++turn;
    }
    check_rs(dtypes::int8, weight, 9, 66, 128, options, kForms[turn % 2]);
  }
}

TEST_CASE("Products with weights in registers equal int64 sums at the edges of tiles") {
  Options options;
  options.out = dtypes::int32;
  for (const TileForm form : kForms) {
    check_rs(dtypes::int8, dtypes::int4, 1, 1, 1, options, form);
    check_rs(dtypes::int8, dtypes::int3, 129, 129, 129, options, form);
    check_rs(dtypes::uint8, dtypes::bint1, 257, 65, 300, options, form);
    check_rs(dtypes::int8, dtypes::int7, 8, 260, 640, options, form, 2);
  }
  check_rs(dtypes::int8, dtypes::ternary, 300, 300, 900, options, gemm::kNarrowTile128, 2);
  check_rs(dtypes::int8, dtypes::int4, 300, 600, 700, options, gemm::kWideTile256, 2);
}

TEST_CASE("The epilogue of weights in registers turns the tile and corrects zero points") {
  for (const DType weight : {dtypes::int4, dtypes::bint1, dtypes::uint3}) {
    for (int variant = 0; variant < 8; ++variant) {
      Options options;
      options.out = variant % 2 == 0 ? dtypes::bf16 : dtypes::fp32;
      options.scale_rows = options.scale_columns = true;
      options.zero_a = variant & 1;
      options.zero_b = variant & 2;
      options.bias = variant & 4;
      options.accumulate = variant == 5;
      options.row_minus = variant == 6;
      options.extra_ldc = variant == 7 ? 5 : 0;
      check_rs(variant % 3 == 0 ? dtypes::uint8 : dtypes::int8, weight, 37, 72 + variant, 140, options,
               gemm::kNarrowTile128);
    }
  }
}

TEST_CASE("wgmma rows support what TMA can read and nothing else") {
  GemmArgs args;
  args.m = args.n = 512;
  args.k = 1024;
  args.a = {nullptr, dtypes::int8, layouts::canonical, 1024, false, {}};
  args.b = args.a;
  args.ldc = 512;
  const auto bytes = [&] { return ::bitgrad::cuda::gemm_impl::gemm_s8_s8_wgmma_supports(args); };
  CHECK(bytes());
  CHECK_FALSE(::bitgrad::cuda::gemm_impl::gemm_b1_b1_wgmma_supports(args));
  args.a.stride = 1032;
  CHECK_FALSE(bytes());
  args.a.stride = 1024;
  args.a.data = reinterpret_cast<const void*>(uintptr_t{8});
  CHECK_FALSE(bytes());
  args.a.data = nullptr;
  args.a.k_major = true;
  CHECK_FALSE(bytes());
  args.a.k_major = false;
  args.k = 131072;  // 128 * 128 * k = 2^31
  CHECK_FALSE(bytes());
  args.k = 131071;
  CHECK(bytes());
  args.a.dtype = args.b.dtype = dtypes::uint8;
  CHECK_FALSE(bytes());
  args.k = 33025;
  CHECK(bytes());
  args.k = 33026;
  CHECK_FALSE(bytes());
  args.k = 0;
  CHECK_FALSE(bytes());
  args.k = 1024;
  args.a.dtype = dtypes::int7;
  CHECK_FALSE(bytes());
  args.a.dtype = args.b.dtype = dtypes::bint1;
  CHECK(::bitgrad::cuda::gemm_impl::gemm_b1_b1_wgmma_supports(args));
  args.k = 1020;  // four bits behind k lie in the last byte
  CHECK_FALSE(::bitgrad::cuda::gemm_impl::gemm_b1_b1_wgmma_supports(args));
  args.k = 1016;
  CHECK(::bitgrad::cuda::gemm_impl::gemm_b1_b1_wgmma_supports(args));
  args.c_dtype = dtypes::fp64;
  CHECK_FALSE(::bitgrad::cuda::gemm_impl::gemm_b1_b1_wgmma_supports(args));
}

TEST_CASE("Large products use wide tiles, small ones narrow tiles") {
  CHECK(gemm::choose_form(8192, 4096, 4096, false).columns == 256);
  CHECK(gemm::choose_form(8192, 8192, 8192, false).columns == 256);
  CHECK(gemm::choose_form(128, 128, 4096, false).columns == 128);
  CHECK(gemm::choose_form(100, 10, 784, false).columns == 128);
  CHECK(gemm::choose_form(8192, 4096, 128, true).rows == 64);
  CHECK(gemm::choose_form(8192, 4096, 128, false).rows == 128);
  CHECK(gemm::choose_form(8192, 4096, 512, true).rows == 128);
}

TEST_CASE("BITGRAD_WGMMA_FORM names the form of all tiles, and is an error where there is none") {
  const auto named = [](const char* form, bool turns) {
    ::setenv("BITGRAD_WGMMA_FORM", form, 1);
    const gemm::TileForm chosen = gemm::choose_form(8192, 4096, 128, turns);
    CHECK(gemm::split_parts(512, 512, 8192, false) == (*form == '\0' ? 8 : 1));
    return std::pair(chosen.columns, chosen.rows);
  };
  CHECK(named("wide", true) == std::pair(256, 128));
  CHECK(named("narrow", true) == std::pair(128, 128));
  CHECK(named("turns", true) == std::pair(256, 64));
  CHECK(test::contains(test::error_of([&] { named("turns", false); }), "got turns, expected wide or narrow"));
  CHECK(test::contains(test::error_of([&] { named("tall", true); }),
                       "[BITGRAD_WGMMA_FORM] got 'tall', expected wide, narrow or turns"));
  CHECK(named("", false) == std::pair(256, 128));
  ::unsetenv("BITGRAD_WGMMA_FORM");
}

}  // namespace
}  // namespace bitgrad::cuda
