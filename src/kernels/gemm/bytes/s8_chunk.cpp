// The loops of the small-integer products with a single exact sum, or with one sum per large group of k. k is processed
// in blocks, so that the expanded operands and the sums kept between blocks stay below 1 MiB per thread. Sums are int32
// where they cannot overflow, otherwise int64, so K is not limited.
#include <algorithm>
#include <cstring>

#include "bitgrad/base/memory.h"
#include "kernels/gemm/bytes/s8.h"
#include "kernels/gemm/common/epilogue.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// Computes one block of C on one thread.
template <typename Sum>
class Chunk {
 public:
  Chunk(const S8Plan& plan, int64_t i0, int64_t j0)
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
      p += bytes;
      return taken;
    };
    a_ = take(codes_bytes(plan, plan.rows));
    b_ = take(codes_bytes(plan, plan.columns));
    strip_ = reinterpret_cast<int8_t*>(take(strip_bytes(plan)));
    sums_ = reinterpret_cast<Sum*>(take(sums_bytes(plan)));
    t_ = reinterpret_cast<float*>(take(t_bytes(plan)));
  }

  void run() {
    if (plan_.kind != IntegerProduct::kGroups) return sum(0, args_.k);
    std::fill(t_, t_ + plan_.rows * plan_.columns, 0.0f);
    const int64_t group = std::max<int64_t>(1, plan_.group);
    for (int64_t k = 0; k < args_.k; k += group) sum(k, std::min(args_.k, k + group));
    for (int64_t i = 0; i < rows_; ++i) finish_groups(args_, i0_ + i, j0_, columns_, t_ + i * plan_.columns);
  }

 private:
  static int64_t codes_bytes(const S8Plan& plan, int64_t count) {
    return round_up(count * plan.step * plan.element, 64);
  }
  static int64_t strip_bytes(const S8Plan& plan) { return kStrip * plan.step; }
  static int64_t sums_bytes(const S8Plan& plan) {
    return plan.several_blocks() ? round_up(plan.rows * plan.columns * static_cast<int64_t>(sizeof(Sum)), 64) : 0;
  }
  static int64_t t_bytes(const S8Plan& plan) {
    return plan.kind == IntegerProduct::kGroups ? plan.rows * plan.columns * 4 : 0;
  }
  static int64_t bytes_of(const S8Plan& plan) {
    return codes_bytes(plan, plan.rows) + codes_bytes(plan, plan.columns) + strip_bytes(plan) + sums_bytes(plan) +
           t_bytes(plan);
  }

  // Computes the sums over [begin, end) and passes them on when they are complete.
  void sum(int64_t begin, int64_t end) {
    begin_ = begin;
    end_ = end;
    for (int64_t k0 = begin; k0 < end || k0 == begin; k0 += plan_.depth) {
      const int64_t depth = std::min(plan_.depth, end - k0);
      load_b(k0, depth);
      load_a(k0, depth);
      multiply(depth, k0 == begin, k0 + depth >= end);
      if (depth == 0) break;
    }
  }

  void load_a(int64_t k0, int64_t depth) {
    const int64_t row_bytes = plan_.step * plan_.element, step = round_up(depth, 8);
    for (int64_t s = 0; s < rows_; s += kStrip) {
      const int64_t count = std::min(kStrip, rows_ - s);
      expand_strip(args_.a, i0_ + s, count, k0, depth, strip_, step);
      for (int64_t f = 0; f < count; ++f) {
        const int8_t* codes = strip_ + f * step;
        const int64_t sum = sum_of(codes, depth) + depth * plan_.a.shift;
        row_start_[s + f] = static_cast<int32_t>(plan_.cb * sum);
        add(row_sums_[s + f], sum, k0);
        plan_.put_a(codes, depth, step, a_ + (s + f) * row_bytes);
      }
    }
  }

  void load_b(int64_t k0, int64_t depth) {
    const int64_t step = round_up(depth, 8);
    for (int64_t s = 0; s < columns_; s += kStrip) {
      const int64_t count = std::min(kStrip, columns_ - s), lanes = round_up(count, kS8Lanes);
      expand_strip(args_.b, j0_ + s, count, k0, depth, strip_, step);
      // Lanes beyond the last column: their sums are not stored, but they must be initialized.
      std::memset(strip_ + count * step, 0, static_cast<size_t>((lanes - count) * step));
      for (int64_t f = 0; f < lanes; ++f) {
        const int64_t bytes = sum_of(strip_ + f * step, depth);
        column_start_[s + f] = static_cast<int32_t>(plan_.ca * bytes);
        add(column_sums_[s + f], bytes + depth * plan_.b.shift, k0);
      }
      for (int64_t f = 0; f < lanes; f += kS8Lanes) {
        put_lanes(strip_ + f * step, depth, step, b_ + (s + f) / kS8Lanes * panel_bytes());
      }
    }
  }

  // Packs 16 expanded rows of B into a panel.
  void put_lanes(const int8_t* codes, int64_t depth, int64_t step, char* panel) const {
    if (!kernel().words) return put_panel(codes, step, step / 4, panel);
    int16_t words[kS8Lanes * kDepthBytes / 2];
    for (int64_t lane = 0; lane < kS8Lanes; ++lane) {
      widen(codes + lane * step, depth, step, static_cast<int32_t>(plan_.b.shift), words + lane * step);
    }
    put_panel(words, 2 * step, step / 2, panel);
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

  // Consumes the sums of one block of k for part of a row of C.
  void take_row(int64_t i, int64_t j, int64_t columns, int32_t* block, bool first, bool last) {
    const bool plain = plan_.kind == IntegerProduct::kPlain;
    if (first && last && plain && !plan_.zeros && args_.row_minus == nullptr)
      return finish_row(args_, i0_ + i, j0_ + j, columns, block);
    Sum line[kS8TileColumns];
    Sum* sums = first && last ? line : sums_ + i * plan_.columns + j;
    for (int64_t c = 0; c < columns; ++c) sums[c] = first ? block[c] : sums[c] + block[c];
    if (!last) return;
    if (plan_.zeros) correct_zeros(i, j, columns, sums);
    if (plain) {
      const Sum minus = args_.row_minus == nullptr ? 0 : static_cast<Sum>(args_.row_minus[i0_ + i]);
      for (int64_t c = 0; c < columns; ++c) sums[c] -= minus;
      return finish_row(args_, i0_ + i, j0_ + j, columns, sums);
    }
    if (plan_.kind == IntegerProduct::kGroups)
      return add_group(args_, i0_ + i, j0_ + j, columns, begin_, sums, row_sum(i), t_ + i * plan_.columns + j);
    Sum sum_b[kS8TileColumns];
    for (int64_t c = 0; c < columns; ++c) sum_b[c] = column_sums_[j + c] - static_cast<Sum>(args_.k) * zero_b(j + c);
    finish_offsets(args_, i0_ + i, j0_ + j, columns, sums, row_sum(i), sum_b);
  }

  void correct_zeros(int64_t i, int64_t j, int64_t columns, Sum* sums) const {
    const Sum za = zero_a(i), row = row_sum(i);
    for (int64_t c = 0; c < columns; ++c) sums[c] -= za * column_sums_[j + c] + row * zero_b(j + c);
  }

  Sum zero_a(int64_t i) const { return zero_at(args_.a, free_param(args_.a, i0_ + i)); }
  Sum zero_b(int64_t j) const {
    const GemmOperand& b = args_.b;
    if (b.scale.zero == nullptr) return 0;
    return b.scale.zero[plan_.kind == IntegerProduct::kGroups ? param_at(b, j0_ + j, begin_) : free_param(b, j0_ + j)];
  }
  // sum of qa - za
  Sum row_sum(int64_t i) const { return row_sums_[i] - static_cast<Sum>(end_ - begin_) * zero_a(i); }

  void add(Sum& sum, int64_t x, int64_t k0) const { sum = static_cast<Sum>(k0 == begin_ ? x : sum + x); }
  const S8Kernel& kernel() const { return plan_.kernel; }
  int64_t panel_bytes() const { return kS8Lanes * plan_.step * plan_.element; }

  const S8Plan& plan_;
  const GemmArgs& args_;
  const int64_t i0_, j0_, rows_, columns_;
  const Workspace memory_;
  char *a_, *b_;
  int8_t* strip_;
  Sum* sums_;
  float* t_;
  int64_t begin_ = 0, end_ = 0;  // of the current sums
  int32_t row_start_[kBlockRows], column_start_[kBlockColumns];
  Sum row_sums_[kBlockRows], column_sums_[kBlockColumns];
};

}  // namespace

void run_s8_chunk(const S8Plan& plan, int64_t i0, int64_t j0) {
  plan.bound > 0x7FFFFFFFp0 ? Chunk<int64_t>(plan, i0, j0).run() : Chunk<int32_t>(plan, i0, j0).run();
}

}  // namespace bitgrad::kernels::gemm_detail
