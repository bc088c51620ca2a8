// Family reduce: every rule of src/kernels/reduce/rules.inc (contract: kernels/reduce.h).
#include "kernels/reduce.h"

#include "bitgrad/base/error.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/reduce/sums.h"
#include "kernels/map/map.h"
#include "kernels/quantize.h"

namespace bitgrad::cuda {

template <typename X>
struct Operands {
  const X* x;
  const float *times, *centers;
  float* out;
  uint32_t* flags;
};

#define BITGRAD_CONSTANTS \
  using T = float;        \
  [[maybe_unused]] const T zero = 0.0f, one = 1.0f, inf = __int_as_float(0x7F800000)

#define BITGRAD_REDUCE_RULE(rule, start_value, map, joined)                                                 \
  template <typename X>                                                                                     \
  struct rule##Rule {                                                                                       \
    using Value = float;                                                                                    \
    using Center = float;                                                                                   \
    Operands<X> p;                                                                                          \
    BITGRAD_DEVICE static float start() {                                                                   \
      BITGRAD_CONSTANTS;                                                                                    \
      return start_value;                                                                                   \
    }                                                                                                       \
    BITGRAD_DEVICE static float join(float a, float v) { return joined; }                                   \
    BITGRAD_DEVICE float center(int64_t j) const { return p.centers == nullptr ? 0.0f : p.centers[j]; }     \
    BITGRAD_DEVICE void accumulate(float& a, int64_t at, [[maybe_unused]] float c, bool& nonfinite) const { \
      BITGRAD_CONSTANTS;                                                                                    \
      const T x = widened(p.x[at]);                                                                         \
      [[maybe_unused]] const T t = p.times == nullptr ? zero : p.times[at];                                 \
      nonfinite = nonfinite || x - x != zero;                                                               \
      a = join(a, map);                                                                                     \
    }                                                                                                       \
    BITGRAD_DEVICE void store(int64_t j, float a) const { p.out[j] = a; }                                   \
    BITGRAD_DEVICE void raise() const { or_flag(p.flags, kFlagNonFinite); }                                 \
  };
#include "kernels/reduce/rules.inc"
#undef BITGRAD_REDUCE_RULE
#undef BITGRAD_CONSTANTS

namespace {

sums::Sequences sequences_of(const ReduceArgs& args) {
  if (args.axis == ReduceAxis::kAll) {
    const int64_t n = args.rows * args.cols;
    return {1, 1, args.cols, n, args.ldx, args.ldx != args.cols && args.rows > 1};
  }
  if (args.axis == ReduceAxis::kRows) return {args.rows, 1, args.cols, args.cols, args.ldx, false};
  const int64_t per_row = ceil_div(args.cols, args.group);
  // A single short group per row is the whole row.
  const int64_t group = per_row == 1 && args.cols < args.group ? args.cols : args.group;
  return {args.rows * per_row, per_row, args.cols, group, args.ldx, false};
}

template <template <typename> typename Rule>
void run_rule(const ReduceArgs& args) {
  with_elements(args.x, [&]<typename X>(const X* x) {
    const Rule<X> rule{{x, args.times, args.center, args.out, args.flags}};
    constexpr const char* kName = "reduce_lanes_cuda";
    if (args.axis == ReduceAxis::kColumns) return sums::run_columns(kName, rule, args.rows, args.cols, args.ldx);
    sums::run_lanes(kName, rule, sequences_of(args));
  });
}

constexpr void (*kRules[])(const ReduceArgs&) = {
#define BITGRAD_REDUCE_RULE(rule, start, map, join) run_rule<rule##Rule>,
#include "kernels/reduce/rules.inc"
#undef BITGRAD_REDUCE_RULE
};
constexpr size_t kProducts = std::size(kRules) - 1;  // kSumProduct is kSum with a second operand

}  // namespace

void reduce_lanes_cuda(const ReduceArgs& args) {
  kRules[args.times != nullptr ? kProducts : static_cast<size_t>(args.rule)](args);
}

}  // namespace bitgrad::cuda
