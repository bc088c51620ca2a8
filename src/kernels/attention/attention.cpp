// Attention on the CPU. A task covers some rows of the heads that share keys, and walks the blocks of keys that these
// rows see.
#include "kernels/attention.h"

#include <limits>

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
        kv_head_(kv_head),
        head_(kv_head * args.shape.group()),
        begin_(begin),
        rows_(end - begin),
        bf16_(args.k_bf16 != nullptr),
        k_(args.shape.key_blocks == 0 ? heads_.of_k(args.k, sample, kv_head) : Rows<const float>{}),
        v_(args.shape.key_blocks == 0 ? heads_.of_k(args.v, sample, kv_head) : Rows<const float>{}),
        in_place_(args.shape.group() * rows_ <= kFewRows && args.shape.dim == heads_.wide()),
        memory_(floats(scores_size() + sums_size() + state_size() + columns_size() + values_size())) {
    scores_ = memory_.as<float>();
    sums_ = scores_ + scores_size();
    state_ = reinterpret_cast<State*>(sums_ + sums_size());
    columns_ = sums_ + sums_size() + state_size();
    values_ = columns_ + columns_size();
  }

  void run() {
    const int64_t keys = args_.shape.first + begin_ + rows_;  // number of keys that the last row sees
    std::fill_n(sums_, sums_size(), 0.0f);
    std::fill_n(state_, args_.shape.group() * rows_, State{});
    const int64_t start = args_.shape.start(sample_, begin_);  // no row sees a key before this one
    const int64_t first = start / kAttentionBlock * kAttentionBlock;
    for (int64_t key = first; key < keys; key += kAttentionBlock) {
      const int64_t end = std::min(key + kAttentionBlock, keys);
      const Block block{columns_of(key, end), values_of(key, end), key};
      for (int64_t h = 0; h < args_.shape.group(); ++h) add_block(h, block);
    }
    for (int64_t h = 0; h < args_.shape.group(); ++h) finish(h);
  }

 private:
  struct State {
    float top = -std::numeric_limits<float>::infinity(), sum = 0;
  };
  // The keys from `key` on as columns, and their rows of values. In bf16 if they are read where they are: the pointers
  // are null then.
  struct Block {
    const float* columns;
    Rows<const float> values;
    int64_t key;
  };
  static constexpr int64_t kStateFloats = sizeof(State) / sizeof(float);

  int64_t scores_size() const { return rows_ * kAttentionBlock; }
  int64_t sums_size() const { return args_.shape.group() * rows_ * heads_.wide(); }
  int64_t state_size() const { return padded(args_.shape.group() * rows_ * kStateFloats); }
  int64_t columns_size() const {
    const bool there = args_.shape.key_blocks > 0 && (!bf16_ || in_place_);
    return there ? 0 : args_.shape.dim * kAttentionBlock;
  }
  int64_t values_size() const { return in_place_ ? 0 : heads_.wide() * kAttentionBlock; }

  int64_t of_block(int64_t key) const { return args_.shape.of_block(sample_, kv_head_, key / kAttentionBlock); }

  // Keys [key, end) as [dim][64].
  const float* columns_of(int64_t key, int64_t end) {
    if (bf16_ && in_place_) return nullptr;
    if (bf16_) {
      loops().widen_bf16(args_.shape.dim * kAttentionBlock, args_.k_bf16 + of_block(key), columns_);
      return columns_;
    }
    if (args_.shape.key_blocks > 0) return args_.k + of_block(key);
    pack_columns(heads_, k_, key, end, columns_);
    return columns_;
  }

  // The rows of values [key, end), padded to whole vectors.
  Rows<const float> values_of(int64_t key, int64_t end) {
    if (bf16_ && in_place_) return {nullptr, args_.shape.dim};
    if (bf16_) return widened_values(key, end);
    const bool blocks = args_.shape.key_blocks > 0;
    const float* const block = blocks ? args_.v + of_block(key) : v_[key];
    const Rows<const float> rows{block, blocks ? args_.shape.dim : v_.step};
    if (in_place_) return rows;
    pack_rows(heads_, rows, 0, end - key, values_);
    return {values_, heads_.wide()};
  }

  Rows<const float> widened_values(int64_t key, int64_t end) {
    const int64_t dim = args_.shape.dim, wide = heads_.wide();
    const uint16_t* const from = args_.v_bf16 + of_block(key);
    for (int64_t i = 0; i < end - key; ++i) {
      loops().widen_bf16(dim, from + i * dim, values_ + i * wide);
      std::fill(values_ + i * wide + dim, values_ + (i + 1) * wide, 0.0f);
    }
    return {values_, wide};
  }

  void add_block(int64_t h, const Block& block) {
    const int64_t key = block.key;
    const int64_t from = std::max<int64_t>(0, heads_.first_row(key) - begin_);
    const int64_t rows = std::min(rows_, heads_.end_row(sample_, key + kAttentionBlock) - begin_) - from;
    if (rows <= 0) return;
    float* const scores = scores_;
    score(heads_, heads_.of_q(args_.q, sample_, head_ + h), begin_ + from, rows, key, block.columns, scores,
          block.columns == nullptr ? args_.k_bf16 + of_block(key) : nullptr);
    float factors[kTile];
    for (int64_t r = 0; r < rows; ++r) {
      State& state = state_[h * rows_ + from + r];
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
      add_values(h, from, r, end - r, seen, block, factors);
    }
  }

  // The keys of a block that a row sees.
  struct Seen {
    int64_t begin, end;
  };
  Seen seen_by(int64_t row, int64_t key) const { return {heads_.unseen(sample_, row, key), heads_.seen(row, key)}; }

  // Adds the values of rows r .. r + rows - 1. The first row sees `seen`; each later one sees one more key, up to the
  // end of the block.
  void add_values(int64_t h, int64_t from, int64_t r, int64_t rows, const Seen& seen, const Block& block,
                  const float* factors) {
    MultiplyAdd call;
    call.rows = rows;
    call.cols = heads_.wide();
    call.inner = kAttentionBlock - seen.begin;
    call.ends = seen.end - seen.begin;
    call.x = scores_ + r * kAttentionBlock + seen.begin;
    call.x_row = kAttentionBlock;
    call.ldt = block.values.step;
    if (block.values.data == nullptr)
      call.t_bf16 = args_.v_bf16 + of_block(block.key) + seen.begin * call.ldt;
    else
      call.t = block.values[seen.begin];
    call.start = MultiplyAdd::Start::kTimes;
    call.factor = factors + r;
    call.y = sums_ + (h * rows_ + from + r) * heads_.wide();
    call.ldy = heads_.wide();
    loops().multiply_add(call);
  }

  void finish(int64_t h) const {
    const AttentionShape& s = args_.shape;
    const Rows<float> y = heads_.of_y(args_.y, sample_, head_ + h);
    for (int64_t r = 0; r < rows_; ++r) {
      const State& state = state_[h * rows_ + r];
      const float* const sums = sums_ + (h * rows_ + r) * heads_.wide();
      for (int64_t c = 0; c < s.dim; ++c) y[begin_ + r][c] = sums[c] / state.sum;
      if (args_.log_sum != nullptr)
        args_.log_sum[s.of_row(sample_, head_ + h, begin_ + r)] = state.top + math::log(state.sum);
    }
  }

  const AttentionArgs& args_;
  const Heads heads_;
  const int64_t sample_, kv_head_, head_, begin_, rows_;
  const bool bf16_;
  const Rows<const float> k_, v_;
  const bool in_place_;  // whether values are read where they are: packing pays for rows that share them
  const Workspace memory_;
  float *scores_, *sums_, *columns_, *values_;
  State* state_;
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
