// Statistics of low-bit tensors: code usage, saturation, noise, scales, flips and oscillation. Read only. Formulas and
// sources: docs/quantization_reports.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/parameter.h"

namespace bitgrad {

// Statistics of one tensor of codes and the values they stand for. nullopt: undefined for the scheme, or the values are
// unknown. Fractions are relative to the number of elements; an empty tensor has none.
struct QuantStatistics {
  int64_t elements = 0;
  // Elements per code, in the order of the dtype's record: qmin .. qmax; -1, +1; or levels 0, 1, ...
  std::vector<int64_t> histogram = {};
  int64_t dead_codes = 0;  // codes of the dtype that no element uses
  double entropy = 0;      // bits per element, 0 .. entropy_limit = log2 of the number of codes
  double entropy_limit = 0;
  std::optional<double> at_ends = {};  // fraction at the smallest or largest code; only dtypes with three or more codes
  std::optional<double> saturated = {};  // fraction whose code before clamping is out of range; only schemes that round
  // Fraction for which the straight-through rule passes a gradient of 1 as a nonzero value.
  std::optional<double> pass = {};
  std::optional<double> sqnr_db = {};  // 10 log10(sum x^2 / sum (x - value)^2); +-infinity if one sum is 0
  struct Scale {
    double least = 0, mean = 0, largest = 0;
  };
  std::optional<Scale> scale = {};  // nullopt: the scheme has no scales
};

// `codes` are canonical with QuantParams; `x`, fp32 of the same shape, holds the values they were made from, or is
// undefined. Rounding is assumed to be to nearest. Throws Error for other tensors.
QuantStatistics quant_statistics(const QuantSpec& spec, const Tensor& codes, const Tensor& x = {});
// Statistics of a low-bit parameter's current codes and scales against its current master, which may have moved since
// the last requantization. Throws Error for a float parameter.
QuantStatistics quant_statistics(const Parameter& parameter);

// One JSON object. Keys: docs/quantization_reports.md.
std::string to_json(const QuantStatistics& statistics);

// Number of elements whose codes differ; scales are ignored. Throws Error unless both are canonical with equal dtype
// and shape.
int64_t count_flips(const Tensor& before, const Tensor& now);
// Mean of abs(now - before) / before over the scales that were not 0. 0 if neither has scales; nullopt if their counts
// differ or all were 0.
std::optional<double> scale_drift(const QuantParams& before, const QuantParams& now);

// Watches the codes of one tensor over consecutive requantizations. A reversal is a change of a code in the opposite
// direction to its previous change (Nagel et al. 2022, arXiv 2203.11086, section 2.3). Keeps a copy of the codes and 3
// bits per element.
class CodeWatch {
 public:
  explicit CodeWatch(const Tensor& codes);
  // Call after each requantization. Throws Error if dtype or shape changed.
  void observe(const Tensor& codes);
  bool matches(const Tensor& codes) const { return codes.dtype() == last_.dtype() && codes.shape() == last_.shape(); }

  int64_t elements() const { return last_.numel(); }
  int64_t observations() const { return observations_; }
  int64_t flips() const { return flips_; }          // changed codes, summed over observations
  int64_t reversals() const { return reversals_; }  // how many of those were reversals
  int64_t reversed() const { return reversed_; }    // elements with at least one reversal

 private:
  Tensor last_, state_;  // state: int64 [blocks of 64 elements, 3]; bit masks: has changed, last went up, was reversed
  int64_t observations_ = 0, flips_ = 0, reversals_ = 0, reversed_ = 0;
};

}  // namespace bitgrad
