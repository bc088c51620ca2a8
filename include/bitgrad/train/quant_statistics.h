// Numbers that say what low-bit training does: use of the codes, saturation, noise, scales, flips and oscillation. All
// read, none changes anything. docs/quantization_reports.md has the formulas and their sources.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/parameter.h"

namespace bitgrad {

// Of one tensor of codes and the numbers that they stand for. none: not defined for the scheme, or the numbers are not
// known. Fractions are parts of the elements; an empty tensor has none.
struct QuantStatistics {
  int64_t elements = 0;
  // Elements of each code of the dtype in the order of records: qmin .. qmax, -1 and +1, levels 0, 1 ...
  std::vector<int64_t> histogram = {};
  int64_t dead_codes = 0;  // codes of the dtype that no element uses
  double entropy = 0;      // bits an element; 0 .. log2 of the number of codes
  double entropy_limit = 0;
  std::optional<double> at_ends = {};    // the least or the greatest code; dtypes of three codes and more
  std::optional<double> saturated = {};  // code before its clamp outside the range; schemes that round
  // A gradient of ones comes through the straight-through rule as another number than 0.
  std::optional<double> pass = {};
  std::optional<double> sqnr_db = {};  // 10 log10(sum x^2 / sum (x - value)^2); +-infinity where one sum is 0
  struct Scale {
    double least = 0, mean = 0, largest = 0;
  };
  std::optional<Scale> scale = {};  // none: the scheme has no scales
};

// `codes`: canonical, with their QuantParams. `x`: the numbers they were made from, fp32 of the same shape, or
// undefined. Rounding counts as to nearest. Throws Error for other tensors.
QuantStatistics quant_statistics(const QuantSpec& spec, const Tensor& codes, const Tensor& x = {});
// Of the codes and scales of a low-bit parameter and its master as they are now (which may have moved on since the last
// requantization). Throws Error for a float parameter.
QuantStatistics quant_statistics(const Parameter& parameter);

// One JSON object; docs/quantization_reports.md has the keys.
std::string to_json(const QuantStatistics& statistics);

// Elements whose codes differ. Both canonical, of one dtype and shape, else Error. Scales are not read.
int64_t count_flips(const Tensor& before, const Tensor& now);
// Mean over the scales that were not 0 of abs(now - before) / before; 0 where neither has scales, none where their
// counts differ or all were 0.
std::optional<double> scale_drift(const QuantParams& before, const QuantParams& now);

// Watches the codes of one tensor over consecutive requantizations. A reversal is a change of a code in the direction
// opposite to that of its last change (Nagel et al. 2022, arXiv 2203.11086, section 2.3). Holds a copy of the codes and
// 3 bits an element.
class CodeWatch {
 public:
  explicit CodeWatch(const Tensor& codes);
  // After each requantization; same dtype and shape, else Error.
  void observe(const Tensor& codes);
  bool matches(const Tensor& codes) const { return codes.dtype() == last_.dtype() && codes.shape() == last_.shape(); }

  int64_t elements() const { return last_.numel(); }
  int64_t observations() const { return observations_; }
  int64_t flips() const { return flips_; }          // changes of all elements in all observations
  int64_t reversals() const { return reversals_; }  // of those, reversals
  int64_t reversed() const { return reversed_; }    // elements with at least one reversal

 private:
  Tensor last_, state_;  // state: int64 [64-element blocks, 3]: has changed, went up, was reversed
  int64_t observations_ = 0, flips_ = 0, reversals_ = 0, reversed_ = 0;
};

}  // namespace bitgrad
