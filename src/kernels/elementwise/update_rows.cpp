// The step of one parameter as a sequence of kernels: the reference for the single kernel of devices. CPU training does
// not use it; it runs src/optim/row_step.cpp, which is bit-identical.
#include "kernels/update_rows.h"

#include <cmath>
#include <cstring>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/step_scalars.h"
#include "kernels/kernel_table.h"
#include "kernels/map/fill.h"
#include "kernels/map/scales.h"
#include "kernels/map/straight_through.h"
#include "kernels/pack.h"
#include "kernels/reduce.h"

namespace bitgrad::kernels {
namespace {

int64_t float_bytes(int64_t n) { return n * static_cast<int64_t>(sizeof(float)); }

void clip(const UpdateRowsArgs& args, float* g) {
  const RowGradient& from = args.gradient;
  QuantizeArgs codes;
  codes.rows = args.rows;
  codes.cols = codes.ldx = args.cols;
  codes.x = args.w;
  codes.dtype = from.dtype;
  codes.rule = from.rule;
  codes.lo = from.lo;
  codes.hi = from.hi;
  codes.scale = from.scale;
  clip_gradient(codes, g, g);
}

// Turns the sums in g into the gradient.
void finish(const UpdateRowsArgs& args, float* g) {
  const RowGradient& from = args.gradient;
  const int64_t n = args.rows * args.cols;
  divide(n, g, from.divisor);
  if (from.times_scale && from.scale.scale != nullptr) run_map(maps::TimesScale{{args.cols, from.scale}, g, g}, n);
  if (from.ste == SteRule::kClip) clip(args, g);
  if (from.ste == SteRule::kApproxSign) run_map(maps::ApproxSignGradient{args.w, g, g}, n);
  if (from.ste == SteRule::kNone) run_map(maps::FillFloats{0.0f, g}, n);
  if (from.clip_value > 0) clamp(n, -from.clip_value, from.clip_value, g);
  scale(n, g, from.live != nullptr ? from.live->factor : from.factor, g);
}

void move(const UpdateRowsArgs& args, float* g) {
  const int64_t n = args.rows * args.cols;
  const auto filled = [&](auto rule) {
    rule.n = n;
    rule.w = args.w;
    rule.g = g;
    return rule;
  };
  if (const auto* sgd = std::get_if<SgdArgs>(&args.update)) sgd_update(filled(*sgd));
  if (const auto* adam = std::get_if<AdamArgs>(&args.update)) adam_update(filled(*adam));
  if (args.latent_clamp) clamp(n, -*args.latent_clamp, *args.latent_clamp, args.w);
  if (args.floor) clamp(n, *args.floor, INFINITY, args.w);
}

ReduceArgs row_sums(const UpdateRowsArgs& args, ReduceRule rule, float* out, uint32_t* flags) {
  ReduceArgs sums;
  sums.rule = rule;
  sums.axis = ReduceAxis::kRows;
  sums.rows = args.rows;
  sums.cols = sums.ldx = args.cols;
  sums.x = args.w;
  sums.out = out;
  sums.flags = flags;
  return sums;
}

void fit_ranges(const UpdateRowsArgs& args, const RowFit& fit, const maps::q::BlockOut& scale) {
  const Workspace low(float_bytes(args.rows)), high(float_bytes(args.rows));
  reduce_ranges(row_sums(args, ReduceRule::kMin, low.as<float>(), scale.flags), high.as<float>());
  const maps::q::RangeBlocks blocks{low.as<float>(), high.as<float>(), fit.lo, fit.hi, fit.eps,
                                    scale,           args.codes->zero, nullptr};
  if (fit.rule == RowFit::kAbsmax) run_map(maps::AbsmaxScales{blocks}, args.rows);
  if (fit.rule == RowFit::kSymmetric) run_map(maps::SymmetricScales{blocks}, args.rows);
  if (fit.rule == RowFit::kSymmetricNoClip) run_map(maps::SymmetricNoClipScales{blocks}, args.rows);
  if (fit.rule == RowFit::kAffine) run_map(maps::AffineScales{blocks}, args.rows);
}

void fit_means(const UpdateRowsArgs& args, const RowFit& fit, const maps::q::BlockOut& scale) {
  const Workspace sums(float_bytes(args.rows)), counts(float_bytes(args.rows));
  if (fit.rule == RowFit::kMeanAbs) {
    reduce(row_sums(args, ReduceRule::kSumAbs, sums.as<float>(), scale.flags));
    const maps::q::BlockSizes size{maps::q::BlockSizes::kRows, args.rows, args.cols, 0};
    return run_map(maps::BlockScales{sums.as<float>(), size, true, 1.0f, 1.0f, fit.eps, scale}, args.rows);
  }
  reduce(row_sums(args, ReduceRule::kSumPositive, sums.as<float>(), scale.flags));
  reduce(row_sums(args, ReduceRule::kCountPositive, counts.as<float>(), scale.flags));
  run_map(maps::MeanAboveScales{sums.as<float>(), counts.as<float>(), fit.eps, scale}, args.rows);
}

void fit_scales(const UpdateRowsArgs& args) {
  const RowCodes& codes = *args.codes;
  const RowFit& fit = *codes.fit;
  const maps::q::BlockOut scale{codes.scale, codes.codes.flags, fit.rounding};
  if (args.cols == 0) {
    run_map(maps::FillFloats{maps::q::rounded_scale(fit.rounding, fit.eps), codes.scale}, args.rows);
    if (codes.zero != nullptr) run_map(maps::FillInts{0, codes.zero}, args.rows);
  } else if (fit.rule == RowFit::kMeanAbs || fit.rule == RowFit::kMeanPositive) {
    fit_means(args, fit, scale);
  } else {
    fit_ranges(args, fit, scale);
  }
}

void make_codes(const UpdateRowsArgs& args) {
  const RowCodes& codes = *args.codes;
  if (codes.fit) fit_scales(args);
  QuantizeArgs all = codes.codes;
  all.rows = args.rows;
  all.cols = all.ldx = args.cols;
  all.x = args.w;
  all.mask = nullptr;
  if (codes.fit) all.scale = row_scales(codes);
  if (args.rows * args.cols > 0) quantize(all);
  for (const auto& [layout, out] : {std::pair{layouts::transposed, codes.transposed}, {layouts::frag64, codes.frag64}})
    if (out != nullptr) pack({all.dtype, args.rows, args.cols, all.codes, all.stride, layout, out});
}

}  // namespace

ScaleMap row_scales(const RowCodes& codes) {
  ScaleMap map;
  map.scale = codes.scale;
  map.zero = codes.zero;
  map.row_step = 1;
  return map;
}

void cpu::update_rows(const UpdateRowsArgs& args) {
  const int64_t n = args.rows * args.cols;
  const Workspace space(float_bytes(n));
  float* const g = space.as<float>();
  if (args.gradient.bf16)
    from_bf16(n, static_cast<const uint16_t*>(args.gradient.sums), g);
  else if (n > 0)
    std::memcpy(g, args.gradient.sums, static_cast<size_t>(float_bytes(n)));
  finish(args, g);
  move(args, g);
  if (args.codes) make_codes(args);
}

}  // namespace bitgrad::kernels
