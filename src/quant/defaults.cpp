// Defaults for quantizers without ranges and without learned parts.
#include "bitgrad/base/error.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

QuantParams Quantizer::fit_range(const QuantSpec&, const Tensor&, const Tensor&) const {
  fail(name(),
       "its scales are not computed from a range. Use scheme affine, symmetric, symmetric_no_clip, absmax or "
       "minmax_offset with an observer.");
}

std::vector<Tensor> Quantizer::first_learned(const QuantSpec&, const Tensor&) const {
  fail(name(), "the scheme has no learned parts. Use scheme lsq, lsq_plus or pact.");
}

QuantParams Quantizer::params_of(const QuantSpec&, std::span<const Tensor>) const {
  fail(name(), "the scheme has no learned parts. Use scheme lsq, lsq_plus or pact.");
}

}  // namespace bitgrad
