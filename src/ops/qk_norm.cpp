// Queries and keys normalized before attention: rms_norm of their part of each row.
#include "bitgrad/ops/attention.h"
#include "ops/common.h"

namespace bitgrad {

Var qk_norm(const Var& x, const Var& q_gamma, const Var& k_gamma, int64_t heads, int64_t kv_heads, float eps) {
  constexpr std::string_view kWhere = "qk_norm";
  const int64_t sides = heads + 2 * kv_heads;
  require(heads >= 1 && kv_heads >= 1, kWhere, "got ", heads, " heads of q and ", kv_heads,
          " of k, expected at least 1 of each.");
  require_values(kWhere, "x", x.value());
  require(x.shape().rank() == 3 && x.shape().cols() > 0 && x.shape().cols() % sides == 0, kWhere, "x must be [n,t,(",
          heads, " + 2 * ", kv_heads, ")*d], q, k and v side by side, got ", x.value());
  const int64_t n = x.shape()[0], t = x.shape()[1], dim = x.shape().cols() / sides;
  const auto normed = [&](int64_t first, int64_t count, const Var& gamma, const char* name) {
    const Shape& of = gamma.shape();
    require(of == Shape{dim} || of == Shape{count * dim}, kWhere, name, " must be [", dim, "], for each head, or [",
            count * dim, "], for all of a row, got ", gamma.value());
    const Var part = slice(x, 2, first * dim, (first + count) * dim);
    if (of.numel() == part.shape().cols()) return rms_norm(part, gamma, eps);
    return reshape(rms_norm(reshape(part, {n, t, count, dim}), gamma, eps), part.shape());
  };
  return concatenate({normed(0, heads, q_gamma, "q_gamma"), normed(heads, kv_heads, k_gamma, "k_gamma"),
                      slice(x, 2, (heads + kv_heads) * dim, sides * dim)},
                     2);
}

}  // namespace bitgrad
