#include "quant/learned.h"

#include <cmath>

#include "quant/blocks.h"

namespace bitgrad::detail {

void LearnedQuantizer::check_learned(const QuantSpec& spec, const Options& legal) const {
  check_common(*this, spec, legal);
  const Granularity::Kind kind = spec.granularity.kind;
  require(kind == Granularity::kTensor || kind == Granularity::kChannel, name(), "granularity of learned numbers: got ",
          spec.granularity, ", expected tensor or channel. A token or a group has no number that lasts.");
}

void LearnedQuantizer::require_parts(const QuantSpec& spec, std::span<const Tensor> learned) const {
  const std::vector<LearnedPart> parts = this->learned(spec);
  require(learned.size() == parts.size(), name(), "learned parts: got ", learned.size(), ", expected ", parts.size(),
          '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor& t = learned[i];
    require(t.defined() && t.dtype() == dtypes::fp32 && !t.quant() && t.shape().rank() == 1 &&
                t.numel() == learned[0].numel(),
            name(), "learned ", parts[i].name, ": got ", t, ", expected one fp32 number per block.");
    for (int64_t j = 0; j < t.numel(); ++j)
      if (!std::isfinite(t.as<float>()[j]))
        fail_with(ErrorCode::kNonFinite, name(), "learned ", parts[i].name, " of block ", j, ": got ", t.as<float>()[j],
                  ", expected a finite number.");
  }
}

Tensor learned_tensor(std::span<const float> numbers) {
  const Tensor out = Tensor::empty({static_cast<int64_t>(numbers.size())}, dtypes::fp32, MemoryKind::kQuantState);
  std::copy(numbers.begin(), numbers.end(), out.as<float>());
  return out;
}

void add_piece(const QuantParams& params, const Tensor& terms, int64_t first, const Tensor& sums) {
  const Granularity& g = params.granularity;
  const std::vector<float> piece = Blocks(params.scheme, g, terms).sums();
  float* to = sums.as<float>() + (g.kind == Granularity::kChannel && g.axis == 0 ? first : 0);
  for (size_t j = 0; j < piece.size(); ++j) to[j] += piece[j];
}

}  // namespace bitgrad::detail
