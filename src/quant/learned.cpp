#include "quant/learned.h"

#include <algorithm>
#include <cmath>

#include "quant/blocks.h"
#include "quant/map/scales.h"

namespace bitgrad::detail {

void LearnedQuantizer::check_learned(const QuantSpec& spec, const Options& legal) const {
  check_common(*this, spec, legal);
  const Granularity::Kind kind = spec.granularity.kind;
  require(kind == Granularity::kTensor || kind == Granularity::kChannel, name(), "granularity of learned values: got ",
          spec.granularity, ", expected tensor or channel. Tokens and groups have no persistent value.");
}

void LearnedQuantizer::require_parts(const QuantSpec& spec, std::span<const Tensor> learned) const {
  const std::vector<LearnedPart> parts = this->learned(spec);
  require(learned.size() == parts.size(), name(), "learned parts: got ", learned.size(), ", expected ", parts.size(),
          '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor& t = learned[i];
    require(t.defined() && t.dtype() == dtypes::fp32 && !t.quant() && t.shape().rank() == 1 &&
                t.numel() == learned[0].numel(),
            name(), "learned ", parts[i].name, ": got ", t, ", expected one fp32 value per block.");
    if (!current_device().is_cpu()) {
      const DataFlag flag;
      kernels::check_finite(t.numel(), t.as<float>(), flag.word());
      flag.check([name = name(), part = parts[i].name] {
        fail_with(ErrorCode::kNonFinite, name, "learned ", part, ": got NaN or Inf, expected finite values.");
      });
      continue;
    }
    for (int64_t j = 0; j < t.numel(); ++j)
      if (!std::isfinite(t.as<float>()[j]))
        fail_with(ErrorCode::kNonFinite, name(), "learned ", parts[i].name, " of block ", j, ": got ", t.as<float>()[j],
                  ", expected a finite number.");
  }
}

Tensor at_least_floor(const Tensor& learned) {
  Tensor out = Tensor::empty(learned.shape(), dtypes::fp32, MemoryKind::kQuantState);
  run_map(maps::NumbersAtLeast{learned.as<float>(), kLearnedFloor, out.as<float>()}, learned.numel());
  return out;
}

void round_scales(const QuantSpec& spec, const Tensor& scale) {
  if (scale_rounding(spec) == ScaleRounding()) return;
  const BlockCheck check;
  run_map(maps::RoundedScales{scale.as<float>(), {scale.as<float>(), check.flags(), scale_rounding(spec)}},
          scale.numel());
  check.numbers(scale, spec.scheme, "learned numbers");
}

void round_offsets(const QuantSpec& spec, const Tensor& offset) {
  if (scale_rounding(spec) == ScaleRounding()) return;
  const BlockCheck check;
  run_map(maps::RoundedOffsets{offset.as<float>(), scale_rounding(spec), {offset.as<float>(), check.flags(), {}}},
          offset.numel());
  check.numbers(offset, spec.scheme, "learned numbers", "offset");
}

LearnedRows learned_rows(const Tensor& x) {
  constexpr int64_t kPieceElements = 65536, kPiecesPerPass = 256;  // on a device: 64 MiB of terms
  const int64_t piece = std::max(int64_t{1}, kPieceElements / std::max(int64_t{1}, x.cols()));
  const bool on_cpu = current_device().is_cpu();
  return {piece, on_cpu ? piece : piece * kPiecesPerPass};
}

void add_terms(const QuantParams& params, const Tensor& terms, int64_t first, int64_t rows_of_piece,
               const Tensor& sums) {
  const Granularity& g = params.granularity;
  const int64_t rows = terms.rows(), cols = terms.cols();
  const bool per_row = g.kind == Granularity::kChannel && g.axis == 0;
  if (per_row) rows_of_piece = rows;  // a row is never split
  const int64_t blocks = per_row ? rows : (g.kind == Granularity::kTensor ? 1 : cols);
  const int64_t pieces = (rows + rows_of_piece - 1) / rows_of_piece, full = rows / rows_of_piece;
  const Tensor part = Tensor::empty({pieces, blocks}, dtypes::fp32, MemoryKind::kWorkspace);
  int64_t done = 0;
  if (blocks == 1 && !per_row && full > 1) {  // full pieces become the rows of one matrix, which sums in the same order
    const Tensor lines = terms.row_slice(0, full * rows_of_piece).reshape({full, rows_of_piece * cols});
    Blocks(params.scheme, Granularity::token(), lines).sums_to(part.as<float>());
    done = full;
  }
  for (; done < pieces; ++done) {
    const Tensor piece = terms.row_slice(done * rows_of_piece, std::min(rows, (done + 1) * rows_of_piece));
    Blocks(params.scheme, g, piece).sums_to(part.as<float>() + done * blocks);
  }
  run_map(maps::AddPieces{part.as<float>(), pieces, blocks, sums.as<float>() + (per_row ? first : 0)}, blocks);
}

}  // namespace bitgrad::detail
