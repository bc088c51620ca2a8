// Signs of a matrix in both orders, the mean of |x| of each row, and the counts of +1, from a single read.
//
// A block processes 64 rows of one chunk of 1024 columns. Half a warp processes a row: its 16 lanes sum |x| in the
// order of docs/numerics.md section 8, and a ballot over their signs gives 16 adjacent bits. A second kernel combines
// the chunks.
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/dtype/layout.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/pack/octet.h"
#include "cuda/kernels/quantize/element.h"
#include "cuda/kernels/reduce/sums.h"
#include "kernels/quantize/rounding.h"

namespace bitgrad::cuda {

inline constexpr int kBlockRows = 64, kWarps = 8, kBlockWords = sums::kChunk / 32;

struct BinarizeCall {
  int64_t rows, cols, ldx;
  uint64_t *codes, *transposed;
  int64_t stride, transposed_stride;  // words
  float* sums;                        // [rows, chunks], or nullptr
  int64_t chunks;
  int *row_ones, *column_ones;
  uint32_t* flags;
};

// Computes the bits of rows `row` (lanes 0 .. 15) and row + 1 of the block, and their sums of |x|.
template <typename X>
BITGRAD_DEVICE inline void take_rows(const BinarizeCall& call, const X* all, int64_t row0, int64_t chunk, int row,
                                     uint16_t* bits) {
  const int lane = static_cast<int>(threadIdx.x) % 32, half = lane / sums::kLanes;
  const int64_t r = row0 + row + half, first = chunk * sums::kChunk + lane % sums::kLanes;
  const int64_t end = r < call.rows ? call.cols : 0;
  const X* const x = all + r * call.ldx;
  float sum = 0.0f;
  bool nonfinite = false;
  for (int j = 0; j < 2 * kBlockWords; ++j) {
    const int64_t c = first + sums::kLanes * j;
    const bool inside = c < end;
    const float v = inside ? widened(x[c]) : 0.0f;
    const bool finite = quantize_loops::is_finite_number(v);
    nonfinite |= !finite;
    if (inside) sum = sum + (v < 0.0f ? -v : v);
    const unsigned signs = __ballot_sync(0xFFFFFFFFu, inside && finite && v >= 0.0f);
    if (lane % sums::kLanes == 0) bits[half * 2 * kBlockWords + j] = static_cast<uint16_t>(signs >> (16 * half));
  }
  if (nonfinite && call.flags != nullptr) atomicOr(call.flags, kFlagNonFinite);
  if (call.sums == nullptr) return;
  for (int d = sums::kLanes / 2; d >= 1; d /= 2) sum = sum + sums::down(sum, d, sums::kLanes);
  if (lane % sums::kLanes == 0 && r < call.rows) call.sums[r * call.chunks + chunk] = sum;
}

// Transposes 32 x 32 bits, one row per lane (Warren, "Hacker's Delight", 2nd ed., section 7-3).
BITGRAD_DEVICE inline uint32_t transpose_square(uint32_t x) {
  const unsigned lane = threadIdx.x % 32;
  uint32_t low = 0x0000FFFFu;
  for (unsigned j = 16; j != 0; j /= 2, low ^= low << j) {
    const uint32_t y = __shfl_xor_sync(0xFFFFFFFFu, x, static_cast<int>(j));
    x = (lane & j) == 0 ? (x & low) | ((y & low) << j) : (x & ~low) | ((y >> j) & low);
  }
  return x;
}

// Four threads per row, four 64-bit words each.
BITGRAD_DEVICE inline void store_rows(const BinarizeCall& call, int64_t row0, int64_t chunk,
                                      const uint32_t (*bits)[kBlockWords]) {
  constexpr int kWords = kBlockWords / 2, kShare = 4;
  const int row = static_cast<int>(threadIdx.x) / kShare, part = static_cast<int>(threadIdx.x) % kShare;
  const int64_t r = row0 + row, words = (call.cols + 63) / 64;
  int ones = 0;
  for (int w = part; w < kWords; w += kShare) {
    const uint64_t word = bits[row][2 * w] | static_cast<uint64_t>(bits[row][2 * w + 1]) << 32;
    ones += __popcll(word);
    if (r < call.rows && chunk * kWords + w < words) call.codes[r * call.stride + chunk * kWords + w] = word;
  }
  if (call.row_ones == nullptr) return;
  for (int d = 1; d < kShare; d *= 2) ones += __shfl_xor_sync(0xFFFFFFFFu, ones, d);
  if (part == 0 && r < call.rows) atomicAdd(call.row_ones + r, ones);
}

// A warp processes 32 columns at a time, one word of 64 rows each.
BITGRAD_DEVICE inline void store_columns(const BinarizeCall& call, int64_t row0, int64_t chunk,
                                         const uint32_t (*bits)[kBlockWords]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int g = warp; g < kBlockWords; g += kWarps) {
    const uint32_t low = transpose_square(bits[lane][g]), high = transpose_square(bits[32 + lane][g]);
    const int64_t c = chunk * sums::kChunk + 32 * g + lane;
    if (c >= call.cols) continue;
    if (call.transposed != nullptr)
      call.transposed[c * call.transposed_stride + row0 / 64] = low | static_cast<uint64_t>(high) << 32;
    if (call.column_ones != nullptr) atomicAdd(call.column_ones + c, __popc(low) + __popc(high));
  }
}

template <typename X>
BITGRAD_GLOBAL void binarize_kernel(BinarizeCall call, const X* x) {
  __shared__ uint32_t bits[kBlockRows][kBlockWords];
  const Cell block = cell_of(blockIdx.x, call.chunks);
  const int64_t row0 = block.row * kBlockRows;
  for (int row = 2 * (static_cast<int>(threadIdx.x) / 32); row < kBlockRows; row += 2 * kWarps)
    take_rows(call, x, row0, block.col, row, reinterpret_cast<uint16_t*>(bits[row]));
  __syncthreads();
  store_rows(call, row0, block.col, bits);
  if (call.transposed != nullptr || call.column_ones != nullptr) store_columns(call, row0, block.col, bits);
}

namespace {

// Combines the chunk sums of a row into alpha.
struct AlphaRule {
  using Value = float;
  float* out;
  float n, eps;
  uint32_t* flags;
  BITGRAD_DEVICE static float join(float a, float b) { return a + b; }
  BITGRAD_DEVICE void store(int64_t j, float sum) const {
    const float mean = sum / n;
    out[j] = mean < eps ? eps : mean;
    if (flags != nullptr && !quantize_loops::is_finite_number(mean)) atomicOr(flags, kFlagNonFinite);
  }
};

}  // namespace

void binarize_cuda(const BinarizeArgs& args) {
  const int64_t chunks = ceil_div(args.cols, sums::kChunk),
                transposed_bytes = row_bytes_memory(dtypes::bint1, args.rows);
  ensure((reinterpret_cast<uintptr_t>(args.codes) | static_cast<uint64_t>(args.stride)) % 8 == 0, "binarize",
         "codes at a stride of ", args.stride, " bytes, expected whole words");
  const Workspace chunk_sums(args.alpha == nullptr ? 0 : args.rows * chunks * static_cast<int64_t>(sizeof(float)));
  const BinarizeCall call{args.rows,
                          args.cols,
                          args.ldx,
                          static_cast<uint64_t*>(args.codes),
                          static_cast<uint64_t*>(args.transposed),
                          args.stride / 8,
                          transposed_bytes / 8,
                          args.alpha == nullptr ? nullptr : chunk_sums.as<float>(),
                          chunks,
                          args.row_ones,
                          args.column_ones,
                          args.flags};
  const auto clear = [](void* data, int64_t bytes) {
    if (data != nullptr && bytes > 0) fill_async(data, 0, bytes, current_stream());
  };
  clear(args.row_ones, 4 * args.rows);
  clear(args.column_ones, 4 * args.cols);
  if (args.transposed != nullptr)
    clear(static_cast<char*>(args.transposed) + args.cols * transposed_bytes,
          layouts::transposed.info().bytes(dtypes::bint1, args.rows, args.cols) - args.cols * transposed_bytes);
  const unsigned blocks = static_cast<unsigned>(ceil_div(args.rows, kBlockRows) * chunks);
  const LaunchShape shape{{blocks}, {32 * kWarps}, 0, 1, "binarize_cuda"};
  with_elements(args.x, [&]<typename X>(const X* x) { launch(binarize_kernel<X>, shape, call, x); });
  if (call.sums == nullptr || blocks == 0) return;
  const AlphaRule rule{args.alpha, static_cast<float>(args.cols), args.eps, args.alpha_flags};
  const sums::Sequences rows{args.rows, 1, args.cols, args.cols, args.ldx, false};
  sums::run_join("binarize_alpha_cuda", rule, rows, sums::kChunk, static_cast<const float*>(call.sums), chunks);
}

// ---- batch norm, threshold, pack
struct NormalizeSignCall {
  NormalizeArgs norm;
  CodeRows codes;
  uint32_t* flags;
  int32_t* row_ones;
  bool wide;
};

BITGRAD_GLOBAL void normalize_sign_kernel(NormalizeSignCall call) {
  const NormalizeArgs& p = call.norm;
  for_octets(p.rows, p.cols, call.row_ones, [&](int64_t, Cell at) {
    const int64_t c = 8 * at.col, count = p.cols - c;
    uint32_t signs = 0;
    bool nonfinite = false;
    if (count > 0) {
      const Numbers8 x = load_numbers(static_cast<const float*>(p.x.data) + at.row * p.cols + c, count, call.wide);
      for (int k = 0; k < 8; ++k) {
        if (k >= count) continue;
        const int64_t j = (c + k) * p.column_step;
        const float y = ((x.v[k] - p.mean[j]) * p.inv[j]) * p.gamma[j] + p.beta[j];
        const bool finite = quantize_loops::is_finite_number(y);
        nonfinite |= !finite;
        signs |= static_cast<uint32_t>(finite && y >= 0.0f) << k;
      }
    }
    call.codes.data[at.row * call.codes.stride + at.col] = static_cast<uint8_t>(signs);
    if (nonfinite && call.flags != nullptr) atomicOr(call.flags, kFlagNonFinite);
    return __popc(signs);
  });
}

void normalize_sign_cuda(const NormalizeSignArgs& args) {
  ensure(!args.norm.x.bf16(), "normalize_sign", "x is bf16, expected fp32");
  const NormalizeSignCall call{args.norm, code_rows(args.codes, args.stride, 1, args.norm.cols), args.flags,
                               args.row_ones, lies_on<4>(args.norm.x.fp32()) && args.norm.cols % 4 == 0};
  if (args.row_ones != nullptr && args.norm.rows > 0)
    fill_async(args.row_ones, 0, 4 * args.norm.rows, current_stream());
  launch(normalize_sign_kernel, cover(args.norm.rows * padded_octets(args.norm.cols), "normalize_sign_cuda"), call);
}

}  // namespace bitgrad::cuda
