// Backward of attention on the CPU. A task covers all rows of the heads that share keys, one block of keys after
// another. gk and gv of a block are complete when the block ends; gq accumulates in ascending order of keys.
//   p = exp(q k * scale - log_sum), gp = gy v, gs = (p * (gp - sum gy y)) * scale
// With dropout, gp and the p used for gv are masked in the same way; sum gy y is not.
//   gq = sum over keys of gs k, gk = sum over heads and rows of gs q, gv = sum over heads and rows of p gy
#include "bitgrad/base/parallel.h"
#include "kernels/attention/tiles.h"
#include "kernels/kernel_table.h"

namespace bitgrad::kernels {
namespace {

using namespace attention_loops;

class BackwardGroup {
 public:
  BackwardGroup(const AttentionBackwardArgs& args, int64_t sample, int64_t kv_head)
      : args_(args),
        s_(args.shape),
        heads_(args.shape),
        sample_(sample),
        kv_head_(kv_head),
        head_(kv_head * args.shape.group()),
        packs_(heads_.wide() != s_.dim),
        key_columns_(floats(s_.dim * kAttentionBlock)),
        value_columns_(floats(s_.dim * kAttentionBlock)),
        key_rows_(block_floats()),
        gk_(block_floats()),
        gv_(block_floats()),
        p_(floats(kTileScores)),
        gs_(floats(kTileScores)),
        tile_(floats(packs_ ? kTile * heads_.wide() : 0)),
        gq_(floats(packs_ && args.gq != nullptr ? s_.group() * s_.rows * heads_.wide() : 0)),
        dots_(floats(s_.group() * s_.rows)) {}

  void run() {
    for (int64_t h = 0; h < s_.group(); ++h) begin_head(h);
    for (int64_t key = 0; key < s_.keys; key += kAttentionBlock) {
      const int64_t end = std::min(key + kAttentionBlock, s_.keys);
      pack_columns(heads_, k(), key, end, key_columns_.as<float>());
      pack_columns(heads_, v(), key, end, value_columns_.as<float>());
      pack_rows(heads_, k(), key, end, key_rows_.as<float>());
      for (float* out : {gk_.as<float>(), gv_.as<float>()}) std::fill_n(out, kAttentionBlock * heads_.wide(), 0.0f);
      const int64_t rows = heads_.end_row(sample_, end);
      for (int64_t h = 0; h < s_.group(); ++h)
        for (int64_t row = heads_.first_row(key); row < rows; row += kTile)
          add_tile(h, row, std::min(row + kTile, rows), key, end);
      write_block(gk_, args_.gk, key, end);
      write_block(gv_, args_.gv, key, end);
    }
    for (int64_t h = 0; packs_ && args_.gq != nullptr && h < s_.group(); ++h) end_head(h);
  }

 private:
  int64_t block_floats() const { return floats(kAttentionBlock * heads_.wide()); }
  Rows<const float> k() const { return heads_.of_k(args_.k, sample_, kv_head_); }
  Rows<const float> v() const { return heads_.of_k(args_.v, sample_, kv_head_); }
  Rows<const float> q(int64_t h) const { return heads_.of_q(args_.q, sample_, head_ + h); }
  Rows<const float> gy(int64_t h) const { return heads_.of_y(args_.gy, sample_, head_ + h); }
  // gq of a head, in rows of `wide` floats.
  Rows<float> gq(int64_t h) const {
    if (packs_) return {gq_.as<float>() + h * s_.rows * heads_.wide(), heads_.wide()};
    return heads_.of_q(args_.gq, sample_, head_ + h);
  }

  void begin_head(int64_t h) const {
    const Rows<const float> y = heads_.of_y(args_.y, sample_, head_ + h), gy = this->gy(h);
    loops().dot_rows(s_.rows, s_.dim, gy.data, gy.step, y.data, y.step, dots_.as<float>() + h * s_.rows);
    for (int64_t i = 0; i < s_.rows && args_.gq != nullptr; ++i)
      std::fill_n(gq(h)[i], packs_ ? heads_.wide() : s_.dim, 0.0f);
  }
  void end_head(int64_t h) const {
    const Rows<float> out = heads_.of_q(args_.gq, sample_, head_ + h);
    for (int64_t i = 0; i < s_.rows; ++i) std::copy_n(gq(h)[i], s_.dim, out[i]);
  }

  void add_tile(int64_t h, int64_t begin, int64_t end, int64_t key, int64_t key_end) const {
    const int64_t rows = end - begin, keys = key_end - key;
    float *const p = p_.as<float>(), *const gs = gs_.as<float>();
    score(heads_, q(h), begin, rows, key, key_columns_.as<float>(), p);
    score(heads_, gy(h), begin, rows, key, value_columns_.as<float>(), gs);
    const float* const log_sum = args_.log_sum + s_.of_row(sample_, head_ + h, 0);
    for (int64_t r = 0; r < rows; ++r) {
      GradientRow row{p + r * kAttentionBlock,
                      gs + r * kAttentionBlock,
                      heads_.unseen(sample_, begin + r, key),
                      heads_.seen(begin + r, key),
                      s_.scale,
                      log_sum[begin + r],
                      dots_.as<float>()[h * s_.rows + begin + r]};
      const uint64_t element = AttentionDropout::element(s_, sample_, head_ + h, begin + r, key);
      if (args_.dropout.given()) drop(args_.dropout, element, row.begin, row.count, row.slopes);
      gradient(row);
      if (args_.dropout.given()) drop(args_.dropout, element, row.begin, row.count, row.scores);
    }
    if (args_.gq != nullptr) {
      MultiplyAdd call = keep(rows, keys, gs, gq(h)[begin], gq(h).step);
      call.x_row = kAttentionBlock;
      call.t = key_rows_.as<float>();
      call.ldt = heads_.wide();
      call.ends = heads_.all_seen(begin, key);
      loops().multiply_add(call);
    }
    if (args_.gk != nullptr) add_to_keys(key, keys, rows, gs, q(h), begin, gk_);
    if (args_.gv != nullptr) add_to_keys(key, keys, rows, p, gy(h), begin, gv_);
  }

  // gs of a row, through the cap of its scores if there is one.
  void gradient(GradientRow& row) const {
    if (s_.softcap == 0) return loops().softmax_gradient(row);
    float slopes[kAttentionBlock];
    for (int64_t j = row.begin; j < row.count; ++j) {
      row.scores[j] = s_.capped(row.scores[j]);
      slopes[j] = s_.cap_slope(row.scores[j]);
    }
    row.scale = 1;
    loops().softmax_gradient(row);
    for (int64_t j = row.begin; j < row.count; ++j) row.slopes[j] *= slopes[j];
  }

  MultiplyAdd keep(int64_t rows, int64_t inner, const float* x, float* y, int64_t ldy) const {
    MultiplyAdd call;
    call.rows = rows;
    call.cols = heads_.wide();
    call.inner = inner;
    call.x = x;
    call.start = MultiplyAdd::Start::kKeep;
    call.y = y;
    call.ldy = ldy;
    return call;
  }

  // sums[j] += sum of x[row][j] * of[row] over the rows of the tile that see key j.
  void add_to_keys(int64_t key, int64_t keys, int64_t rows, const float* x, const Rows<const float>& of, int64_t begin,
                   const Workspace& sums) const {
    MultiplyAdd call = keep(keys, rows, x, sums.as<float>(), heads_.wide());
    call.x_row = 1;
    call.x_step = kAttentionBlock;
    call.begins = heads_.all_seen(begin, key) - 1;
    call.t = of[begin];
    call.ldt = of.step;
    if (packs_) {
      pack_rows(heads_, of, begin, begin + rows, tile_.as<float>());
      call.t = tile_.as<float>();
      call.ldt = heads_.wide();
    }
    loops().multiply_add(call);
  }

  void write_block(const Workspace& sums, float* out, int64_t key, int64_t end) const {
    if (out == nullptr) return;
    const Rows<float> rows = heads_.of_gk(out, sample_, kv_head_);
    for (int64_t j = key; j < end; ++j) std::copy_n(sums.as<float>() + (j - key) * heads_.wide(), s_.dim, rows[j]);
  }

  const AttentionBackwardArgs& args_;
  const AttentionShape& s_;
  const Heads heads_;
  const int64_t sample_, kv_head_, head_;
  const bool packs_;  // rows of dim floats do not fill whole vectors
  const Workspace key_columns_, value_columns_, key_rows_, gk_, gv_, p_, gs_, tile_, gq_, dots_;
};

}  // namespace

void cpu::attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.shape;
  if (s.dim == 0) return;
  parallel_for(s.samples * s.kv_heads, [&](int64_t i) { BackwardGroup(args, i / s.kv_heads, i % s.kv_heads).run(); });
}

}  // namespace bitgrad::kernels
