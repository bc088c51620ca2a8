#include "nn/step_signal.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/log.h"

namespace bitgrad::detail {
namespace {

constexpr double kFarOff = 16;  // a fit that is this many times the step

// The block of each element of a matrix, for granularity tensor and channel.
struct BlockIndex {
  Granularity granularity;
  int64_t cols;
  size_t operator()(int64_t e) const {
    if (granularity.kind == Granularity::kTensor) return 0;
    return static_cast<size_t>(granularity.axis == 0 ? e / cols : e % cols);
  }
};

}  // namespace

std::vector<int64_t> steps_without_signal(const QuantSpec& spec, std::span<const Tensor> learned, float floor,
                                          const Tensor* x) {
  const float* const step = learned[0].as<float>();
  const auto blocks = static_cast<size_t>(learned[0].numel());
  std::vector<int64_t> found;
  for (size_t j = 0; j < blocks; ++j)
    if (step[j] <= floor) found.push_back(static_cast<int64_t>(j));
  if (x == nullptr || x->numel() == 0) return found;
  const double qmin = spec.dtype.info().qmin, qmax = spec.dtype.info().qmax;
  const double per_step = spec.scheme == "pact" ? qmax : 1;  // a clip is qmax steps
  std::vector<bool> inside(blocks);
  std::vector<double> sum(blocks), count(blocks);
  const BlockIndex block{spec.granularity, x->cols()};
  const float* const v = x->as<float>();
  for (int64_t e = 0; e < x->numel(); ++e) {
    const size_t j = block(e);
    const double offset = learned.size() > 1 ? static_cast<double>(learned[1].as<float>()[j]) : 0.0;
    const double d = static_cast<double>(v[e]) - offset, u = d * per_step / static_cast<double>(step[j]);
    if (u > qmin && u < qmax) inside[j] = true;
    sum[j] += std::abs(d);
    count[j] += 1;
  }
  for (size_t j = 0; j < blocks; ++j) {
    if (inside[j] || count[j] == 0 || step[j] <= floor) continue;
    const double fit = 2 * sum[j] / count[j] / std::sqrt(qmax);
    if (fit * per_step >= kFarOff * static_cast<double>(step[j])) found.push_back(static_cast<int64_t>(j));
  }
  return found;
}

int64_t copy_elements(const std::vector<int64_t>& which, const Tensor& from, const Tensor& to, float floor) {
  int64_t changed = 0;
  for (const int64_t j : which) {
    const float value = std::max(from.as<float>()[j], floor);
    if (to.as<float>()[j] == value) continue;
    to.as<float>()[j] = value;
    ++changed;
  }
  return changed;
}

void warn_of_refit(const std::string& path, int64_t n, int64_t all, const char* of) {
  log(LogLevel::kWarning,
      concat(
          path, ": ", n, " of ", all, " learned steps of the ", of, " carried no signal (at their floor, or all codes ",
          "at the ends) and were fitted again. This is said once. A smaller optim.lr or learned.lr_factor keeps them "
          "from falling"));
}

}  // namespace bitgrad::detail
