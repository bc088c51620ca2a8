// The gradient gy of a linear layer as the left operand of a backward product: multiplied by the scale of the
// contracted index (folded), then rounded to bf16 or quantized to int8, one block of rows at a time, so that no fp32
// copy of gy is made.
#pragma once

#include <optional>

#include "bitgrad/base/rng.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad::detail {

// Scales and zero points of a stored operand along k contracted indices (its rows) in column c0, gathered as fp32 and
// int32 [k]; undefined if the map has none.
struct Along {
  Tensor scale, zero;
  const float* scales() const { return scale.defined() ? scale.as<float>() : nullptr; }
};
Along along(const ScaleMap& map, int64_t k, int64_t c0);

// gy [rows, cols], fp32 or bf16, dense. transposed: its rows are contracted (gW), else its columns (gx). fold: one
// factor per contracted index, multiplied in (rounded once); nullptr for none. Keeps references to its arguments.
class FoldedGradient {
 public:
  FoldedGradient(const Tensor& gy, bool transposed, const float* fold)
      : gy_(gy), transposed_(transposed), fold_(fold) {}

  int64_t rows() const { return gy_.rows(); }
  int64_t cols() const { return gy_.cols(); }
  bool transposed() const { return transposed_; }
  const Tensor& gy() const { return gy_; }
  const float* fold() const { return fold_; }
  // Number of indices that are not contracted.
  int64_t free() const { return transposed_ ? cols() : rows(); }
  // Rows per block: 65,536 elements, or one row.
  int64_t block_rows() const;
  // Rows [r0, r0 + count), dense: gy itself if there is nothing to do, else computed into `scratch` [count * cols]. CPU
  // only.
  const float* block(int64_t r0, int64_t count, float* scratch) const;

 private:
  const Tensor& gy_;
  bool transposed_;
  const float* fold_;
};

// Rounded to bf16, nearest even, [rows, cols].
Tensor to_bf16_codes(const FoldedGradient& g);

// int8 by scheme absmax (narrow), with one scale per index that is not contracted: token, or channel(1) if transposed.
// An index that contains a NaN or Inf gets scale NaN, so that its gradient is NaN as in fp32. sr: random draws for
// stochastic rounding, element = first_element + row-major index in gy; without it, rounds to nearest.
Tensor to_int8_codes(const FoldedGradient& g, const std::optional<RandomStream>& sr, int64_t first_element);

// The codes that to_int8_codes returns for both products, computed from the same reads of gy. fold: as above; sr: the
// draws of each (nearest if not given), first element 0. codes_transposed: the codes of the transposed product are
// [cols, rows] with one scale per row, on devices that multiply such rows faster.
struct Int8Codes {
  Tensor plain, transposed;
  bool codes_transposed = false;
};
Int8Codes to_int8_codes_both(const Tensor& gy, const float* fold_plain, const float* fold_transposed,
                             const std::optional<RandomStream>& sr_plain,
                             const std::optional<RandomStream>& sr_transposed);

// Sum over the contracted index k of q[f,k] * zero[k], int64, one per index f that is not contracted.
Tensor sums_with_zeros(const Tensor& codes, bool transposed, const Tensor& zero);

}  // namespace bitgrad::detail
