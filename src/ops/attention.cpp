// Causal attention with grouped key/value heads. fp32 uses the kernels of family attention, or on devices maps with the
// same arithmetic; fp64 has a plain implementation here.
#include "bitgrad/ops/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/flag.h"
#include "ops/common.h"
#include "ops/map/attention.h"

namespace bitgrad {
namespace {

constexpr std::string_view kAttention = "attention";

void check_options(const AttentionOptions& o) {
  require(o.heads >= 1 && o.kv_heads >= 1 && o.heads % o.kv_heads == 0, kAttention, "heads: got ", o.heads,
          " of q and ", o.kv_heads, " of k and v, expected a multiple.");
  require(std::isfinite(o.scale) && o.scale >= 0, kAttention, "scale: got ", o.scale,
          ", expected a positive number, or 0 for 1 / sqrt(d).");
  require(std::isfinite(o.softcap) && o.softcap >= 0, kAttention, "softcap: got ", o.softcap,
          ", expected a positive number, or 0 for none.");
  require(o.window >= 0, kAttention, "window: got ", o.window, ", expected a number of keys, or 0 for all.");
}

constexpr int64_t kBlock = kernels::kAttentionBlock;

// Whether k is held in transposed blocks of keys, and v in blocks of rows, as a cache keeps them.
bool in_blocks(const Tensor& k) { return k.shape().rank() == 4; }
// Rows of v, in blocks or not.
int64_t keys_of(const Tensor& v) { return v.shape().rank() == 5 ? v.shape()[1] * kBlock : v.shape()[1]; }

void check_blocks(const Tensor& q, const Tensor& k, const Tensor& v, int64_t kv_heads, int64_t dim) {
  const int64_t samples = q.shape()[0], blocks = k.shape()[1];
  const Shape keys{samples, blocks, kv_heads * dim, kBlock}, values{samples, blocks, kv_heads, kBlock, dim};
  for (const Tensor* t : {&k, &v}) {
    const Shape& wanted = t == &k ? keys : values;
    const bool dtypes_fit = t->dtype() == k.dtype() && (k.dtype() == dtypes::fp32 || k.dtype() == dtypes::bf16);
    require(t->shape() == wanted && dtypes_fit && q.dtype() == dtypes::fp32 && t->contiguous() && !t->quant() &&
                t->device().is_cpu(),
            kAttention, t == &k ? "k" : "v", " in blocks of ", kBlock, " keys must be ", wanted,
            " fp32 or bf16 on the CPU, k and v alike, with q of fp32, got ", *t, " and q ", q);
  }
}

void check_sides(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  require_values(kAttention, "q", q);
  require(q.shape().rank() == 3 && q.cols() > 0 && q.cols() % o.heads == 0, kAttention, "q must be [n,t,", o.heads,
          "*d], got ", q);
  const int64_t dim = q.cols() / o.heads;
  if (in_blocks(k)) check_blocks(q, k, v, o.kv_heads, dim);
  for (const Tensor* t : {&k, &v})
    require(in_blocks(k) ||
                (t->dtype() == q.dtype() && t->shape().rank() == 3 && t->shape()[0] == q.shape()[0] &&
                 t->cols() == o.kv_heads * dim && t->shape()[1] == k.shape()[1] && t->contiguous() && !t->quant()),
            kAttention, t == &k ? "k" : "v", " must be [", q.shape()[0], ",s,", o.kv_heads, '*', dim, "] ", q.dtype(),
            t == &k ? ", as q " : ", as k and q ", q, ", got ", *t);
  const int64_t keys = keys_of(v);
  require(o.first >= 0 && o.first + q.shape()[1] <= keys, kAttention, "rows of q at positions ", o.first, " to ",
          o.first + q.shape()[1] - 1, ": got keys of ", keys, " positions.");
}

void check_draws_and_starts(const Tensor& q, const AttentionOptions& o) {
  require(o.dropout >= 0 && o.dropout < 1, kAttention, "dropout: got ", o.dropout, ", expected 0 <= dropout < 1.");
  if (!o.starts.defined()) return;
  const Shape wanted{q.shape()[0], q.shape()[1]};
  require(o.starts.dtype() == dtypes::int32 && o.starts.shape() == wanted && o.starts.contiguous(), kAttention,
          "starts must be ", wanted, " int32, a key for each row of q, got ", o.starts);
  const FlagWord flag;
  run_map(maps::FlagStarts{o.starts.as<int32_t>(), wanted[1], o.first, flag.word()}, wanted.numel());
  flag.check([] {
    fail(kAttention,
         "starts: got one that is negative, past its row or below that of the row before, expected the first key that "
         "each row sees.");
  });
}

void check_packed(const Tensor& x, const AttentionOptions& o) {
  require_values(kAttention, "x", x);
  const int64_t heads = o.heads + 2 * o.kv_heads;
  require(x.shape().rank() == 3 && x.cols() > 0 && x.cols() % heads == 0, kAttention, "x must be [n,t,(", o.heads,
          " + 2 * ", o.kv_heads, ")*d], q, k and v side by side, got ", x);
  require(o.first == 0, kAttention, "first: got ", o.first, ", expected 0: k and v of x begin with its rows.");
}

// A window is a start for each row: the later one of its own and of the document's.
AttentionOptions with_window(const Tensor& q, const AttentionOptions& o) {
  if (o.window == 0 || o.window >= o.first + q.shape()[1]) return o;
  AttentionOptions out = o;
  out.starts = Tensor::empty({q.shape()[0], q.shape()[1]}, dtypes::int32);
  const int32_t* const documents = o.starts.defined() ? o.starts.as<int32_t>() : nullptr;
  run_map(maps::WindowStarts{q.shape()[1], o.first, o.window, documents, out.starts.as<int32_t>()}, out.starts.numel());
  return out;
}

// Shape from the operands: q, k, v, or x with all three side by side.
kernels::AttentionShape shape_of(std::span<const Tensor> in, const AttentionOptions& o) {
  const bool packed = in.size() == 1;
  kernels::AttentionShape s;
  s.samples = in[0].shape()[0];
  s.heads = o.heads;
  s.kv_heads = o.kv_heads;
  s.rows = in[0].shape()[1];
  s.keys = packed ? s.rows : keys_of(in[2]);
  if (!packed && in_blocks(in[1])) s.key_blocks = in[1].shape()[1];
  s.dim = in[0].cols() / (packed ? o.heads + 2 * o.kv_heads : o.heads);
  s.first = o.first;
  if (packed) s.q_step = s.kv_step = in[0].cols();
  s.scale = o.scale > 0 ? o.scale : 1.0f / std::sqrt(static_cast<float>(s.dim));
  s.softcap = o.softcap;
  if (o.starts.defined()) s.starts = o.starts.as<int32_t>();
  return s;
}

kernels::AttentionDropout dropout_of(const AttentionOptions& o) {
  if (o.dropout == 0) return {};
  return {o.stream, static_cast<uint32_t>(std::rint(o.dropout * 65536.0)), static_cast<float>(1.0 / (1.0 - o.dropout))};
}

double factor_of(const AttentionOptions& o) { return 1.0 / (1.0 - o.dropout); }

// Pointers to q, k and v; nullptr for undefined tensors.
template <typename T>
struct Sides {
  T *q, *k, *v;
  Sides(std::span<const Tensor> in, const kernels::AttentionShape& s) {
    const auto at = [&](size_t i) { return in[i].defined() ? in[i].as<T>() : nullptr; };
    q = at(0);
    k = in.size() == 1 ? (q == nullptr ? q : q + s.heads * s.dim) : at(1);
    v = in.size() == 1 ? (q == nullptr ? q : k + s.kv_heads * s.dim) : at(2);
  }
};

// ---- fp64: the reference, one row and head at a time
struct Fp64 {
  const kernels::AttentionShape& s;
  kernels::AttentionDropout drops = {};
  double factor = 1;  // scale of what dropout keeps
  std::vector<double> p{};

  double scale() const { return static_cast<double>(s.scale); }
  int64_t kv_head(int64_t head) const { return head / s.group(); }
  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (int64_t c = 0; c < s.dim; ++c) sum += a[c] * b[c];
    return sum;
  }
  template <typename Body>
  void each_row(Body&& body) const {
    for (int64_t n = 0; n < s.samples; ++n)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.rows; ++i) body(n, h, i);
  }
  // Dropout factor of a probability and of its gradient.
  double kept(int64_t n, int64_t h, int64_t i, size_t j) const {
    if (!drops.given()) return 1;
    const int64_t key = s.start(n, i) + static_cast<int64_t>(j);
    return drops.stream.bits16(kernels::AttentionDropout::element(s, n, h, i, key)) >= drops.threshold ? factor : 0;
  }
  // Offset of element j of p in k and v. Element 0 is key start(n, i).
  int64_t of_k(int64_t n, int64_t h, int64_t i, size_t j) const {
    return s.of_k(n, kv_head(h), s.start(n, i) + static_cast<int64_t>(j));
  }
  double score(double sum) const {
    const auto cap = static_cast<double>(s.softcap);
    return cap > 0 ? cap * std::tanh(sum * scale() / cap) : sum * scale();
  }
  // Of a score over its sum.
  double slope(double score) const {
    const double y = s.softcap > 0 ? score / static_cast<double>(s.softcap) : 0;
    return (1 - y * y) * scale();
  }
  // Computes the probabilities of a row.
  void fill(const Sides<double>& in, int64_t n, int64_t h, int64_t i) {
    p.resize(static_cast<size_t>(s.first + i + 1 - s.start(n, i)));
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t j = 0; j < p.size(); ++j) {
      p[j] = score(dot(in.q + s.of_q(n, h, i), in.k + of_k(n, h, i, j)));
      top = std::max(top, p[j]);
    }
    for (double& x : p) sum += x = std::exp(x - top);
    for (double& x : p) x /= sum;
  }
  void forward(const Sides<double>& in, double* y) {
    each_row([&](int64_t n, int64_t h, int64_t i) {
      fill(in, n, h, i);
      double* const out = y + s.of_y(n, h, i);
      std::fill_n(out, s.dim, 0.0);
      for (size_t j = 0; j < p.size(); ++j)
        for (int64_t c = 0; c < s.dim; ++c) out[c] += p[j] * kept(n, h, i, j) * in.v[of_k(n, h, i, j) + c];
    });
  }
  // g must be zero on entry.
  void backward(const Sides<double>& in, const double* gy, const Sides<double>& g) {
    each_row([&](int64_t n, int64_t h, int64_t i) {
      fill(in, n, h, i);
      const int64_t row = s.of_q(n, h, i), y = s.of_y(n, h, i);
      std::vector<double> gp(p.size());
      double mean = 0;
      for (size_t j = 0; j < p.size(); ++j) {
        gp[j] = dot(gy + y, in.v + of_k(n, h, i, j)) * kept(n, h, i, j);
        mean += p[j] * gp[j];
      }
      for (size_t j = 0; j < p.size(); ++j) {
        const int64_t key = of_k(n, h, i, j);
        const double gs = p[j] * (gp[j] - mean) * slope(score(dot(in.q + row, in.k + key)));
        for (int64_t c = 0; c < s.dim; ++c) {
          g.q[row + c] += gs * in.k[key + c];
          g.k[key + c] += gs * in.q[row + c];
          g.v[key + c] += p[j] * kept(n, h, i, j) * gy[y + c];
        }
      }
    });
  }
};

struct Attention {
  static constexpr std::string_view kName = kAttention;
  struct Saved {
    std::vector<Tensor> in;
    Tensor y, log_sum;
    AttentionOptions options;
  };

  static Tensor forward(Saved& saved, std::span<const Tensor> in, const AttentionOptions& options) {
    check_options(options);
    if (in.size() == 1)
      check_packed(in[0], options);
    else
      check_sides(in[0], in[1], in[2], options);
    check_draws_and_starts(in[0], options);
    saved = {{}, {}, {}, with_window(in[0], options)};
    const kernels::AttentionShape s = shape_of(in, saved.options);
    const DType dtype = in[0].dtype();
    for (const Tensor& t : in) saved.in.push_back(keep(t));
    const Shape shape{s.samples, s.rows, s.heads * s.dim};
    if (dtype == dtypes::fp64) {
      Tensor y = Tensor::zeros(shape, dtype);
      Fp64{s, dropout_of(options), factor_of(options)}.forward(Sides<double>(in, s), y.as<double>());
      return y;
    }
    Tensor result = wide_result(shape, dtype);
    const Tensor log_sum = Tensor::empty({s.samples, s.heads, s.rows}, dtypes::fp32);
    if (in.size() == 3 && in_blocks(in[1]) && in[1].dtype() == dtypes::bf16) {
      kernels::attention({s, in[0].as<float>(), nullptr, nullptr, result.as<float>(), log_sum.as<float>(),
                          dropout_of(options), in[1].as<uint16_t>(), in[2].as<uint16_t>()});
      return result;
    }
    const std::vector<Tensor> wide_in = all_widened(in);
    const Sides<float> at(wide_in, s);
    kernels::attention({s, at.q, at.k, at.v, result.as<float>(), log_sum.as<float>(), dropout_of(options)});
    Tensor y = narrowed(result, dtype);
    saved.y = keep(y);
    saved.log_sum = keep(log_sum);
    return y;
  }

  static void backward(Saved& saved, std::span<const Tensor> gy_edge, std::span<GradSlot> g) {
    const kernels::AttentionShape s = shape_of(saved.in, saved.options);
    const Tensor gy = wide(gy_edge[0]);
    const bool reference = saved.in[0].dtype() == dtypes::fp64;
    std::vector<Tensor> grads;
    for (size_t i = 0; i < saved.in.size(); ++i) {
      const Shape& shape = saved.in[i].shape();
      grads.push_back(reference       ? Tensor::zeros(shape, dtypes::fp64)
                      : g[i].wanted() ? Tensor::empty(shape, dtypes::fp32)
                                      : Tensor());
    }
    if (reference) {
      Fp64{s, dropout_of(saved.options), factor_of(saved.options)}.backward(Sides<double>(saved.in, s), gy.as<double>(),
                                                                            Sides<double>(grads, s));
    } else {
      const std::vector<Tensor> wide_in = all_widened(saved.in);
      const Tensor y = widened(saved.y);
      const Sides<float> at(wide_in, s), to(grads, s);
      kernels::attention_backward({s, at.q, at.k, at.v, y.as<float>(), saved.log_sum.as<float>(), gy.as<float>(), to.q,
                                   to.k, to.v, dropout_of(saved.options)});
    }
    for (size_t i = 0; i < grads.size(); ++i)
      if (g[i].wanted()) g[i].set_rounded(grads[i]);
  }

 private:
  static std::vector<Tensor> all_widened(std::span<const Tensor> in) {
    std::vector<Tensor> out;
    for (const Tensor& t : in) out.push_back(widened(t));
    return out;
  }
};

}  // namespace

Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  const bool tracked = q.tracked() || k.tracked() || v.tracked();
  require(!tracked || !in_blocks(k.value()), kAttention, "k in blocks of ", kBlock, " keys has no gradient: got ",
          k.value(), ". Pass rows, or run without a tape.");
  return apply<Attention>({q, k, v}, options);
}
Var attention(const Var& x, const AttentionOptions& options) { return apply<Attention>({x}, options); }

Tensor document_starts(const Tensor& ids, int64_t end) {
  constexpr std::string_view kWhere = "document_starts";
  require(ids.defined() && (ids.dtype() == dtypes::int32 || ids.dtype() == dtypes::int64) && ids.shape().rank() == 2 &&
              ids.contiguous(),
          kWhere, "ids must be [n,t] int32 or int64, got ", ids);
  Tensor starts = Tensor::empty(ids.shape(), dtypes::int32);
  const bool wide = ids.dtype() == dtypes::int64;
  run_map(maps::DocumentStarts{ids.shape()[1], end, wide ? nullptr : ids.as<int32_t>(),
                               wide ? ids.as<int64_t>() : nullptr, starts.as<int32_t>()},
          ids.shape()[0], 1);
  return starts;
}

}  // namespace bitgrad
