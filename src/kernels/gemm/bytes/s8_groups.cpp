// The loops of the small-integer products with a scale per small group of k. A tile processes the groups of a block of
// k and keeps the exact sum of the current group and the scaled sums t in registers. For a group of L contracted
// indices:
//
//   sum (qa - za)(qb - zb) = sum a b + ca sum b - za (sum qb - L zb) + sum qa (cb - zb)
// `start` is ca sum b, plus -za (..) if za is a single value. The other terms are products of 16-bit words,
// x = (-za, sum qa) and y = (sum qb - L zb, cb - zb). A group takes (8 + 4 units) bytes per row of A and (256 / 16 + 4
// units) bytes per column of B; together with t this is below 1 MiB per thread.
#include <algorithm>
#include <cstring>

#include "bitgrad/base/memory.h"
#include "kernels/gemm/bytes/s8.h"
#include "kernels/gemm/common/epilogue.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

static_assert(sizeof(S8GroupOfA) == 8 && sizeof(S8GroupOfB) == 256);

// Computes one block of C on one thread.
class Groups {
 public:
  Groups(const S8Plan& plan, int64_t i0, int64_t j0)
      : plan_(plan),
        args_(plan.args),
        i0_(i0),
        j0_(j0),
        rows_(std::min(plan.rows, args_.m - i0)),
        columns_(std::min(plan.columns, args_.n - j0)),
        padded_(padded_group(plan.group, plan.element)),
        most_groups_(ceil_div(plan.depth, plan.group)),
        group_a_(static_cast<int64_t>(sizeof(S8GroupOfA)) + padded_ * plan.element),
        group_b_(static_cast<int64_t>(sizeof(S8GroupOfB)) + padded_ * plan.element * kS8Lanes),
        strip_step_(round_up(most_groups_ * padded_, 8)),
        zeros_per_row_(args_.a.scale.zero != nullptr && !args_.a.scale.per_tensor()),
        row_sums_(args_.b.scale.zero != nullptr || plan.cb != 0),
        memory_(t_bytes() + a_bytes() + b_bytes() + kStrip * strip_step_) {
    char* p = memory_.as<char>();
    t_ = reinterpret_cast<float*>(p);
    b_ = p + t_bytes();
    a_ = b_ + b_bytes();
    strip_ = reinterpret_cast<int8_t*>(a_ + a_bytes());
  }

  void run() {
    std::fill(t_, t_ + rows_ * plan_.columns, 0.0f);
    for (int64_t k0 = 0; k0 < args_.k; k0 += plan_.depth) {
      const int64_t depth = std::min(plan_.depth, args_.k - k0);
      load_b(k0, depth);
      load_a(k0, depth);
      multiply(ceil_div(depth, plan_.group));
    }
    for (int64_t i = 0; i < rows_; ++i) finish_groups(args_, i0_ + i, j0_, columns_, t_ + i * plan_.columns);
  }

 private:
  int64_t t_bytes() const { return plan_.rows * plan_.columns * 4; }
  int64_t a_bytes() const { return round_up(plan_.rows * most_groups_ * group_a_, 64); }
  int64_t b_bytes() const { return plan_.columns / kS8Lanes * most_groups_ * group_b_; }

  // Expands the codes of free indices f0 .. f0+count to the strip. Each group starts at a multiple of padded_, with
  // zeros in between.
  void expand(const GemmOperand& x, int64_t f0, int64_t count, int64_t k0, int64_t depth) {
    expand_strip(x, f0, count, k0, depth, strip_, strip_step_);
    if (padded_ == plan_.group) return;
    for (int64_t f = 0; f < count; ++f) {
      int8_t* row = strip_ + f * strip_step_;
      for (int64_t g = ceil_div(depth, plan_.group) - 1; g >= 0; --g) {
        const int64_t length = length_of(g, depth);
        std::memmove(row + g * padded_, row + g * plan_.group, static_cast<size_t>(length));
        std::memset(row + g * padded_ + length, 0, static_cast<size_t>(padded_ - length));
      }
    }
  }
  int64_t length_of(int64_t g, int64_t depth) const { return std::min(plan_.group, depth - g * plan_.group); }

  void load_a(int64_t k0, int64_t depth) {
    const bool sums = row_sums_ || args_.b.scale.offset != nullptr;
    for (int64_t s = 0; s < rows_; s += kStrip) {
      const int64_t count = std::min(kStrip, rows_ - s);
      expand(args_.a, i0_ + s, count, k0, depth);
      for (int64_t f = 0; f < count; ++f) {
        const int64_t za = zero_at(args_.a, free_param(args_.a, i0_ + s + f));
        char* to = a_ + (s + f) * most_groups_ * group_a_;
        for (int64_t g = 0; g * plan_.group < depth; ++g, to += group_a_) {
          const int8_t* codes = strip_ + f * strip_step_ + g * padded_;
          const int64_t length = length_of(g, depth);
          const int64_t sum = sums ? sum_of(codes, length) + length * plan_.a.shift : 0;
          S8GroupOfA head{};
          head.x[0] = static_cast<int16_t>(zeros_per_row_ ? -za : 0);
          head.x[1] = static_cast<int16_t>(row_sums_ ? sum : 0);
          head.sum = static_cast<float>(sum - length * za);
          std::memcpy(to, &head, sizeof(head));
          plan_.put_a(codes, length, padded_, to + sizeof(head));
        }
      }
    }
  }

  void load_b(int64_t k0, int64_t depth) {
    for (int64_t s = 0; s < columns_; s += kStrip) {
      const int64_t count = std::min(kStrip, columns_ - s), lanes = round_up(count, kS8Lanes);
      expand(args_.b, j0_ + s, count, k0, depth);
      // Lanes beyond the last column: their sums are not stored, but they must be initialized.
      std::memset(strip_ + count * strip_step_, 0, static_cast<size_t>((lanes - count) * strip_step_));
      for (int64_t f = 0; f < lanes; f += kS8Lanes) load_panel(s + f, strip_ + f * strip_step_, k0, depth);
    }
  }

  // Loads columns j .. j+16 of the block.
  void load_panel(int64_t j, const int8_t* codes, int64_t k0, int64_t depth) {
    const int64_t lanes = std::min<int64_t>(kS8Lanes, columns_ - j);
    const int64_t step_k = args_.b.k_major ? args_.b.scale.row_step : args_.b.scale.col_step;
    // Lanes beyond the last column use the parameters of the first: they must be initialized.
    int64_t at[kS8Lanes];
    for (int64_t lane = 0; lane < kS8Lanes; ++lane)
      at[lane] = param_at(args_.b, j0_ + j + (lane < lanes ? lane : 0), k0);
    char* to = b_ + j / kS8Lanes * most_groups_ * group_b_;
    for (int64_t g = 0; g * plan_.group < depth; ++g, to += group_b_) {
      auto& head = *reinterpret_cast<S8GroupOfB*>(to);
      char* units = to + sizeof(head);
      const int64_t length = length_of(g, depth);
      put_units(codes + g * padded_, length, units);
      plan_.kernel.panel_sums(units, padded_ * plan_.element / 4, head.start);
      start(length, at, head);
      for (int64_t lane = 0; lane < kS8Lanes; ++lane) head.scale[lane] = scale_at(args_.b, at[lane]);
      if (args_.b.scale.offset != nullptr)
        for (int64_t lane = 0; lane < kS8Lanes; ++lane) head.offset[lane] = args_.b.scale.offset[at[lane]];
      for (int64_t& index : at) index += step_k;
    }
  }

  // Computes y, and `start` from sum b, which is stored in its place.
  void start(int64_t length, const int64_t* at, S8GroupOfB& head) const {
    if (!plan_.zeros && !row_sums_) {
      for (int32_t& x : head.start) x = static_cast<int32_t>(plan_.ca) * x;
      return;
    }
    const int64_t za = zeros_per_row_ || args_.a.scale.zero == nullptr ? 0 : args_.a.scale.zero[0];
    for (int64_t lane = 0; lane < kS8Lanes; ++lane) {
      const int64_t b = head.start[lane], zb = zero_at(args_.b, at[lane]), sum = b + length * (plan_.cb - zb);
      head.start[lane] = static_cast<int32_t>(static_cast<uint32_t>(plan_.ca * b - za * sum));
      head.y[lane][0] = static_cast<int16_t>(zeros_per_row_ ? sum : 0);
      head.y[lane][1] = static_cast<int16_t>(row_sums_ ? plan_.cb - zb : 0);
    }
  }

  // Writes one group of 16 columns.
  void put_units(const int8_t* codes, int64_t length, char* to) const {
    if (!plan_.kernel.words) return put_panel(codes, strip_step_, padded_ / 4, to);
    int16_t words[kS8Lanes * kGroupDepthBytes / 2];
    for (int64_t lane = 0; lane < kS8Lanes; ++lane) {
      widen(codes + lane * strip_step_, length, padded_, static_cast<int32_t>(plan_.b.shift), words + lane * padded_);
    }
    put_panel(words, 2 * padded_, padded_ / 2, to);
  }

  void multiply(int64_t groups) {
    const S8Kernel& kernel = plan_.kernel;
    const int64_t width = kernel.group_panels * kS8Lanes;
    S8GroupTile tile{};
    tile.a_step = most_groups_ * group_a_;
    tile.b_step = most_groups_ * group_b_;
    tile.groups = groups;
    tile.units = padded_ * plan_.element / 4;
    tile.corrected = zeros_per_row_ || row_sums_;
    tile.offsets = args_.b.scale.offset != nullptr;
    tile.t_step = plan_.columns;
    for (int64_t j = 0; j < columns_; j += width) {
      const int64_t panels = ceil_div(std::min(width, columns_ - j), kS8Lanes);
      tile.b = b_ + j / kS8Lanes * tile.b_step;
      for (int64_t i = 0; i < rows_; i += kernel.rows) {
        tile.a = a_ + i * tile.a_step;
        tile.t = t_ + i * tile.t_step + j;
        kernel.group_tile(static_cast<int>(std::min<int64_t>(kernel.rows, rows_ - i)), static_cast<int>(panels), tile);
      }
    }
  }

  const S8Plan& plan_;
  const GemmArgs& args_;
  const int64_t i0_, j0_, rows_, columns_;
  const int64_t padded_, most_groups_;            // codes per group; maximum groups in a block of k
  const int64_t group_a_, group_b_, strip_step_;  // bytes
  const bool zeros_per_row_, row_sums_;           // which of the words x and y are needed
  const Workspace memory_;
  float* t_;
  char *a_, *b_;
  int8_t* strip_;
};

}  // namespace

void run_s8_groups(const S8Plan& plan, int64_t i0, int64_t j0) { Groups(plan, i0, j0).run(); }

}  // namespace bitgrad::kernels::gemm_detail
