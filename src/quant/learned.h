// The schemes with learned parts (lsq, lsq_plus, pact): params have one learned value per block and part.
#pragma once

#include "quant/checks.h"
#include "quant/map/learned.h"
#include "quant/straight_through.h"

namespace bitgrad::detail {

inline constexpr float kLearnedFloor = 0x1p-20f;

// Of codes 0 to qmax, the one of 0 in a block of zeros: no end, as nothing is learned there.
inline float middle_code(const DTypeInfo& info) { return info.qmax > 1 ? static_cast<float>(info.qmax / 2) : 0.5f; }

class LearnedQuantizer : public BuiltinQuantizer {
 public:
  QuantParams fit(const QuantSpec& spec, const Tensor& x) const final {
    return params_of(spec, first_learned(spec, x));
  }

 protected:
  // check_common, and a granularity of tensor or channel.
  void check_learned(const QuantSpec& spec, const Options& legal) const;
  // Throws Error unless there is one fp32 tensor of finite values per part, all of one length.
  void require_parts(const QuantSpec& spec, std::span<const Tensor> learned) const;
};

// max(learned, kLearnedFloor), memory kind quant_state.
Tensor at_least_floor(const Tensor& learned);

// Round scales and offsets in place as the spec requests. Error(kNonFinite) if one is out of range.
void round_scales(const QuantSpec& spec, const Tensor& scale);
void round_offsets(const QuantSpec& spec, const Tensor& offset);

// sums[j] += the sum of the terms of the elements in block j of x, in the order of docs/numerics.md section 8, in
// pieces of whole rows of at most 65536 elements. Map: a map of quant/map/learned.h.
template <typename Map>
void add_sums(const QuantParams& params, const Tensor& x, Map map, const Tensor& sums);

// Rows per piece, and rows whose terms one map computes: several pieces, or one on the CPU.
struct LearnedRows {
  int64_t of_piece, max_rows;
};
LearnedRows learned_rows(const Tensor& x);
// Adds terms [rows, cols] of the rows that start at row `first`.
void add_terms(const QuantParams& params, const Tensor& terms, int64_t first, int64_t rows_of_piece,
               const Tensor& sums);

template <typename Map>
void add_sums(const QuantParams& params, const Tensor& x, Map map, const Tensor& sums) {
  const LearnedRows rows = learned_rows(x);
  const maps::q::LearnedPiece full = map.piece;
  const int64_t cols = x.cols();
  for (int64_t r = 0; r < x.rows(); r += rows.max_rows) {
    const int64_t count = std::min(rows.max_rows, x.rows() - r);
    const Tensor terms = Tensor::empty({count, cols}, dtypes::fp32, MemoryKind::kWorkspace);
    map.piece = full.from(r * cols, full.elements.map.index(r, 0), terms.as<float>());
    run_elements(map, map.piece.elements, count);
    add_terms(params, terms, r, rows.of_piece, sums);
  }
}

}  // namespace bitgrad::detail
