// The schemes with learned parts (lsq, lsq_plus, pact): params made of one number per block and part.
#pragma once

#include "quant/checks.h"
#include "quant/straight_through.h"

namespace bitgrad::detail {

inline constexpr float kLearnedFloor = 0x1p-20f;

class LearnedQuantizer : public Quantizer {
 public:
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const final {
    return params_of(spec, first_learned(spec, x));
  }

 protected:
  // check_common, and one learned number per tensor or channel.
  void check_learned(const QuantSpec& spec, const Options& legal) const;
  // One fp32 tensor of finite numbers per part, all of one length, else Error.
  void require_parts(const QuantSpec& spec, std::span<const Tensor> learned) const;
};

// [count] learned numbers.
Tensor learned_tensor(std::span<const float> numbers);

// sums[j] += the sum of term(e, j) over the elements e of block j of x, in the order of docs/numerics.md section 8, by
// pieces of whole rows of at most 65536 elements.
template <typename Term>
void add_sums(const QuantParams& params, const Tensor& x, const ScaleMap& map, const Tensor& sums, Term&& term);

// The piece that add_sums fills: terms [rows, cols] of the rows from `first` on.
void add_piece(const QuantParams& params, const Tensor& terms, int64_t first, const Tensor& sums);

template <typename Term>
void add_sums(const QuantParams& params, const Tensor& x, const ScaleMap& map, const Tensor& sums, Term&& term) {
  const int64_t cols = x.cols();
  for_row_pieces(x.rows(), 1, 65536 / std::max(int64_t{1}, cols), [&](int64_t begin, int64_t end) {
    const Tensor terms = Tensor::empty({end - begin, cols}, dtypes::fp32, MemoryKind::kWorkspace);
    float* to = terms.as<float>();
    const int64_t first = begin * cols, at = map.index(begin, 0);
    for_elements(end - begin, cols, map, [&](int64_t e, int64_t j) { to[e] = term(first + e, at + j); });
    add_piece(params, terms, begin, sums);
  });
}

}  // namespace bitgrad::detail
