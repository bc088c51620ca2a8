// Attention on the CPU. A task covers some rows of the heads that share keys, and walks the blocks of keys that these
// rows see.
#include "kernels/attention.h"

#include <limits>
#include <vector>

#include "bitgrad/base/math.h"
#include "bitgrad/base/parallel.h"
#include "kernels/attention/tiles.h"
#include "kernels/kernel_table.h"

namespace bitgrad::kernels {
namespace {

using namespace attention_loops;

constexpr int64_t kFewRows = 4;  // of all heads of a group: a token that is generated

// Rows [begin, end) of q, for the heads of one group.
class ForwardTile {
 public:
  ForwardTile(const AttentionArgs& args, int64_t sample, int64_t kv_head, int64_t begin, int64_t end)
      : args_(args),
        heads_(args.shape),
        sample_(sample),
        head_(kv_head * args.shape.group()),
        begin_(begin),
        rows_(end - begin),
        k_(heads_.of_k(args.k, sample, kv_head)),
        v_(heads_.of_k(args.v, sample, kv_head)),
        in_place_(args.shape.group() * rows_ <= kFewRows && args.shape.dim == heads_.wide()),
        columns_(floats(args.shape.dim * kAttentionBlock)),
        values_(in_place_ ? 0 : floats(heads_.wide() * kAttentionBlock)),
        scores_(floats(kTileScores)),
        sums_(floats(args.shape.group() * rows_ * heads_.wide())),
        state_(static_cast<size_t>(args.shape.group() * rows_)) {}

  void run() {
    const int64_t keys = args_.shape.first + begin_ + rows_;  // number of keys that the last row sees
    std::fill_n(sums_.as<float>(), args_.shape.group() * rows_ * heads_.wide(), 0.0f);
    const int64_t start = args_.shape.start(sample_, begin_);  // no row sees a key before this one
    for (int64_t key = start / kAttentionBlock * kAttentionBlock; key < keys; key += kAttentionBlock) {
      const int64_t end = std::min(key + kAttentionBlock, keys);
      pack_columns(heads_, k_, key, end, columns_.as<float>());
      if (!in_place_) pack_rows(heads_, v_, key, end, values_.as<float>());
      const Rows<const float> values =
          in_place_ ? Rows<const float>{v_[key], v_.step} : Rows<const float>{values_.as<float>(), heads_.wide()};
      for (int64_t h = 0; h < args_.shape.group(); ++h) add_block(h, key, values);
    }
    for (int64_t h = 0; h < args_.shape.group(); ++h) finish(h);
  }

 private:
  struct State {
    float top = -std::numeric_limits<float>::infinity(), sum = 0;
  };

  // values: the rows of v from `key` on.
  void add_block(int64_t h, int64_t key, const Rows<const float>& values) {
    const int64_t from = std::max<int64_t>(0, heads_.first_row(key) - begin_);
    const int64_t rows = std::min(rows_, heads_.end_row(sample_, key + kAttentionBlock) - begin_) - from;
    if (rows <= 0) return;
    float* const scores = scores_.as<float>();
    score(heads_, heads_.of_q(args_.q, sample_, head_ + h), begin_ + from, rows, key, columns_.as<float>(), scores);
    float factors[kTile];
    for (int64_t r = 0; r < rows; ++r) {
      State& state = state_[static_cast<size_t>(h * rows_ + from + r)];
      const Seen seen = seen_by(begin_ + from + r, key);
      OnlineRow row{scores + r * kAttentionBlock, seen.begin, seen.end, args_.shape.scale, state.top, state.sum};
      if (args_.shape.softcap > 0) {
        for (int64_t j = seen.begin; j < seen.end; ++j) row.scores[j] = args_.shape.capped(row.scores[j]);
        row.scale = 1;
      }
      loops().online_softmax(row);
      state = {row.top, row.sum};
      factors[r] = row.factor;
      if (args_.dropout.given())
        drop(args_.dropout, AttentionDropout::element(args_.shape, sample_, head_ + h, begin_ + from + r, key),
             seen.begin, seen.end, row.scores);
    }
    // A row sums only the values that it sees. Rows whose visible keys begin at the same key are summed together as a
    // staircase.
    for (int64_t r = 0, end; r < rows; r = end) {
      const Seen seen = seen_by(begin_ + from + r, key);
      end = r + 1;
      while (end < rows && heads_.unseen(sample_, begin_ + from + end, key) == seen.begin) ++end;
      add_values(h, from, r, end - r, seen, values, factors);
    }
  }

  // The keys of a block that a row sees.
  struct Seen {
    int64_t begin, end;
  };
  Seen seen_by(int64_t row, int64_t key) const { return {heads_.unseen(sample_, row, key), heads_.seen(row, key)}; }

  // Adds the values of rows r .. r + rows - 1. The first row sees `seen`; each later one sees one more key, up to the
  // end of the block.
  void add_values(int64_t h, int64_t from, int64_t r, int64_t rows, const Seen& seen, const Rows<const float>& values,
                  const float* factors) {
    MultiplyAdd call;
    call.rows = rows;
    call.cols = heads_.wide();
    call.inner = kAttentionBlock - seen.begin;
    call.ends = seen.end - seen.begin;
    call.x = scores_.as<float>() + r * kAttentionBlock + seen.begin;
    call.x_row = kAttentionBlock;
    call.t = values[seen.begin];
    call.ldt = values.step;
    call.start = MultiplyAdd::Start::kTimes;
    call.factor = factors + r;
    call.y = sums_.as<float>() + (h * rows_ + from + r) * heads_.wide();
    call.ldy = heads_.wide();
    loops().multiply_add(call);
  }

  void finish(int64_t h) const {
    const AttentionShape& s = args_.shape;
    const Rows<float> y = heads_.of_y(args_.y, sample_, head_ + h);
    for (int64_t r = 0; r < rows_; ++r) {
      const State& state = state_[static_cast<size_t>(h * rows_ + r)];
      const float* const sums = sums_.as<float>() + (h * rows_ + r) * heads_.wide();
      for (int64_t c = 0; c < s.dim; ++c) y[begin_ + r][c] = sums[c] / state.sum;
      if (args_.log_sum != nullptr)
        args_.log_sum[s.of_row(sample_, head_ + h, begin_ + r)] = state.top + math::log(state.sum);
    }
  }

  const AttentionArgs& args_;
  const Heads heads_;
  const int64_t sample_, head_, begin_, rows_;
  const Rows<const float> k_, v_;
  const bool in_place_;  // whether values are read where they are: packing pays for rows that share them
  const Workspace columns_, values_, scores_, sums_;
  std::vector<State> state_;
};

}  // namespace

void cpu::attention(const AttentionArgs& args) {
  const AttentionShape& s = args.shape;
  const int64_t tiles = (s.rows + kTile - 1) / kTile, groups = s.samples * s.kv_heads;
  if (groups * tiles == 0 || s.dim == 0) return;
  parallel_for(groups * tiles, [&](int64_t i) {
    // The last rows see the most keys, so they are scheduled first.
    const int64_t tile = tiles - 1 - i / groups, group = i % groups;
    ForwardTile(args, group / s.kv_heads, group % s.kv_heads, tile * kTile, std::min((tile + 1) * kTile, s.rows)).run();
  });
}

}  // namespace bitgrad::kernels
