// The choice of a gemm row: by machine, mode, layouts and cost; its errors; the list of all kernels.
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "bitgrad/base/cpu.h"
#include "bitgrad/kernels/gemm.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::contains;
using test::error_of;

class IsaCap {
 public:
  explicit IsaCap(IsaLevel level) : old_(isa_cap()) { set_isa_cap(level < old_ ? level : old_); }
  ~IsaCap() { set_isa_cap(old_); }

 private:
  IsaLevel old_;
};

GemmArgs product(DType a, DType b, int64_t m = 100, int64_t n = 128, int64_t k = 784) {
  GemmArgs args;
  args.m = m;
  args.n = n;
  args.k = k;
  args.ldc = n;
  args.a.dtype = a;
  args.b.dtype = b;
  return args;
}

std::string planned(const GemmArgs& args, IsaLevel level) {
  const IsaCap cap(level);
  return std::string(plan_gemm(args).name);
}
std::string selected(const GemmArgs& args, IsaLevel level) {
  const IsaCap cap(level);
  return std::string(select_gemm(args).name);
}
// Whether the machine grants the groups under a cap.
bool granted(IsaMask needs, IsaLevel level) {
  const IsaCap cap(level);
  return (needs & ~cpu_isa()) == 0;
}

// [cpu]: products of the CPU; those of devices are in tests/cuda/gemm_*
TEST_CASE("products of bits are planned on a row of bits of the machine: few rows are counted, many looked up",
          "[cpu]") {
  const std::tuple<DType, DType, std::string> kinds[] = {{dtypes::bint1, dtypes::bint1, "gemm_b1_b1_i32_"},
                                                         {dtypes::ternary, dtypes::bint1, "gemm_t_b1_i32_"},
                                                         {dtypes::ternary, dtypes::ternary, "gemm_t_t_i32_"}};
  for (const auto& [a, b, stem] : kinds) {
    const GemmArgs few = product(a, b, 8, 1024, 1024), many = product(a, b, 512, 1024, 1024);
    for (const GemmArgs& args : {few, many}) CHECK(planned(args, IsaLevel::kScalar) == stem + "popcount_scalar");
    if (granted(isa::kAvx2, IsaLevel::kAvx2)) {
      CHECK(planned(few, IsaLevel::kAvx2) == stem + "popcount_avx2");
      CHECK(planned(many, IsaLevel::kAvx2) == stem + "nibble_avx2");
    }
    if (granted(isa::kAvx512 | isa::kAvx512Popcnt, IsaLevel::kAvx512)) {
      const std::string row = planned(few, IsaLevel::kAvx512);
      CHECK((row == stem + "popcount_avx512" || row == stem + "popcount_csa_avx512"));
    }
  }
}

TEST_CASE("products of small integers are planned on the row that reads packed weights", "[cpu]") {
  for (const int64_t m : {int64_t{1}, int64_t{16}, int64_t{64}, int64_t{512}}) {
    for (const DType b : {dtypes::int8, dtypes::int4, dtypes::int3, dtypes::int2, dtypes::uint4}) {
      INFO(b << ", m " << m);
      GemmArgs args = product(dtypes::int8, b, m, 4096, 4096);
      if (granted(isa::kAvx512 | isa::kAvx512Vnni, IsaLevel::kAvx512))
        CHECK(planned(args, IsaLevel::kAvx512) == "gemm_s8_s8_i32_vnni64_avx512");
      if (granted(isa::kAvx2, IsaLevel::kAvx2)) {
        const std::string row = planned(args, IsaLevel::kAvx2);
        CHECK((row == (b == dtypes::int8 ? "gemm_s8_s8_i32_madd_avx2" : "gemm_s8_s8_i32_vnni64_avx2") ||
               (b == dtypes::int2 && m >= 64 && row == "gemm_s8_table_avx2")));
      }
      args.b.k_major = true;
      if (granted(isa::kAvx512 | isa::kAvx512Vnni, IsaLevel::kAvx512))
        CHECK(planned(args, IsaLevel::kAvx512) == "gemm_s8_s8_i32_vnni64_t_avx512");
    }
  }
}

TEST_CASE("canonical codes always find a row, and never a popcount row that reads panels", "[cpu]") {
  for (const DType a : all_dtypes()) {
    for (const DType b : all_dtypes()) {
      if (a.kind() == DTypeKind::kFloat || b.kind() == DTypeKind::kFloat) continue;
      if (a.kind() == DTypeKind::kCodebook || b.kind() == DTypeKind::kCodebook) continue;
      const GemmArgs args = product(a, b, 10, 20, 300);
      INFO(a << " x " << b);
      CHECK(gemm_is_integer(args));
      const bool small = a.is_code() && b.is_code();
      CHECK(selected(args, IsaLevel::kScalar) == "gemm_int_scalar");
      if (granted(isa::kAvx2, IsaLevel::kAvx2)) {
        CHECK(selected(args, IsaLevel::kAvx2) == (small ? "gemm_s8_s8_i32_madd_avx2" : "gemm_int_scalar"));
      }
      if (granted(isa::kAvx512 | isa::kAvx512Vnni, IsaLevel::kAvx512)) {
        CHECK(selected(args, IsaLevel::kAvx512) == (small ? "gemm_s8_s8_i32_vnni_avx512" : "gemm_int_scalar"));
      }
    }
  }
}

TEST_CASE("a scalar row is never cheaper than one with vector instructions", "[cpu]") {
  int compared = 0;
  for (const Layout layout : all_layouts()) {
    for (const bool k_major : {false, true}) {
      for (const int64_t extent : {int64_t{0}, int64_t{1}, int64_t{64}, int64_t{4096}}) {
        GemmArgs args = product(dtypes::bint1, dtypes::bint1, extent, extent, extent);
        args.b.layout = layout;
        args.b.k_major = k_major;
        double scalar = INFINITY, vector = 0;
        for (const GemmKernel& kernel : gemm_kernels()) {
          if (kernel.b_layout != layout || kernel.a_layout != args.a.layout || !kernel.usable(args)) continue;
          (kernel.needs == isa::kScalar ? scalar : vector) =
              kernel.needs == isa::kScalar ? std::min(scalar, kernel.cost(args)) : std::max(vector, kernel.cost(args));
        }
        compared += vector > 0 && scalar < INFINITY;
        INFO(layout << (k_major ? " k-major " : " ") << extent);
        CHECK(vector < scalar);
      }
    }
  }
  if (granted(isa::kAvx2, IsaLevel::kAvx2)) CHECK(compared >= 4 * 4);
}

TEST_CASE("the cached choice follows the cap, the shape and the mode", "[cpu]") {
  GemmArgs args = product(dtypes::int8, dtypes::int8);
  const std::string best(select_gemm(args).name);
  CHECK(selected(args, IsaLevel::kScalar) == "gemm_int_scalar");
  CHECK(std::string(select_gemm(args).name) == best);
  // Blocks of A along k are exact sums, a scale for each index is not.
  static const float scales[8] = {};
  args.a.scale.scale = scales;
  args.a.scale.col_step = 1;
  args.a.scale.col_group = 98;
  args.a.scale.row_step = 8;
  CHECK(gemm_is_integer(args));
  CHECK(select_gemm(args).order == SumOrder::kExact);
  args.a.scale.col_group = 1;
  CHECK_FALSE(gemm_is_integer(args));
  CHECK(select_gemm(args).order != SumOrder::kExact);
  const BitsMode mode = bits_mode();
  set_bits_mode(BitsMode::kStrict);
  CHECK(select_gemm(args).order != SumOrder::kFree);
  set_bits_mode(mode);
}

TEST_CASE("what counts as an integer product", "[cpu]") {
  static const float real[1] = {1};
  static const int32_t zero[1] = {1};
  GemmArgs args = product(dtypes::int4, dtypes::uint8);
  CHECK(gemm_is_integer(args));
  args.a.scale.zero = zero;
  CHECK(gemm_is_integer(args));
  args.a.scale.row_step = 1;
  CHECK(gemm_is_integer(args));
  args.a.k_major = true;  // the same map now runs along k
  CHECK_FALSE(gemm_is_integer(args));
  args.a.scale.row_step = 0;
  args.a.scale.col_step = 1;
  CHECK(gemm_is_integer(args));
  args.a.scale.col_group = 2;
  CHECK_FALSE(gemm_is_integer(args));
  args.a.scale = {};
  args.a.scale.offset = real;
  CHECK(gemm_is_integer(args));
  // B [128, 784] in groups of 56 along k.
  args.b.scale = {real, nullptr, nullptr, 14, 1, 1, 56};
  CHECK_FALSE(gemm_is_integer(args));  // beside an offset of A
  args.a.scale = {real, zero, nullptr, 0, 0, 1, 1};
  CHECK(gemm_is_integer(args));
  args.b.scale.zero = zero;
  CHECK(gemm_is_integer(args));
  args.b.scale.offset = real;  // both
  CHECK_FALSE(gemm_is_integer(args));
  args.b.scale.zero = nullptr;
  CHECK(gemm_is_integer(args));
  args.fold_b_scale = true;
  CHECK_FALSE(gemm_is_integer(args));
  args.b.scale = {real, nullptr, nullptr, 0, 0, 1, 1};
  CHECK(gemm_is_integer(args));
  CHECK_FALSE(gemm_is_integer(product(dtypes::fp32, dtypes::int4)));
  CHECK_FALSE(gemm_is_integer(product(dtypes::int4, dtypes::nf4)));
}

TEST_CASE("row_minus belongs to one exact sum", "[cpu]") {
  static const int64_t minus[100] = {};
  static const float real[1792] = {};
  GemmArgs args = product(dtypes::int8, dtypes::int4);
  args.row_minus = minus;
  CHECK(select_gemm(args).order == SumOrder::kExact);
  args.b.scale = {real, nullptr, nullptr, 14, 1, 1, 56};
  CHECK(contains(error_of([&] { select_gemm(args); }), "row_minus"));
  args.b.scale = {real, nullptr, real, 0, 0, 1, 1};
  CHECK(contains(error_of([&] { select_gemm(args); }), "row_minus"));
  args.b.scale = {};
  args.a.dtype = dtypes::fp32;
  CHECK(contains(error_of([&] { plan_gemm(args); }), ", row_minus, expected"));
  args.a.dtype = args.b.dtype = dtypes::fp32;
  CHECK(contains(error_of([&] { plan_gemm(args); }), ", row_minus, expected"));
}

TEST_CASE("a missing row is an error that names both operands and what to do", "[cpu]") {
  GemmArgs args = product(dtypes::bint1, dtypes::int4);
  args.a.layout = layouts::planes;
  args.b.k_major = true;
  const std::string text = error_of([&] { select_gemm(args); });
  CHECK(contains(
      text,
      "[gemm] no kernel for these operands: got A bint1[100,784] in layout planes, no scale; B int4[784,128] in layout "
      "canonical, no scale; C fp32[100,128], expected "));
  CHECK(contains(text, "Hint: pass the canonical codes, or query plan_gemm for the layouts."));
  CHECK(error_of([&] { gemm(args); }) == text);

  static const float scale[1] = {0.5f};
  GemmArgs scaled = product(dtypes::int8, dtypes::int8);
  scaled.c_dtype = dtypes::int32;
  scaled.a.scale.scale = scale;
  CHECK(contains(error_of([&] { plan_gemm(scaled); }),
                 "[plan_gemm] no kernel for these operands: got A int8[100,784] in layout canonical, "
                 "scale per tensor; B "));
  scaled.a.scale = {};
  scaled.accumulate = true;
  CHECK(contains(error_of([&] { select_gemm(scaled); }), "C int32[100,128], accumulate, expected"));
}

TEST_CASE("every gemm row is listed once with its order", "[cpu]") {
  std::set<std::string> names;
  for (const KernelInfo& kernel : all_kernels()) {
    if (kernel.family != "gemm") continue;
    CHECK(names.insert(std::string(kernel.name)).second);
    CHECK_FALSE(order_name(kernel.order).empty());
    if (kernel.needs == isa::kScalar && kernel.order != SumOrder::kFree) CHECK(kernel.available());
  }
  CHECK(names.size() == gemm_kernels().size());
  CHECK(names.count("gemm_b1_b1_i32_popcount_avx512") == 1);
  CHECK(order_name(SumOrder::kChain512) == "chain512");
}

TEST_CASE("kernels are available where their instructions are granted, and those that no test runs here are named",
          "[cpu]") {
  std::map<IsaMask, int> missing;
  int listed = 0;
  for (const KernelInfo& kernel : all_kernels()) {
    if (kernel.device != DeviceKind::kCpu) continue;
    ++listed;
    CHECK(kernel.available() == ((kernel.needs & ~cpu_isa()) == 0));
    if (!kernel.available()) ++missing[kernel.needs & ~cpu_isa()];
  }
  CHECK(listed > 0);
  for (const auto& [groups, count] : missing)
    WARN("skipped: " << count << " of " << listed << " kernels need " << isa_names(groups));
}

}  // namespace
}  // namespace bitgrad
