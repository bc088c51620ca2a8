// Integer products by mma.sync: supported operands, their conversion to planes or bytes, and launches.
#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/dtype/layout.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/mma/args.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::cuda::gemm {
namespace {

bool is_unsigned_byte(DType dtype) { return dtype.bits() == 8 && dtype.kind() == DTypeKind::kUint; }

// Whether x is bytes stored [k, free] that can be read and transposed by words.
bool whole_words(const GemmOperand& x, int64_t free) {
  return x.k_major && x.dtype.bits() == 8 && x.stride % 4 == 0 && free % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 4 == 0;
}

MmaSide side_of(const GemmOperand& x, int64_t free, int64_t k) {
  MmaSide side{};
  side.data = static_cast<const uint8_t*>(x.data);
  side.stride = x.stride;
  side.free = free;
  side.bits = x.dtype.bits();
  side.form = operand_of(x).form;
  side.k_major = x.k_major;
  side.words = whole_words(x, free);
  side.row_bytes = gemm_detail::round_up(gemm_detail::ceil_div(k * side.bits, 8), 8);
  side.aligned16 = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 16 == 0;
  return side;
}

// An operand as rows of bits: canonical one-bit codes, or layout planes.
MmaSide bit_side(const GemmOperand& x, int64_t free, int64_t k) {
  MmaSide side = side_of(x, free, k);
  side.row_bytes = 8 * plane_words(k);
  if (x.layout == layouts::planes) {
    side.stride = side.row_bytes;
    side.aligned16 = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && side.stride % 16 == 0;
  }
  side.plane_stride = free * side.stride;
  side.shift = x.dtype.kind() == DTypeKind::kSign ? -1 : 0;
  return side;
}

MmaArgs common_args(const GemmArgs& args) {
  MmaArgs k{};
  k.out = output_of(args);
  k.pa = free_params(operand_of(args.a));
  k.pb = free_params(operand_of(args.b));
  k.pairs = k.last_weight = 1;
  k.pair[0] = {0, 0, 1, 1, 1};
  const ScaleMap &sa = args.a.scale, &sb = args.b.scale;
  k.simple = sa.zero == nullptr && sb.zero == nullptr && sa.offset == nullptr && sb.offset == nullptr &&
             args.row_minus == nullptr;
  k.sum_a = sb.zero != nullptr || sb.offset != nullptr;
  k.sum_b = sa.zero != nullptr || sa.offset != nullptr;
  return k;
}

// Orders the pairs of planes by descending weight. Between pairs, the sums are multiplied by the ratio of the weights.
void order_pairs(const GemmArgs& args, MmaArgs& k) {
  struct Weighted {
    int a, b;
    int64_t weight;
  } pairs[kMmaPairs];
  int count = 0;
  for (int a = 0; a < args.a.dtype.bits(); ++a)
    for (int b = 0; b < args.b.dtype.bits(); ++b)
      pairs[count++] = {a, b, plane_weight(args.a.dtype, a) * plane_weight(args.b.dtype, b)};
  std::stable_sort(pairs, pairs + count,
                   [](const Weighted& x, const Weighted& y) { return std::abs(x.weight) > std::abs(y.weight); });
  for (int i = 0; i < count; ++i) {
    const auto [a, b, weight] = pairs[i];
    k.pair[i] = {a, b, i == 0 ? 1 : static_cast<int32_t>(pairs[i - 1].weight / weight),
                 b == 0 ? static_cast<int32_t>(plane_weight(args.a.dtype, a)) : 0,
                 a == 0 ? static_cast<int32_t>(plane_weight(args.b.dtype, b)) : 0};
  }
  k.pairs = count;
  k.last_weight = static_cast<int32_t>(pairs[count - 1].weight);
}

using MmaKernel = void (*)(MmaArgs);

void launch_mma(MmaKernel kernel, const MmaArgs& k, const char* name) {
  if (k.out.m <= 0 || k.out.n <= 0) return;
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(gemm_detail::ceil_div(k.out.m, kMmaTile) *
                                       gemm_detail::ceil_div(k.out.n, kMmaTile));  // grid.y is limited to 65535
  shape.block.x = kMmaThreads;
  shape.shared_bytes = kMmaSharedBytes;
  shape.name = name;
  launch(kernel, shape, k);
}

bool bits_supported(const GemmArgs& args) {
  return exact_sum(args) && !args.a.k_major && !args.b.k_major &&
         args.a.dtype.bits() * args.b.dtype.bits() <= kMmaPairs && args.k <= int64_t{1} << 24;
}
void run_bits(const GemmArgs& args, const char* name) {
  MmaArgs k = common_args(args);
  k.a = bit_side(args.a, args.m, args.k);
  k.b = bit_side(args.b, args.n, args.k);
  order_pairs(args, k);
  k.sum_a = k.sum_a || k.b.shift != 0;
  k.sum_b = k.sum_b || k.a.shift != 0;
  launch_mma(gemm_bits_mma_sm80, k, name);
}
double bits_cost(const GemmArgs& args) {
  return 200 + tiled_cost(args, kMmaTile, kMmaTile, 400e3 / (args.a.dtype.bits() * args.b.dtype.bits()));
}

}  // namespace
}  // namespace bitgrad::cuda::gemm

namespace bitgrad::cuda::gemm_impl {

using namespace gemm;

bool gemm_s8_s8_mma_supports(const GemmArgs& args) {
  return exact_sum(args) && fits_int32(args, largest_code(args.a.dtype), largest_code(args.b.dtype));
}
double gemm_s8_s8_mma_cost(const GemmArgs& args) {
  // What unpacking adds, relative to products of rows of bytes: little for whole words, much for one code at a time.
  const auto more = [](const GemmOperand& x, int64_t free) {
    if (whole_words(x, free)) return 0.25;
    return x.k_major || x.dtype.bits() != 8 ? 2.25 : 0.0;
  };
  const double slower = 1 + more(args.a, args.m) + more(args.b, args.n);
  return 300 + tiled_cost(args, kMmaTile, kMmaTile, 110e3 / slower);
}
void gemm_s8_s8_mma(const GemmArgs& args) {
  MmaArgs k = common_args(args);
  k.a = side_of(args.a, args.m, args.k);
  k.b = side_of(args.b, args.n, args.k);
  k.a.expand = args.a.k_major || args.a.dtype.bits() != 8;
  k.b.expand = args.b.k_major || args.b.dtype.bits() != 8;
  const bool a = is_unsigned_byte(args.a.dtype), b = is_unsigned_byte(args.b.dtype);
  launch_mma(a ? (b ? gemm_u8_u8_mma_sm80 : gemm_u8_s8_mma_sm80) : (b ? gemm_s8_u8_mma_sm80 : gemm_s8_s8_mma_sm80), k,
             "gemm_s8_s8_mma");
}

bool gemm_s8_w_mma_supports(const GemmArgs& args) {
  return gemm_s8_s8_mma_supports(args) && args.a.dtype.bits() == 8 && !args.a.k_major && args.b.dtype.bits() < 8 &&
         !args.b.k_major;
}
double gemm_s8_w_mma_cost(const GemmArgs& args) { return 200 + tiled_cost(args, kMmaTile, kMmaTile, 80e3); }
void gemm_s8_w_mma(const GemmArgs& args) {
  static constexpr MmaKernel kKernels[2][7] = {
      {gemm_s8_w1_mma_sm80, gemm_s8_w2_mma_sm80, gemm_s8_w3_mma_sm80, gemm_s8_w4_mma_sm80, gemm_s8_w5_mma_sm80,
       gemm_s8_w6_mma_sm80, gemm_s8_w7_mma_sm80},
      {gemm_u8_w1_mma_sm80, gemm_u8_w2_mma_sm80, gemm_u8_w3_mma_sm80, gemm_u8_w4_mma_sm80, gemm_u8_w5_mma_sm80,
       gemm_u8_w6_mma_sm80, gemm_u8_w7_mma_sm80}};
  MmaArgs k = common_args(args);
  k.a = side_of(args.a, args.m, args.k);
  k.b = side_of(args.b, args.n, args.k);
  launch_mma(kKernels[is_unsigned_byte(args.a.dtype) ? 1 : 0][args.b.dtype.bits() - 1], k, "gemm_s8_w_mma");
}

BITGRAD_DEFINE_GEMM(gemm_b1_b1_mma, bits_supported(args) && args.a.dtype.bits() == 1 && args.b.dtype.bits() == 1,
                    bits_cost(args), run_bits(args, "gemm_b1_b1_mma"))
BITGRAD_DEFINE_GEMM(gemm_planes_b1_mma, bits_supported(args) && args.b.dtype.bits() == 1, bits_cost(args),
                    run_bits(args, "gemm_planes_b1_mma"))
BITGRAD_DEFINE_GEMM(gemm_b1_planes_mma, bits_supported(args) && args.a.dtype.bits() == 1, bits_cost(args),
                    run_bits(args, "gemm_b1_planes_mma"))
BITGRAD_DEFINE_GEMM(gemm_planes_planes_mma, bits_supported(args), bits_cost(args),
                    run_bits(args, "gemm_planes_planes_mma"))

}  // namespace bitgrad::cuda::gemm_impl
