// Family quantize: int8 codes of a gradient, with one scale per row and with one per column (docs/numerics.md section
// 5). Two sweeps over x: the first finds the maxima for both orders, the second writes the codes of both. A maximum
// does not depend on order and the draws are numbered, so any cut gives the same bits.
#include <algorithm>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/kernel_table.h"
#include "kernels/quantize/loops.h"

namespace bitgrad::kernels {
namespace {

using quantize_loops::loops;
using quantize_loops::QuantizeLoops;

constexpr int64_t kOrdersBlock = 1 << 16, kMaxChunks = 64;
constexpr int64_t kPiece = 2048;  // elements whose values and draws are kept on the stack
constexpr int32_t kInfinity = 0x7F800000;
constexpr float kQmax = 127.0f, kEps = 0x1p-126f;

struct Cut {
  int64_t rows, chunks;  // rows per chunk
  explicit Cut(const Int8OrdersArgs& args) {
    rows = std::max<int64_t>(1, kOrdersBlock / std::max<int64_t>(1, args.cols));
    rows = std::max(rows, (args.rows + kMaxChunks - 1) / kMaxChunks);
    chunks = (args.rows + rows - 1) / rows;
  }
};

// Values [r, c .. c + n) as floats.
const float* numbers(const Int8OrdersArgs& args, int64_t r, int64_t c, int64_t n, float* scratch) {
  const int64_t at = r * args.cols + c;
  if (!args.bf16) return static_cast<const float*>(args.x) + at;
  from_bf16(n, static_cast<const uint16_t*>(args.x) + at, scratch);
  return scratch;
}

float scale_of(int32_t bits) { return std::max(__builtin_bit_cast(float, bits) / kQmax, kEps); }

// Number of rows that one sweep treats as a single row; 1 if rows are long or have their own factors or scales.
int64_t rows_together(const Int8OrdersArgs& args) {
  const Int8Order& b = args.by_column;
  const bool plain = args.by_row.codes == nullptr && b.codes != nullptr && b.fold == nullptr && b.stride == args.cols;
  return plain && args.cols > 0 ? std::max<int64_t>(1, kPiece / args.cols) : 1;
}

// Calls sweep(r, n) for chunk k: row r and those after it, n values in all.
template <typename Sweep>
void for_rows_together(const Int8OrdersArgs& args, const Cut& cut, int64_t k, int64_t together, Sweep&& sweep) {
  const int64_t end = std::min(args.rows, (k + 1) * cut.rows);
  for (int64_t r = k * cut.rows; r < end; r += together) sweep(r, std::min(together, end - r) * args.cols);
}

void find_largest_together(const Int8OrdersArgs& args, const Cut& cut, int64_t k, int64_t together, int32_t* line) {
  float scratch[kPiece];
  int32_t wide[kPiece] = {};
  for_rows_together(args, cut, k, together, [&](int64_t r, int64_t n) {
    loops().largest_of_columns(n, numbers(args, r, 0, n, scratch), 1.0f, wide);
  });
  std::fill(line, line + args.cols, 0);
  for (int64_t i = 0; i < together; ++i)
    for (int64_t c = 0; c < args.cols; ++c) line[c] = std::max(line[c], wide[i * args.cols + c]);
}

void write_codes_together(const Int8OrdersArgs& args, const Cut& cut, int64_t k, int64_t together,
                          const float* inverse) {
  const Int8Order& b = args.by_column;
  float scratch[kPiece], wide[kPiece];
  alignas(64) uint16_t draws[kPiece];
  for (int64_t i = 0; i < together; ++i) std::copy_n(inverse, args.cols, wide + i * args.cols);
  for_rows_together(args, cut, k, together, [&](int64_t r, int64_t n) {
    const int64_t at = r * args.cols;
    if (b.sr != nullptr) b.sr->fill_bits16(static_cast<uint64_t>(b.first_element + at), n, draws);
    loops().int8_columns(n, numbers(args, r, 0, n, scratch), 1.0f, wide, b.sr == nullptr ? nullptr : draws,
                         b.codes + at);
  });
}

// Finds the largest bit pattern in each row of chunk `k`, and in each column (in `line`).
void find_largest(const Int8OrdersArgs& args, const Cut& cut, int64_t k, int32_t* rows, int32_t* line) {
  if (const int64_t together = rows_together(args); together > 1)
    return find_largest_together(args, cut, k, together, line);
  const QuantizeLoops& loop = loops();
  const Int8Order &a = args.by_row, &b = args.by_column;
  float scratch[kPiece];
  if (line != nullptr) std::fill(line, line + args.cols, 0);
  for (int64_t r = k * cut.rows; r < std::min(args.rows, (k + 1) * cut.rows); ++r) {
    int32_t top = 0;
    for (int64_t c = 0; c < args.cols; c += kPiece) {
      const int64_t n = std::min(kPiece, args.cols - c);
      const float* x = numbers(args, r, c, n, scratch);
      if (rows != nullptr) top = std::max(top, loop.largest_of_row(n, x, a.fold == nullptr ? nullptr : a.fold + c));
      if (line != nullptr) loop.largest_of_columns(n, x, b.fold == nullptr ? 1.0f : b.fold[r], line + c);
    }
    if (rows != nullptr) rows[r] = top;
  }
}

// Computes scales and their inverses from the largest bit patterns; returns false if one is not finite.
bool scales_of(const int32_t* bits, int64_t n, float* scales, float* inverses) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    finite &= bits[i] < kInfinity;
    scales[i] = scale_of(bits[i]);
    inverses[i] = 1.0f / scales[i];
  }
  return finite;
}

void write_codes(const Int8OrdersArgs& args, const Cut& cut, int64_t k, const float* row_inverse,
                 const float* column_inverse) {
  if (const int64_t together = rows_together(args); together > 1)
    return write_codes_together(args, cut, k, together, column_inverse);
  const QuantizeLoops& loop = loops();
  const Int8Order &a = args.by_row, &b = args.by_column;
  float scratch[kPiece];
  alignas(64) uint16_t draws[kPiece];
  const auto drawn = [&](const Int8Order& order, int64_t r, int64_t c, int64_t n) -> const uint16_t* {
    if (order.sr == nullptr) return nullptr;
    order.sr->fill_bits16(static_cast<uint64_t>(order.first_element + r * args.cols + c), n, draws);
    return draws;
  };
  for (int64_t r = k * cut.rows; r < std::min(args.rows, (k + 1) * cut.rows); ++r) {
    for (int64_t c = 0; c < args.cols; c += kPiece) {
      const int64_t n = std::min(kPiece, args.cols - c);
      const float* x = numbers(args, r, c, n, scratch);
      if (a.codes != nullptr)
        loop.int8_row(n, x, a.fold == nullptr ? nullptr : a.fold + c, row_inverse[r], drawn(a, r, c, n),
                      a.codes + r * a.stride + c);
      if (b.codes != nullptr)
        loop.int8_columns(n, x, b.fold == nullptr ? 1.0f : b.fold[r], column_inverse + c, drawn(b, r, c, n),
                          b.codes + r * b.stride + c);
    }
    for (const Int8Order* order : {&a, &b})
      if (order->codes != nullptr)
        std::fill(order->codes + r * order->stride + args.cols, order->codes + (r + 1) * order->stride, int8_t{0});
  }
}

}  // namespace

bool cpu::quantize_int8_orders(const Int8OrdersArgs& args) {
  ensure(!args.by_row.turned && !args.by_column.turned, "quantize_int8_orders",
         "transposed output is not supported on the CPU");
  const Cut cut(args);
  const bool by_row = args.by_row.codes != nullptr, by_column = args.by_column.codes != nullptr;
  // Largest bit patterns and inverses of scales, of rows and of columns: the latter per chunk.
  const int64_t lines = by_column ? std::max<int64_t>(1, cut.chunks) : 0, line = by_column ? args.cols : 0;
  const Workspace memory((2 * args.rows + lines * line + line) * static_cast<int64_t>(sizeof(int32_t)));
  int32_t *const rows = memory.as<int32_t>(), *const columns = rows + args.rows;
  float *const row_inverse = reinterpret_cast<float*>(columns + lines * line), *const column_inverse =
                                                                                   row_inverse + args.rows;
  if (cut.chunks == 0 && by_column) std::fill(columns, columns + args.cols, 0);
  parallel_for(cut.chunks, [&](int64_t k) {
    find_largest(args, cut, k, by_row ? rows : nullptr, by_column ? columns + k * args.cols : nullptr);
  });
  if (by_column)
    for (int64_t k = 1; k < cut.chunks; ++k)
      for (int64_t c = 0; c < args.cols; ++c) columns[c] = std::max(columns[c], columns[k * args.cols + c]);
  bool finite = true;
  if (by_row) finite &= scales_of(rows, args.rows, args.by_row.scales, row_inverse);
  if (by_column) finite &= scales_of(columns, args.cols, args.by_column.scales, column_inverse);
  if (!finite) {
    if (args.flags != nullptr) *args.flags |= kFlagNonFinite;
    return false;
  }
  parallel_for(cut.chunks, [&](int64_t k) { write_codes(args, cut, k, row_inverse, column_inverse); });
  return true;
}

}  // namespace bitgrad::kernels
