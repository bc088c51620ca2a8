// Family elementwise: keep masks of dropout, masked gradients, and codes with dropped elements (contracts:
// kernels/elementwise.h).
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "cuda/device/philox.h"
#include "cuda/device/vectors.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"

namespace bitgrad::cuda {

// ---- apply_mask
template <int N, typename G, typename Gx>
BITGRAD_GLOBAL void apply_mask_kernel(MaskArgs p, const G* from, Gx* to) {
  const int64_t n = p.rows * p.cols, words = (p.cols + 63) / 64;
  for (int64_t i = N * thread_index(); i < n; i += N * thread_count()) {
    const Cell at = p.rows == 1 ? Cell{0, i} : cell_of(i, p.cols);
    const uint64_t bits = p.mask[at.row * words + at.col / 64] >> (at.col % 64);
    const Pack<float, N> g = load_floats<N>(from + i);
    Pack<float, N> gx;
    for (int k = 0; k < N; ++k) gx.v[k] = ((bits >> k) & 1) != 0 ? g.v[k] * p.s : 0.0f;
    store_floats<N>(to + i, gx);
  }
}

// ---- keep_mask: one thread per byte of the mask, whose eight elements may share a block of draws
BITGRAD_GLOBAL void keep_mask_kernel(KeepMaskArgs p, RandomStream stream, int64_t bytes_per_row) {
  auto* const mask = reinterpret_cast<uint8_t*>(p.mask);
  for (int64_t i = thread_index(); i < p.rows * bytes_per_row; i += thread_count()) {
    const Cell at = p.rows == 1 ? Cell{0, i} : cell_of(i, bytes_per_row);
    const int64_t col = at.col * 8;
    uint32_t bits = 0;
    if (col < p.cols && p.threshold <= 0xFFFFu) {
      const Draws8 draws = draws8(stream, static_cast<uint64_t>(p.first_element + at.row * p.cols + col));
      for (int k = 0; k < 8; ++k) bits |= static_cast<uint32_t>(col + k < p.cols && draws.v[k] >= p.threshold) << k;
    }
    mask[i] = static_cast<uint8_t>(bits);
  }
}

// ---- drop_codes: one thread per word of codes
struct DropCodes {
  int64_t rows, cols, words;  // words per row of `out`
  const uint64_t* in;
  int64_t in_stride;  // words
  const uint64_t* mask;
  int64_t mask_stride;
  const int32_t* zero;
  int64_t zero_step;
  uint32_t plain_zero;  // raw code of zero if `zero` is nullptr
  uint64_t* out;
  int64_t out_stride;
  int bits;
  bool spread;  // `in` has one bit per code: 1 -> 01, 0 -> 11
};

// Expands one-bit codes to a word of two-bit codes: 01 for bit 1, 11 for bit 0.
BITGRAD_DEVICE inline uint64_t ternary_word(uint32_t signs) {
  uint64_t minus = static_cast<uint32_t>(~signs);
  minus = (minus | (minus << 16)) & 0x0000FFFF0000FFFFull;
  minus = (minus | (minus << 8)) & 0x00FF00FF00FF00FFull;
  minus = (minus | (minus << 4)) & 0x0F0F0F0F0F0F0F0Full;
  minus = (minus | (minus << 2)) & 0x3333333333333333ull;
  minus = (minus | (minus << 1)) & 0x5555555555555555ull;
  return 0x5555555555555555ull | (minus << 1);
}

// x << by, or x >> -by for by < 0.
BITGRAD_DEVICE inline uint64_t shifted(uint64_t x, int by) { return by >= 0 ? x << by : x >> -by; }

BITGRAD_GLOBAL void drop_codes_kernel(DropCodes p) {
  const uint64_t field = (1u << p.bits) - 1u;
  for (int64_t i = thread_index(); i < p.rows * p.words; i += thread_count()) {
    const Cell at = cell_of(i, p.words);
    const uint64_t zero =
        (p.zero == nullptr ? p.plain_zero : static_cast<uint32_t>(p.zero[at.row * p.zero_step])) & field;
    const uint64_t* const mask = p.mask + at.row * p.mask_stride;
    const uint64_t* const in = p.in + at.row * p.in_stride;
    const uint64_t codes =
        p.spread ? ternary_word(static_cast<uint32_t>(in[at.col / 2] >> (32 * (at.col % 2)))) : in[at.col];
    // The codes with bits in this word. The first and last may extend into the adjacent words.
    const int64_t first = at.col * 64 / p.bits;
    uint64_t keep = 0, zeros = 0;
    for (int64_t j = first; j < p.cols && j * p.bits < (at.col + 1) * 64; ++j) {
      const int by = static_cast<int>(j * p.bits - at.col * 64);
      if (((mask[j / 64] >> (j % 64)) & 1) != 0)
        keep |= shifted(field, by);
      else
        zeros |= shifted(zero, by);
    }
    p.out[at.row * p.out_stride + at.col] = (codes & keep) | zeros;
  }
}

// ---- launches
// Rows of whole words are contiguous and treated as one long row.
template <typename Args>
Args longest_rows(Args args) {
  if (args.cols % 64 == 0 && args.rows > 0) {
    args.cols *= args.rows;
    args.rows = 1;
  }
  return args;
}

void apply_mask_cuda(const MaskArgs& args) {
  const MaskArgs p = longest_rows(args);
  const auto run = [&]<typename G, typename Gx>(const G* g, Gx* gx) {
    const bool four = p.cols % 4 == 0 && lies_on<4>(g) && lies_on<4>(gx);
    const LaunchShape shape = cover(ceil_div(p.rows * p.cols, four ? 4 : 1), "apply_mask_cuda");
    launch(four ? apply_mask_kernel<4, G, Gx> : apply_mask_kernel<1, G, Gx>, shape, p, g, gx);
  };
  with_elements(p.g, [&](const auto* g) { with_elements(p.gx, [&](auto* gx) { run(g, gx); }); });
}

void keep_mask_cuda(const KeepMaskArgs& args) {
  const RandomStream stream = *args.stream;
  KeepMaskArgs p = longest_rows(args);
  p.stream = nullptr;  // a host pointer
  const int64_t bytes_per_row = (p.cols + 63) / 64 * 8;
  launch(keep_mask_kernel, cover(p.rows * bytes_per_row, "keep_mask_cuda"), p, stream, bytes_per_row);
}

// Raw code of the value 0.
uint32_t raw_zero(DType dtype) {
  const DTypeInfo& info = dtype.info();
  if (info.kind != DTypeKind::kCodebook) return static_cast<uint32_t>(encode_int(info, 0));
  const double number = 0;
  uint64_t row[1] = {0};
  pack_row(dtype, &number, 1, row);
  return load_raw(row, 0, info.bits);
}

void drop_codes_cuda(const DropCodesArgs& args) {
  const DTypeKind kind = args.to.kind();
  const bool spread = args.from == dtypes::bint1 && args.to == dtypes::ternary;
  ensure(args.to.is_code() && (args.from == args.to || spread), "drop_codes", "no rule from ", args.from.name(), " to ",
         args.to.name());
  ensure(args.zero == nullptr || kind == DTypeKind::kInt || kind == DTypeKind::kUint, "drop_codes",
         "zero points of codes ", args.to.name(), " of kind ", kind_name(kind));
  DropCodes p{};
  p.rows = args.rows;
  p.cols = args.cols;
  p.bits = args.to.bits();
  p.words = (args.cols * p.bits + 63) / 64;
  p.in = static_cast<const uint64_t*>(args.in);
  p.in_stride = args.in_stride / 8;
  p.mask = args.mask;
  p.mask_stride = (args.cols + 63) / 64;
  p.zero = args.zero;
  p.zero_step = args.zero_step;
  p.plain_zero = args.zero == nullptr ? raw_zero(args.to) : 0;
  p.out = static_cast<uint64_t*>(args.out);
  p.out_stride = args.out_stride / 8;
  p.spread = spread;
  launch(drop_codes_kernel, cover(p.rows * p.words, "drop_codes_cuda"), p);
}

}  // namespace bitgrad::cuda
