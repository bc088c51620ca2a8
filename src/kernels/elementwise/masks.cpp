// Family elementwise: keep masks for dropout, masked gradients, and codes with dropped elements.
#include <algorithm>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/elementwise.h"
#include "kernels/elementwise/floats.h"
#include "kernels/elementwise/loops.h"
#include "kernels/kernel_table.h"

namespace bitgrad::kernels {
namespace {

constexpr int64_t kChunk = 1024;  // elements whose draws or raw codes are kept on the stack, a multiple of 64

// If rows fill whole mask words, the mask is contiguous and is treated as one long row.
std::pair<int64_t, int64_t> longest_rows(int64_t rows, int64_t cols) {
  return cols % 64 == 0 && rows > 0 ? std::pair<int64_t, int64_t>(1, rows * cols) : std::pair(rows, cols);
}

// The raw code that represents `number`: exact for integers, the nearest level (ties to the lower one) for codebooks.
uint64_t raw_of(DType dtype, int32_t number) {
  const DTypeInfo& info = dtype.info();
  if (info.kind != DTypeKind::kCodebook) return encode_int(info, number) & ((1u << info.bits) - 1u);
  const double value = number;
  uint64_t row[1] = {0};
  pack_row(dtype, &value, 1, row);
  return load_raw(row, 0, info.bits);
}

uint64_t repeat(uint64_t raw, int bits) {
  uint64_t word = 0;
  for (int shift = 0; shift + bits <= 64; shift += bits) word |= raw << shift;
  return word;
}

// Codes of 3, 5, 6 or 7 bits, unpacked to bytes.
void drop_by_bytes(DType dtype, int64_t n, const void* in, const uint64_t* mask, uint8_t zero, bool row_ends,
                   void* out) {
  uint8_t raw[kChunk];
  const int bits = dtype.bits();
  for (int64_t c = 0; c < n; c += kChunk) {
    const int64_t count = std::min(kChunk, n - c);
    unpack_row_raw(dtype, in, c, count, raw);
    for (int64_t i = 0; i < count; ++i) {
      if (((mask[(c + i) / 64] >> ((c + i) % 64)) & 1) == 0) raw[i] = zero;
    }
    pack_row_raw(dtype, raw, count, static_cast<char*>(out) + c / 8 * bits, row_ends && c + count == n);
  }
}

}  // namespace

void cpu::apply_mask(const MaskArgs& args) {
  const auto loop = elementwise::loops().apply_mask;
  const auto [rows, cols] = longest_rows(args.rows, args.cols);
  const int64_t words = (cols + 63) / 64;
  for_row_tiles(rows, cols, [&](int64_t r, int64_t c0, int64_t c1) {
    const int64_t at = r * cols + c0;
    const uint64_t* const mask = args.mask + r * words + c0 / 64;
    if (!args.g.bf16() && !args.gx.bf16()) return loop(c1 - c0, args.g.fp32() + at, mask, args.s, args.gx.fp32() + at);
    alignas(64) float piece[kFloatPiece];
    for_pieces(c1 - c0, [&](int64_t i, int64_t n) {
      float* const gx = place_floats(args.gx, at + i, piece);
      loop(n, read_floats(args.g, at + i, n, piece), mask + i / 64, args.s, gx);
      write_floats(args.gx, at + i, n, gx);
    });
  });
}

void cpu::add_hardtanh(int64_t n, const float* a, const float* b, float* y, uint64_t* inside) {
  const auto loop = elementwise::loops().add_hardtanh;
  cut(n, [&](int64_t i, int64_t end) {
    loop(end - i, a + i, b + i, y + i, inside != nullptr ? inside + i / 64 : nullptr);
  });
}

void cpu::times_bits(int64_t n, const float* g, const uint64_t* mask, float* gx) {
  const auto loop = elementwise::loops().times_bits;
  cut(n, [&](int64_t i, int64_t end) { loop(end - i, g + i, mask + i / 64, gx + i); });
}

void cpu::keep_mask(const KeepMaskArgs& args) {
  const auto loop = elementwise::loops().keep_mask;
  const auto [rows, cols] = longest_rows(args.rows, args.cols);
  const int64_t words = (cols + 63) / 64;
  for_row_tiles(rows, cols, [&](int64_t r, int64_t c0, int64_t c1) {
    alignas(64) uint16_t draws[kChunk];
    for (int64_t c = c0; c < c1; c += kChunk) {
      const int64_t count = std::min(kChunk, c1 - c);
      args.stream->fill_bits16(static_cast<uint64_t>(args.first_element + r * cols + c), count, draws);
      std::fill(draws + count, draws + (count + 63) / 64 * 64, uint16_t{0});
      loop(count, draws, args.threshold, args.mask + r * words + c / 64);
    }
  });
}

void cpu::drop_codes(const DropCodesArgs& args) {
  const bool to_ternary = args.from == dtypes::bint1 && args.to == dtypes::ternary;
  ensure(args.to.is_code() && (args.from == args.to || to_ternary), "drop_codes", "no rule from ", args.from.name(),
         " to ", args.to.name());
  const auto& loops = elementwise::loops();
  const int bits = args.to.bits(), in_bits = args.from.bits();
  const bool dense = args.in_stride * 8 == args.cols * in_bits && args.out_stride * 8 == args.cols * bits;
  const auto [rows, cols] =
      dense && args.zero == nullptr ? longest_rows(args.rows, args.cols) : std::pair(args.rows, args.cols);
  const int64_t words = (cols + 63) / 64;
  const uint64_t plain_zero = args.zero == nullptr ? raw_of(args.to, 0) : 0;
  for_row_tiles(rows, cols, [&](int64_t r, int64_t c0, int64_t c1) {
    if (c0 == c1) return;
    const uint64_t zero = args.zero == nullptr ? plain_zero : raw_of(args.to, args.zero[r * args.zero_step]);
    const char* in = static_cast<const char*>(args.in) + r * args.in_stride + c0 / 8 * in_bits;
    char* out = static_cast<char*>(args.out) + r * args.out_stride + c0 / 8 * bits;
    const uint64_t* mask = args.mask + r * words + c0 / 64;
    if (to_ternary) {
      loops.drop_b1_ternary(c1 - c0, in, mask, repeat(zero, bits), out);
    } else if (64 % bits == 0) {
      loops.drop_fields(c1 - c0, bits, in, mask, repeat(zero, bits), out);
    } else {
      drop_by_bytes(args.to, c1 - c0, in, mask, static_cast<uint8_t>(zero), c1 == cols, out);
    }
  });
}

}  // namespace bitgrad::kernels
