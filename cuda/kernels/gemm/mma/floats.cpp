// Kernels for products of floats and codes by mma.sync: supported operands, where B's scale is applied, and launches.
#include <algorithm>

#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/mma/float_args.h"
#include "cuda/runtime/runtime.h"
#include "kernels/gemm/floats/float_operand.h"

namespace bitgrad::cuda::gemm {
namespace {

enum class ScalePlace { kNone, kOnSum, kGroups, kFold, kRefused };

ScalePlace scale_place(const GemmArgs& args) {
  const ScaleMap& map = args.b.scale;
  if (map.trivial()) return ScalePlace::kNone;
  const bool shifted = map.zero != nullptr || map.offset != nullptr;
  if (args.b.k_major) {
    if (shifted) return ScalePlace::kRefused;
    if (map.row_step == 0) return ScalePlace::kOnSum;
    return map.col_step == 0 || map.col_group % kFoldColumns == 0 ? ScalePlace::kFold : ScalePlace::kRefused;
  }
  if (map.col_step != 0) return map.col_group % kFloatStep == 0 ? ScalePlace::kGroups : ScalePlace::kRefused;
  return shifted ? ScalePlace::kGroups : ScalePlace::kOnSum;
}

bool float_supports(const GemmArgs& args, bool narrow_products) {
  const GemmOperand &a = args.a, &b = args.b;
  const bool is_float = a.dtype == dtypes::bf16 || a.dtype == dtypes::fp32;
  if (!is_float || !a.scale.trivial() || a.stride % (a.dtype.bits() / 8) != 0) return false;
  if (!gemm_detail::has_small_integer_codes(b.dtype) || b.stride % 4 != 0) return false;
  if (a.k_major && (!b.k_major || (b.dtype.bits() & (b.dtype.bits() - 1)) != 0)) return false;
  if ((args.c_dtype != dtypes::fp32 && args.c_dtype != dtypes::bf16) || args.row_minus != nullptr) return false;
  if (!gemm_detail::fold_is_legal(args) || std::max({args.m, args.n, args.k}) > INT32_MAX - kFloatTile) return false;
  const ScalePlace place = scale_place(args);
  if (place == ScalePlace::kRefused) return false;
  return narrow_products == (a.dtype == dtypes::bf16 && place != ScalePlace::kFold);
}

// Chooses the widest copies that addresses and strides allow.
FloatRows rows_of(const GemmOperand& x, int64_t free, int64_t k) {
  const int64_t rows = x.k_major ? k : free, cols = x.k_major ? free : k;
  const auto places = reinterpret_cast<uintptr_t>(x.data) | static_cast<uintptr_t>(x.stride);
  const int64_t bytes = x.dtype.is_code() ? row_bytes_memory(x.dtype, cols) : cols * x.dtype.bits() / 8;
  return {static_cast<const uint8_t*>(x.data), x.stride, rows, bytes, places % 16 == 0 ? 16 : places % 4 == 0 ? 4 : 2};
}

using FloatKernel = void (*)(FloatMmaArgs);
struct FloatKernels {
  FloatKernel rows, groups, turned_b, turned;
};
#define BITGRAD_FLOAT_ROW(type, bits, turned)                                                                     \
  {gemm_##type##_w##bits##_mma_sm80, gemm_##type##_w##bits##_groups_mma_sm80, gemm_##type##_w##bits##_t_mma_sm80, \
   turned},
#define BITGRAD_FLOAT_TABLE(type)                             \
  {                                                           \
    BITGRAD_FLOAT_ROW(type, 1, gemm_##type##_t_w1_t_mma_sm80) \
    BITGRAD_FLOAT_ROW(type, 2, gemm_##type##_t_w2_t_mma_sm80) \
    BITGRAD_FLOAT_ROW(type, 3, nullptr)                       \
    BITGRAD_FLOAT_ROW(type, 4, gemm_##type##_t_w4_t_mma_sm80) \
    BITGRAD_FLOAT_ROW(type, 5, nullptr)                       \
    BITGRAD_FLOAT_ROW(type, 6, nullptr)                       \
    BITGRAD_FLOAT_ROW(type, 7, nullptr)                       \
    BITGRAD_FLOAT_ROW(type, 8, gemm_##type##_t_w8_t_mma_sm80) \
  }
constexpr FloatKernels kFloatKernels[2][8] = {BITGRAD_FLOAT_TABLE(bf16), BITGRAD_FLOAT_TABLE(f32)};
#undef BITGRAD_FLOAT_TABLE
#undef BITGRAD_FLOAT_ROW

void run_floats(const GemmArgs& args, bool narrow_products, const char* name) {
  if (args.m <= 0 || args.n <= 0) return;
  const ScalePlace place = scale_place(args);
  const int64_t steps = gemm_detail::ceil_div(args.k, kFloatStep);
  FloatMmaArgs k{};
  k.a = rows_of(args.a, args.m, args.k);
  k.b = rows_of(args.b, args.n, args.k);
  k.form = operand_of(args.b).form;
  k.narrow = args.a.dtype == dtypes::bf16;
  k.scale = args.b.scale;
  k.on_sum = place == ScalePlace::kOnSum;
  k.fold = place == ScalePlace::kFold;
  k.group_steps = static_cast<int32_t>(k.scale.col_step == 0 ? steps : k.scale.col_group / kFloatStep);
  k.out = output_of(args);
  const FloatKernels& kernels = kFloatKernels[narrow_products ? 0 : 1][args.b.dtype.bits() - 1];
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(gemm_detail::ceil_div(args.m, kFloatTile) *
                                       gemm_detail::ceil_div(args.n, kFloatTile));  // grid.y is limited to 65535
  shape.block.x = kFloatThreads;
  shape.shared_bytes = kFloatSharedBytes;
  shape.name = name;
  const FloatKernel kernel = args.a.k_major                 ? kernels.turned
                             : args.b.k_major               ? kernels.turned_b
                             : place == ScalePlace::kGroups ? kernels.groups
                                                            : kernels.rows;
  launch(kernel, shape, k);
}

// Copies narrower than 16 bytes take several times as many instructions.
double unaligned(const GemmOperand& x) { return x.stride % 16 == 0 ? 0 : x.stride % 4 == 0 ? 0.3 : 1.0; }
double floats_cost(const GemmArgs& args, double macs_per_ns) {
  return 200 + tiled_cost(args, kFloatTile, kFloatTile, macs_per_ns / (1 + unaligned(args.a) + unaligned(args.b)));
}

}  // namespace
}  // namespace bitgrad::cuda::gemm

namespace bitgrad::cuda::gemm_impl {

using namespace gemm;

BITGRAD_DEFINE_GEMM(gemm_bf16_w_mma, float_supports(args, true), floats_cost(args, 87e3),
                    run_floats(args, true, "gemm_bf16_w_mma"))
BITGRAD_DEFINE_GEMM(gemm_f32_w_mma, float_supports(args, false), floats_cost(args, 33e3),
                    run_floats(args, false, "gemm_f32_w_mma"))

}  // namespace bitgrad::cuda::gemm_impl
