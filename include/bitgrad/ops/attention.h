// Ops that know the position of a row in its sequence: causal attention and rotary positions. Values [n,t,..] are fp32,
// bf16 (computed in fp32, rounded once) or fp64. docs/numerics.md section 10, "Attention". All throw Error on a wrong
// shape or dtype.
#pragma once

#include <cstdint>

#include "bitgrad/ops/ops.h"

namespace bitgrad {

struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // divides heads; heads h * (heads / kv_heads) .. share keys and values of head h
  float scale = 0;       // of q k; 0: 1 / sqrt(d)
  int64_t first = 0;     // position of the first row of q, where keys and values begin before it
  // Dropout on the softmax, in training: element ((n*heads + h)*t + i)*s + j is kept where bits16(element) of `stream`
  // >= rint(dropout * 65536), and divided by 1 - dropout there. Drawn again in backward.
  double dropout = 0;
  RandomStream stream = {};  // purpose kDropout, id of the site's path, step = global microbatch
  // int32 [n,t], ascending along t: row i sees keys from starts[n,i] (at most first + i) on, those of its document.
  // Undefined: from 0 on.
  Tensor starts = {};
};
// Where the documents of packed sequences begin: int32 [n,t] of ids int32 or int64 [n,t], the place after the last
// `end` before each, 0 where there is none. An end is the last id of its document.
Tensor document_starts(const Tensor& ids, int64_t end);
// y[n,i,h,:] = sum over keys j <= first + i of softmax_j(scale * q[n,i,h,:] k[n,j,g,:]) v[n,j,g,:], g the head of k and
// v that h shares (Vaswani et al. 2017, arXiv 1706.03762, section 3.2, masked; grouped queries: Ainslie et al. 2023,
// arXiv 2305.13245). q [n,t,heads*d], k and v [n,s,kv_heads*d], s >= first + t, y as q. A row depends on the rows up to
// its position alone: one row of q gives the bits that it gives among others. Kept: q, k, v, y and one fp32 number a
// row and head; the scores are never in memory as a whole.
Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options);
// The same of x [n,t,(heads + 2 * kv_heads)*d]: q, k and v of a row side by side, as one product makes them. first: 0.
Var attention(const Var& x, const AttentionOptions& options);

// Rotary positions (Su et al. 2021, arXiv 2104.09864, equation 34).
struct RopeOptions {
  int64_t dim = 0;      // of a head, even
  double base = 10000;  // pair i turns by p * base^(-2i/dim) at position p
  bool interleaved =
      false;  // pairs are elements 2i and 2i + 1 (Llama's own files); else i and i + dim/2 (Hugging Face)
  // Llama 3.1: frequencies of waves longer than original / low are divided by factor, those shorter than original /
  // high stay, between them is a straight line. factor 1: none.
  double factor = 1, low = 1, high = 4;
  int64_t original = 8192;
};
// Cosines and sines of positions 0 .. positions - 1, [positions, dim] fp32: dim/2 cosines, then as many sines. Angles
// in double, each number rounded once. On the current device.
Tensor rope_table(int64_t positions, const RopeOptions& options);
// Turns each head of x [n,t,heads*dim], row i by position first + i of the table: for the pair (a, b)
//   y_a = x_a * cos - x_b * sin, y_b = x_b * cos + x_a * sin, each operation rounded once.
// turned: so many heads turn, those after them are copied (v beside q and k); -1: all.
Var rope(const Var& x, const Tensor& table, const RopeOptions& options, int64_t first = 0, int64_t turned = -1);

}  // namespace bitgrad
