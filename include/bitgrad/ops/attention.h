// Position-aware ops: causal attention and rotary position embeddings. Values [n,t,..] are fp32, bf16 (computed in
// fp32, rounded once) or fp64. docs/numerics.md section 10, "Attention". All throw Error on a wrong shape or dtype.
#pragma once

#include <cstdint>

#include "bitgrad/ops/ops.h"

namespace bitgrad {

struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // divides heads; query heads h * (heads / kv_heads) .. use kv head h
  float scale = 0;       // factor of q k; 0: 1 / sqrt(d)
  float softcap = 0;  // scores s become softcap * tanh(s / softcap) (Gemma 2, arXiv 2408.00118, section 2); 0: no cap
  int64_t first = 0;  // position of q's first row, if keys and values start earlier
  int64_t window =
      0;  // a row at position p sees keys p - window + 1 .. p (Beltagy et al. 2020, arXiv 2004.05150); 0: all
  // Dropout probability on the softmax, in training. Element ((n*heads + h)*t + i)*s + j is kept if bits16(element) of
  // `stream` >= rint(dropout * 65536), and is then divided by 1 - dropout. Redrawn in backward.
  double dropout = 0;
  RandomStream stream = {};  // purpose kDropout, id of the call site's path, step = global microbatch
  // int32 [n,t], ascending along t: row i attends to keys from starts[n,i] on (at most first + i), i.e. to its own
  // document. Undefined: from 0 on.
  Tensor starts = {};
};
// Start of the document that each position of packed sequences belongs to: returns int32 [n,t] for ids [n,t] (int32 or
// int64), namely the position after the last preceding `end`, or 0 if there is none. An end id is the last id of its
// document.
Tensor document_starts(const Tensor& ids, int64_t end);
// y[n,i,h,:] = sum over keys j <= first + i of softmax_j(scale * q[n,i,h,:] k[n,j,g,:]) v[n,j,g,:], where g is the kv
// head of query head h (Vaswani et al. 2017, arXiv 1706.03762, section 3.2, masked; grouped queries: Ainslie et al.
// 2023, arXiv 2305.13245). q [n,t,heads*d]; k and v [n,s,kv_heads*d], s >= first + t, or fp32 on the CPU without
// gradients in blocks of 64 keys (KvCache): [n,b,kv_heads*d,64], [n,b,kv_heads,64,d], s = 64*b. y as q. A row depends
// only on rows up to its position: a single row of q gives the same bits as it does among others. Keeps
// q, k, v, y and one fp32 value per row and head for backward; the score matrix is never materialized.
Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options);
// The same for fused x [n,t,(heads + 2 * kv_heads)*d]: q, k and v of a row side by side, as one product writes them.
// Requires first = 0.
Var attention(const Var& x, const AttentionOptions& options);
// Fused x [n,t,(heads + 2 * kv_heads)*d] as above, with q and k normalized by their root mean square and v as it is:
//   y = (x / sqrt(mean(x^2) + eps)) * gamma
// over the features of each head (gamma [d]; Henry et al. 2020, arXiv 2010.04245, and Qwen3, Gemma 3), or over those of
// all heads of a row at once (q_gamma [heads*d], k_gamma [kv_heads*d]; OLMo 2). gamma: fp32, fp64 for fp64.
Var qk_norm(const Var& x, const Var& q_gamma, const Var& k_gamma, int64_t heads, int64_t kv_heads, float eps = 1e-6f);

// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864, equation 34).
struct RopeOptions {
  int64_t dim = 0;      // head size, even
  double base = 10000;  // pair i rotates by angle p * base^(-2i/dim) at position p
  bool interleaved =
      false;  // pairs are elements 2i and 2i + 1 (Llama's original files); else i and i + dim/2 (Hugging Face)
  // Llama 3.1 scaling: frequencies of wavelengths above original / low are divided by factor, those of wavelengths
  // below original / high are unchanged, with linear interpolation in between. factor 1: no scaling.
  double factor = 1, low = 1, high = 4;
  int64_t original = 8192;

  bool operator==(const RopeOptions&) const = default;
};
// Returns the table for positions 0 .. positions - 1, fp32 [positions, dim]: dim/2 cosines, then dim/2 sines. Angles
// are computed in double and each value is rounded once. On the current device.
Tensor rope_table(int64_t positions, const RopeOptions& options);
// Rotates each head of x [n,t,heads*dim], row i by position first + i of the table. For a pair (a, b):
//   y_a = x_a * cos - x_b * sin, y_b = x_b * cos + x_a * sin, each operation rounded once.
// `rotated` is the number of leading heads to rotate; the rest are copied (v beside q and k). -1: all heads.
Var rope(const Var& x, const Tensor& table, const RopeOptions& options, int64_t first = 0, int64_t rotated = -1);

}  // namespace bitgrad
