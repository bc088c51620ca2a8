#include "train/interop/gguf_choice.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "train/interop/matrix_parts.h"

namespace bitgrad::interop {
namespace {

// In ascending order of bits per element. TQ1_0 is omitted: it is slow to unpack, and TQ2_0 has the same rows and
// codes.
constexpr GgufType kTypes[] = {GgufType::kQ1_0, GgufType::kTQ2_0, GgufType::kQ2_0, GgufType::kQ4_0,
                               GgufType::kQ4_1, GgufType::kQ5_0,  GgufType::kQ5_1, GgufType::kQ8_0};

double largest_difference(const Tensor& a, const Tensor& b) {
  double error = 0, largest = 0;
  for (int64_t r = 0; r < a.rows(); ++r) {
    const std::vector<double> x = a.row_slice(r, r + 1).values(), y = b.row_slice(r, r + 1).values();
    for (size_t i = 0; i < x.size(); ++i) {
      error = std::max(error, std::abs(x[i] - y[i]));
      largest = std::max(largest, std::abs(x[i]));
    }
  }
  return largest == 0 ? 0 : error / largest;
}

// Keeps the most informative refusal: of the first type that accepts the codes but not their rows or scales.
struct Refusal {
  std::string reason = {};
  bool of_codes = false;
  void add(const GgufFit& fit) {
    const bool codes = fit.why.find("does not hold codes") != std::string::npos ||
                       fit.why.find("is for codes from 0 on") != std::string::npos;
    if (reason.empty() || (of_codes && !codes)) {
      reason = fit.why;
      of_codes = codes;
    }
  }
};

bool one_plain_scale(const Tensor& t) {
  const ScaleMap map = t.scale_map();
  return map.per_tensor() && map.scale != nullptr && map.zero == nullptr && map.offset == nullptr;
}

// The first type that stores the codes exactly.
bool choose_exact(const Tensor& t, GgufChoice& choice) {
  for (const GgufType type : kTypes) {
    const GgufFit fit = gguf_fit(t, type);
    if (fit.kind != GgufFit::Kind::kExact) continue;
    choice.type = type;
    return true;
  }
  return false;
}

}  // namespace

GgufChoice choose_gguf_type(const Tensor& tensor, bool scale_tensor) {
  GgufChoice choice;
  if (!tensor.dtype().is_code()) {
    const GgufFit fit = gguf_fit(tensor, GgufType::kF32);
    choice.kind = fit.kind, choice.reason = fit.why, choice.error = fit.largest_error;
    return choice;
  }
  if (choose_exact(tensor, choice)) return choice;
  if (scale_tensor && one_plain_scale(tensor) && choose_exact(tensor.without_quant(), choice)) {
    choice.one_scale = true;
    return choice;
  }
  Refusal refusal;
  for (const GgufType type : kTypes) {
    const GgufFit fit = gguf_fit(tensor, type);
    if (fit.kind == GgufFit::Kind::kRounded) {
      choice.type = type, choice.kind = fit.kind, choice.reason = fit.why;
      choice.error = largest_difference(tensor, with_fp16_scales(tensor));
      return choice;
    }
    refusal.add(fit);
  }
  choice.kind = GgufFit::Kind::kRefused;
  choice.reason = refusal.of_codes ? concat("no type holds codes of ", tensor.dtype()) : refusal.reason;
  return choice;
}

}  // namespace bitgrad::interop
