// The loops of the small-integer products. A chunk is a block of C of at most 384 x 256; k is walked in blocks, so that
// what is expanded of both operands, with the sums kept between blocks, stays below 1 MiB a thread. Sums are int32
// where they cannot overflow, else int64: there is no limit on K.
#include "kernels/gemm/s8.h"

#include <algorithm>
#include <cstring>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/rows.h"

namespace bitgrad::gemm_detail {
namespace {

constexpr int64_t kBlockRows = 384, kBlockColumns = 256;
constexpr int64_t kBlockRowsWithSums = 192;  // where k needs several blocks, so that sums are kept between them
constexpr int64_t kDepthBytes = 1024;        // of a block of k
constexpr int64_t kStrip = 64;               // free indices expanded at a time

// Range and shift of the bytes of a dtype: number = byte + shift.
struct ByteRange {
  int64_t low, high, shift;
  int64_t magnitude() const { return std::max(-low - shift, high + shift); }
};
ByteRange byte_range(DType dtype) {
  const DTypeInfo& info = dtype.info();
  if (info.kind == DTypeKind::kSign) return {-1, 1, 0};
  if (info.kind == DTypeKind::kUint) {
    return info.bits == 8 ? ByteRange{-128, 127, 128} : ByteRange{0, (int64_t{1} << info.bits) - 1, 0};
  }
  return {-(int64_t{1} << (info.bits - 1)), (int64_t{1} << (info.bits - 1)) - 1, 0};
}

// Bytes of an 8 x 8 block: byte i of row r to byte r of row i (Warren, "Hacker's Delight", 2nd ed., section 7-3, on
// bytes).
void transpose_8x8(const int8_t* in, int64_t in_step, int8_t* out, int64_t out_step, int64_t out_rows) {
  uint64_t row[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&row[r], in + r * in_step, 8);
  const auto exchange = [&](int distance, int shift, uint64_t mask) {
    for (int r = 0; r < 8; ++r) {
      if ((r & distance) != 0) continue;
      const uint64_t t = ((row[r] >> shift) ^ row[r + distance]) & mask;
      row[r + distance] ^= t;
      row[r] ^= t << shift;
    }
  };
  exchange(1, 8, 0x00FF00FF00FF00FFu);
  exchange(2, 16, 0x0000FFFF0000FFFFu);
  exchange(4, 32, 0x00000000FFFFFFFFu);
  for (int r = 0; r < out_rows; ++r) std::memcpy(out + r * out_step, &row[r], 8);
}

// out[f][step]: bytes of free indices f0 .. f0+count (at most kStrip) and k0 .. k0+depth, zero up to `step`, a multiple
// of 8.
void expand_strip(const GemmOperand& x, int64_t f0, int64_t count, int64_t k0, int64_t depth, int8_t* out,
                  int64_t step) {
  if (!x.k_major) {
    for (int64_t f = 0; f < count; ++f) {
      unpack_row_s8(x.dtype, stored_row(x, f0 + f), k0, depth, out + f * step);
      std::memset(out + f * step + depth, 0, static_cast<size_t>(step - depth));
    }
    return;
  }
  int8_t lines[8 * kStrip] = {};
  for (int64_t k = 0; k < step; k += 8) {
    for (int64_t line = 0; line < 8; ++line) {
      if (k + line < depth) {
        unpack_row_s8(x.dtype, stored_row(x, k0 + k + line), f0, count, lines + line * kStrip);
      } else {
        std::memset(lines + line * kStrip, 0, kStrip);
      }
    }
    for (int64_t f = 0; f < count; f += 8) {
      transpose_8x8(lines + f, kStrip, out + f * step + k, step, std::min<int64_t>(8, count - f));
    }
  }
}

int32_t sum_of(const int8_t* codes, int64_t count) {
  int32_t sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += codes[k];
  return sum;
}

void widen(const int8_t* codes, int64_t depth, int64_t step, int32_t shift, int16_t* out) {
  for (int64_t k = 0; k < depth; ++k) out[k] = static_cast<int16_t>(codes[k] + shift);
  std::fill(out + depth, out + step, static_cast<int16_t>(0));
}

// One panel: 32-bit units of 16 rows, `step` bytes apart, side by side.
void put_panel(const void* rows, int64_t step, int64_t units, void* panel) {
  const auto* from = static_cast<const char*>(rows);
  auto* to = static_cast<char*>(panel);
  for (int64_t u = 0; u < units; ++u) {
    for (int64_t lane = 0; lane < kS8Lanes; ++lane)
      std::memcpy(to + (u * kS8Lanes + lane) * 4, from + lane * step + u * 4, 4);
  }
}

// Everything about the call that does not depend on the chunk.
struct Plan {
  const GemmArgs& args;
  const S8Kernel& kernel;
  ByteRange a, b;
  int64_t element, depth, step;  // bytes of an expanded code; k of a block; the same rounded to 8
  int64_t rows, columns;         // of a block of C
  bool zeros;
  double bound;  // of the absolute value of every sum

  Plan(const GemmArgs& args_in, const S8Kernel& kernel_in)
      : args(args_in), kernel(kernel_in), a(byte_range(args.a.dtype)), b(byte_range(args.b.dtype)) {
    element = kernel.words ? 2 : 1;
    depth = std::min(args.k, kDepthBytes / element);
    step = round_up(depth, 8);
    rows = std::min(args.m, several_blocks() ? kBlockRowsWithSums : kBlockRows);
    columns = round_up(std::min(args.n, kBlockColumns), kS8Lanes);
    zeros = args.a.scale.zero != nullptr || args.b.scale.zero != nullptr;
    const auto bound_of = [&](const ByteRange& range, const GemmOperand& x, int64_t free) {
      double zero = 0;
      const int64_t count = x.scale.zero == nullptr ? 0 : x.scale.per_tensor() ? std::min<int64_t>(free, 1) : free;
      for (int64_t f = 0; f < count; ++f) zero = std::max(zero, std::abs(static_cast<double>(x.scale.zero[f])));
      return static_cast<double>(range.magnitude()) + zero;
    };
    bound = static_cast<double>(args.k) * bound_of(a, args.a, args.m) * bound_of(b, args.b, args.n);
  }
  bool several_blocks() const { return args.k > depth; }
  // What is added to bytes of B to make them unsigned.
  int32_t offset_b() const { return kernel.words ? 0 : static_cast<int32_t>(-b.low); }
};

// One block of C on one thread.
template <typename Sum>
class Chunk {
 public:
  Chunk(const Plan& plan, int64_t i0, int64_t j0)
      : plan_(plan),
        args_(plan.args),
        i0_(i0),
        j0_(j0),
        rows_(std::min(plan.rows, args_.m - i0)),
        columns_(std::min(plan.columns, args_.n - j0)),
        memory_(bytes_of(plan)) {
    char* p = memory_.template as<char>();
    const auto take = [&](int64_t bytes) {
      char* const taken = p;
      p += round_up(bytes, 64);
      return taken;
    };
    a_ = take(plan.rows * plan.step * plan.element);
    b_ = take(plan.columns * plan.step * plan.element);
    strip_ = reinterpret_cast<int8_t*>(take(kStrip * plan.step));
    if (plan.several_blocks())
      sums_ = reinterpret_cast<Sum*>(take(plan.rows * plan.columns * static_cast<int64_t>(sizeof(Sum))));
  }

  void run() {
    for (int64_t k0 = 0; k0 < args_.k || k0 == 0; k0 += plan_.depth) {
      const int64_t depth = std::min(plan_.depth, args_.k - k0);
      load_b(k0, depth);
      load_a(k0, depth);
      multiply(depth, k0 == 0, k0 + depth >= args_.k);
      if (depth == 0) break;
    }
  }

 private:
  static int64_t bytes_of(const Plan& plan) {
    const int64_t sums = plan.several_blocks() ? plan.rows * plan.columns * static_cast<int64_t>(sizeof(Sum)) : 0;
    return round_up(plan.rows * plan.step * plan.element, 64) + round_up(plan.columns * plan.step * plan.element, 64) +
           round_up(kStrip * plan.step, 64) + round_up(sums, 64);
  }

  void load_a(int64_t k0, int64_t depth) {
    const int64_t row_bytes = plan_.step * plan_.element, step = round_up(depth, 8);
    for (int64_t s = 0; s < rows_; s += kStrip) {
      const int64_t count = std::min(kStrip, rows_ - s);
      expand_strip(args_.a, i0_ + s, count, k0, depth, strip_, step);
      for (int64_t f = 0; f < count; ++f) {
        const int8_t* codes = strip_ + f * step;
        char* out = a_ + (s + f) * row_bytes;
        const int32_t sum = sum_of(codes, depth);
        row_start_[s + f] = kernel().words ? 0 : (static_cast<int32_t>(plan_.b.shift) - plan_.offset_b()) * sum;
        add(row_sums_[s + f], sum + depth * plan_.a.shift, k0);
        if (kernel().words) {
          widen(codes, depth, step, static_cast<int32_t>(plan_.a.shift), reinterpret_cast<int16_t*>(out));
        } else {
          std::memcpy(out, codes, static_cast<size_t>(step));
        }
      }
    }
  }

  void load_b(int64_t k0, int64_t depth) {
    const int64_t step = round_up(depth, 8);
    for (int64_t s = 0; s < columns_; s += kStrip) {
      const int64_t count = std::min(kStrip, columns_ - s), lanes = round_up(count, kS8Lanes);
      expand_strip(args_.b, j0_ + s, count, k0, depth, strip_, step);
      // Lanes beyond the last column: their sums are not stored, but they must be defined.
      std::memset(strip_ + count * step, 0, static_cast<size_t>((lanes - count) * step));
      for (int64_t f = 0; f < lanes; ++f) {
        const int32_t sum = sum_of(strip_ + f * step, depth) + static_cast<int32_t>(depth * plan_.b.shift);
        column_start_[s + f] = kernel().words ? 0 : static_cast<int32_t>(plan_.a.shift) * sum;
        add(column_sums_[s + f], sum, k0);
      }
      for (int64_t f = 0; f < lanes; f += kS8Lanes) {
        put_lanes(strip_ + f * step, depth, step, b_ + (s + f) / kS8Lanes * panel_bytes());
      }
    }
  }

  // 16 expanded rows of B, as bytes of at least 0 or as words, into a panel.
  void put_lanes(int8_t* codes, int64_t depth, int64_t step, char* panel) const {
    if (!kernel().words) {
      make_unsigned(codes, kS8Lanes * step);
      return put_panel(codes, step, step / 4, panel);
    }
    int16_t words[kS8Lanes * kDepthBytes / 2];
    for (int64_t lane = 0; lane < kS8Lanes; ++lane) {
      widen(codes + lane * step, depth, step, static_cast<int32_t>(plan_.b.shift), words + lane * step);
    }
    put_panel(words, 2 * step, step / 2, panel);
  }

  // b = qb - shift_b + offset: 0 or more. With a shift (uint8), qb itself.
  void make_unsigned(int8_t* codes, int64_t count) const {
    const uint8_t offset = static_cast<uint8_t>(plan_.offset_b());
    for (int64_t k = 0; k < count; ++k) codes[k] = static_cast<int8_t>(static_cast<uint8_t>(codes[k]) + offset);
  }

  void multiply(int64_t depth, bool first, bool last) {
    const int64_t width = kernel().panels * kS8Lanes;
    S8Tile tile{};
    tile.a_step = plan_.step * plan_.element;
    tile.b_step = panel_bytes();
    tile.units = round_up(depth, 8) * plan_.element / 4;
    int32_t out[6 * kS8TileColumns];
    tile.out = out;
    for (int64_t j = 0; j < columns_; j += width) {
      const int64_t columns = std::min(width, columns_ - j);
      tile.b = b_ + j / kS8Lanes * panel_bytes();
      tile.column_start = column_start_ + j;
      for (int64_t i = 0; i < rows_; i += kernel().rows) {
        const int64_t rows = std::min<int64_t>(kernel().rows, rows_ - i);
        tile.a = a_ + i * tile.a_step;
        tile.row_start = row_start_ + i;
        kernel().tile(static_cast<int>(rows), static_cast<int>(ceil_div(columns, kS8Lanes)), tile);
        for (int64_t r = 0; r < rows; ++r) take_row(i + r, j, columns, out + r * kS8TileColumns, first, last);
      }
    }
  }

  // The sums of one block of k for a piece of a row of C.
  void take_row(int64_t i, int64_t j, int64_t columns, int32_t* block, bool first, bool last) {
    if (first && last && !plan_.zeros) return finish_row(args_, i0_ + i, j0_ + j, columns, block);
    Sum line[kS8TileColumns];
    Sum* sums = first && last ? line : sums_ + i * plan_.columns + j;
    for (int64_t c = 0; c < columns; ++c) sums[c] = first ? block[c] : sums[c] + block[c];
    if (!last) return;
    if (plan_.zeros) correct_zeros(i, j, columns, sums);
    finish_row(args_, i0_ + i, j0_ + j, columns, sums);
  }

  void correct_zeros(int64_t i, int64_t j, int64_t columns, Sum* sums) const {
    const Sum za = free_zero(args_.a, i0_ + i);
    const Sum row = row_sums_[i] - static_cast<Sum>(args_.k) * za;
    for (int64_t c = 0; c < columns; ++c) sums[c] -= za * column_sums_[j + c] + row * free_zero(args_.b, j0_ + j + c);
  }

  static void add(Sum& sum, int64_t x, int64_t k0) { sum = static_cast<Sum>(k0 == 0 ? x : sum + x); }
  const S8Kernel& kernel() const { return plan_.kernel; }
  int64_t panel_bytes() const { return kS8Lanes * plan_.step * plan_.element; }

  const Plan& plan_;
  const GemmArgs& args_;
  const int64_t i0_, j0_, rows_, columns_;
  const Workspace memory_;
  char *a_, *b_;
  int8_t* strip_;
  Sum* sums_ = nullptr;
  int32_t row_start_[kBlockRows], column_start_[kBlockColumns];
  Sum row_sums_[kBlockRows], column_sums_[kBlockColumns];
};

}  // namespace

bool s8_supports(const GemmArgs& args) {
  return has_small_integer_codes(args.a.dtype) && has_small_integer_codes(args.b.dtype) && gemm_is_integer(args) &&
         integer_output_supported(args);
}

void s8_gemm(const GemmArgs& args, const S8Kernel& kernel) {
  if (args.m == 0 || args.n == 0) return;
  const Plan plan(args, kernel);
  // Zero points far outside any code range: sums need more than 64 bits.
  if (plan.bound > 0x1p62) return gemm_rows_detail::gemm_int_scalar(args);
  const bool wide = plan.bound > 0x7FFFFFFFp0;
  const int64_t column_chunks = ceil_div(args.n, plan.columns);
  parallel_for(ceil_div(args.m, plan.rows) * column_chunks, [&](int64_t chunk) {
    const int64_t i0 = chunk / column_chunks * plan.rows, j0 = chunk % column_chunks * plan.columns;
    wide ? Chunk<int64_t>(plan, i0, j0).run() : Chunk<int32_t>(plan, i0, j0).run();
  });
}

double s8_cost(const GemmArgs& args, double gmacs, double expand) {
  constexpr double kCall = 600, kOutput = 0.15;
  const double k = static_cast<double>(round_up(args.k, 8)), columns = static_cast<double>(round_up(args.n, kS8Lanes));
  const double m = static_cast<double>(args.m), n = static_cast<double>(args.n);
  // Each block of C expands its rows of A and B anew.
  const double expanded = k * (m * static_cast<double>(ceil_div(args.n, kBlockColumns)) +
                               n * static_cast<double>(ceil_div(args.m, kBlockRows)));
  return kCall + expand * expanded + kOutput * m * n + m * columns * k / gmacs;
}

}  // namespace bitgrad::gemm_detail
