// Family reduce: two sums from a single read (ranges, and the sums for the backward of a normalization), and the check
// for Inf and NaN (contracts: kernels/reduce.h).
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/reduce/sums.h"
#include "kernels/map/map.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"

namespace bitgrad::cuda {

struct alignas(8) Pair {
  float a, b;
};

BITGRAD_DEVICE inline Pair down(Pair v, int by, int width) {
  return {sums::down(v.a, by, width), sums::down(v.b, by, width)};
}

struct NoCenter {};

template <typename X>
struct RangeRule {
  using Value = Pair;
  using Center = NoCenter;
  const X* x;
  float *low, *high;
  uint32_t* flags;
  BITGRAD_DEVICE static Pair start() { return {__int_as_float(0x7F800000), -__int_as_float(0x7F800000)}; }
  BITGRAD_DEVICE static Pair join(Pair a, Pair v) { return {v.a < a.a ? v.a : a.a, v.b > a.b ? v.b : a.b}; }
  BITGRAD_DEVICE NoCenter center(int64_t) const { return {}; }
  BITGRAD_DEVICE void accumulate(Pair& a, int64_t at, NoCenter, bool& nonfinite) const {
    const float v = widened(x[at]);
    nonfinite = nonfinite || v - v != 0.0f;
    a = join(a, {v, v});
  }
  BITGRAD_DEVICE void store(int64_t j, Pair a) const {
    low[j] = a.a;
    high[j] = a.b;
  }
  BITGRAD_DEVICE void raise() const { or_flag(flags, kFlagNonFinite); }
};

template <typename G, typename X>
struct NormRule {
  using Value = Pair;
  using Center = Pair;  // mean, inv
  NormSumsArgs p;
  const G* gy;
  const X* x;
  BITGRAD_DEVICE static Pair start() { return {0.0f, 0.0f}; }
  BITGRAD_DEVICE static Pair join(Pair a, Pair v) { return {a.a + v.a, a.b + v.b}; }
  BITGRAD_DEVICE Pair center(int64_t j) const { return {p.mean[j * p.column_step], p.inv[j * p.column_step]}; }
  BITGRAD_DEVICE void accumulate(Pair& a, int64_t at, Pair c, bool&) const {
    const float g = widened(gy[at]);
    a = join(a, {g, g * ((widened(x[at]) - c.a) * c.b)});
  }
  BITGRAD_DEVICE void store(int64_t j, Pair a) const {
    p.sum_gy[j] = a.a;
    p.sum_gy_xhat[j] = a.b;
  }
  BITGRAD_DEVICE void raise() const {}
};

BITGRAD_GLOBAL void check_finite_kernel(const float* x, int64_t n, uint32_t* flags, bool by_four) {
  const int64_t step = thread_count(), packs = by_four ? n / 4 : 0;
  bool found = false;
  for (int64_t i = thread_index(); i < packs; i += step) {
    const Pack<float, 4> v = load_pack<4>(x + 4 * i);
    for (int k = 0; k < 4; ++k) found = found || v.v[k] - v.v[k] != 0.0f;
  }
  for (int64_t i = 4 * packs + thread_index(); i < n; i += step) found = found || x[i] - x[i] != 0.0f;
  if (found) or_flag(flags, kFlagNonFinite);
}

void reduce_ranges_cuda(const ReduceArgs& args, float* high) {
  const int64_t group = args.axis == ReduceAxis::kRows || args.group > args.cols ? args.cols : args.group;
  const int64_t per_row = args.axis == ReduceAxis::kRows ? 1 : ceil_div(args.cols, args.group);
  with_elements(args.x, [&]<typename X>(const X* x) {
    const RangeRule<X> rule{x, args.out, high, args.flags};
    sums::run_lanes("reduce_ranges_cuda", rule, {args.rows * per_row, per_row, args.cols, group, args.ldx, false});
  });
}

void norm_sums_cuda(const NormSumsArgs& args) {
  constexpr const char* kName = "norm_sums_cuda";
  if (args.clip_gamma != nullptr)
    fail_with(ErrorCode::kDevice, "norm_sums", "the clip rule has no kernel on ", to_string(current_device()), '.');
  const auto run = [&]<typename G, typename X>(const G* gy, const X* x) {
    const NormRule<G, X> rule{args, gy, x};
    if (args.column_step != 0) return sums::run_columns(kName, rule, args.rows, args.cols, args.cols);
    const int64_t n = args.rows * args.cols;
    sums::run_lanes(kName, rule, {1, 1, n, n, n, false});
  };
  with_elements(args.gy, [&](const auto* gy) { with_elements(args.x, [&](const auto* x) { run(gy, x); }); });
}

void check_finite_cuda(int64_t n, const float* x, uint32_t* flags) {
  const bool by_four = lies_on<4>(x);
  launch(check_finite_kernel, cover(by_four ? ceil_div(n, 4) : n, "check_finite_cuda"), x, n, flags, by_four);
}

}  // namespace bitgrad::cuda
