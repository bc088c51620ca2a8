// Quantization and dequantization of tensors: one kernel pass, plus the checks that kernels do not make.
#include "bitgrad/quant/quantizer.h"

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "kernels/elementwise.h"
#include "kernels/flag.h"
#include "kernels/map/fill.h"
#include "kernels/quantize.h"
#include "quant/blocks.h"
#include "quant/map/scales.h"
#include "quant/values.h"

namespace bitgrad {
namespace {

void check_numbers(const Tensor& x, bool bf16) {
  require(x.defined(), "quantize", "x is undefined.");
  require(!x.quant(), "quantize", "x ", x, " is quantized already (scheme ", x.quant() ? x.quant()->scheme : "",
          "). Dequantize it first.");
  require(x.dtype() == dtypes::fp32 || (bf16 && x.dtype() == dtypes::bf16), "quantize", "dtype of x: got ", x,
          ", expected fp32", bf16 ? " or bf16" : "", '.');
  require(x.layout() == layouts::canonical, "quantize", "x is in layout ", x.layout(), ", expected canonical.");
}

Tensor target(const QuantSpec& spec, const Tensor& x, const QuantizeOptions& options) {
  if (options.into == nullptr) return Tensor::empty(x.shape(), spec.dtype, options.kind);
  const Tensor& into = *options.into;
  require(into.shape() == x.shape() && into.dtype() == spec.dtype && into.layout() == layouts::canonical, "quantize",
          "the tensor to write into: got ", into, " in layout ", into.layout(), ", expected ", x.shape(), ' ',
          spec.dtype, ", canonical.");
  return into;
}

// The destination of codes in layout `transposed`; undefined if not requested.
Tensor transposed_target(Tensor& codes, const QuantizeOptions& options) {
  if (!options.transposed) return {};
  Tensor transposed = codes.in_layout(layouts::transposed);
  if (transposed.defined()) return transposed;
  transposed = Tensor::empty_layout(codes.shape(), codes.dtype(), layouts::transposed, MemoryKind::kSaved);
  codes.attach_layout(transposed);
  return transposed;
}

const RandomStream* draws(const QuantSpec& spec, const QuantizeOptions& options) {
  if (spec.rounding == Rounding::kNearest) return nullptr;
  require(options.sr != nullptr, "quantize", "stochastic rounding to ", spec.dtype,
          " needs a random stream: got none.");
  return options.sr;
}

// Codebooks do not clamp, so nothing is clipped; standardized values have their own backward.
bool needs_mask(const QuantSpec& spec, const CodeRange& range) {
  return ste_rule(spec) == SteRule::kClip && range.rule != CodeRule::kCodebook && range.rule != CodeRule::kAtLeast;
}

Tensor with_params(const QuantSpec& spec, const Tensor& x, std::shared_ptr<const QuantParams> params,
                   const QuantizeOptions& options, bool bf16) {
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  quantizer.check(spec, false);
  check_numbers(x, bf16);
  require(params != nullptr, "quantize", "no scales for x ", x, ". Fit them first, or use quantize_dynamic.");
  const RandomStream* sr = draws(spec, options);
  Tensor codes = target(spec, x, options).with_quant(std::move(params));
  const Tensor transposed = transposed_target(codes, options), sums = row_sums_place(codes);
  const CodeRange range = quantizer.code_range(spec);
  std::optional<FlagWord> flag;
  if (options.flags == nullptr) flag.emplace();
  kernels::QuantizeArgs args;
  args.rows = x.rows();
  args.cols = x.cols();
  args.x = {x.data(), x.dtype()};
  args.ldx = x.stride() * 8 / x.dtype().bits();
  args.dtype = spec.dtype;
  args.codes = codes.data();
  args.stride = codes.stride();
  args.rule = range.rule;
  args.lo = range.lo;
  args.hi = range.hi;
  const detail::KernelScales scales(range, codes);
  args.scale = scales.map();
  args.sr = sr;
  args.first_element = options.first_element;
  args.flags = flag ? flag->word() : options.flags;
  if (sums.defined()) args.row_sums = sums.as<int32_t>();
  if (options.mask != nullptr) {
    *options.mask = Tensor();
    if (needs_mask(spec, range)) {
      *options.mask = Tensor::empty({x.rows(), x.cols()}, dtypes::bint1);
      args.ste = SteRule::kClip;
      args.mask = static_cast<uint64_t*>(options.mask->data());
    }
  }
  if (x.numel() > 0)
    transposed.defined() ? kernels::quantize_transposed(args, transposed.data()) : kernels::quantize(args);
  if (flag)
    flag->check([shape = x.shape(), from = x.dtype(), dtype = spec.dtype, scheme = quantizer.name()] {
      fail_with(ErrorCode::kNonFinite, "quantize", "x ", shape, ' ', from, " holds NaN or Inf: it has no codes of ",
                dtype, " (scheme ", scheme, ").");
    });
  return codes;
}

}  // namespace

Tensor detail::quantize_fused_on_device(const Quantizer& quantizer, const QuantSpec& spec, const Tensor& x,
                                        const QuantizeOptions& options) {
  if (current_device().is_cpu() || x.numel() == 0 || spec.rounding != Rounding::kNearest) return {};
  if (options.mask != nullptr && needs_mask(spec, quantizer.code_range(spec))) return {};
  const Quantizer::FitAndCode make = quantizer.fit_and_code(spec);
  if (make == nullptr) return {};
  Tensor codes = target(spec, x, options);
  const Tensor transposed = transposed_target(codes, options);
  if (codes.dtype().bits() == 1)
    row_sums_place(codes);
  else
    codes.attach_row_sums({});
  const Tensor values = quantizer.reads_bf16() ? x : widened(x);
  return codes.with_quant(std::make_shared<const QuantParams>(make(spec, values, codes, transposed)));
}

namespace {

// quantize_dynamic to int8 by absmax with one scale per row, or per group of a row, on the CPU: scales and codes from
// two reads of x, as a matrix of such rows. Nothing is clamped, because abs x <= 127 s up to rounding, so rule clip
// passes everything and needs no mask. Returns an undefined tensor, without a visible effect, in all other cases and if
// x contains NaN or Inf.
Tensor quantize_fused_on_cpu(const Quantizer& quantizer, const QuantSpec& spec, const Tensor& x,
                             const QuantizeOptions& options) {
  const Granularity& g = spec.granularity;
  const bool groups = g.kind == Granularity::kGroup && g.axis != 0 && x.cols() % g.group == 0;
  if (!(g.per_row() || groups) || spec.dtype != dtypes::int8 || spec.rounding != Rounding::kNearest || spec.div ||
      options.transposed || !x.contiguous() || x.numel() == 0 || !current_device().is_cpu())
    return {};
  const std::optional<kernels::RowFit> fit = quantizer.row_fit(spec);
  if (!fit || fit->rule != kernels::RowFit::kAbsmax || fit->hi != 127 || fit->eps != 0x1p-126f ||
      fit->rounding != ScaleRounding())
    return {};
  const Tensor codes = target(spec, x, options);
  if (codes.stride() != x.cols()) return {};
  kernels::Int8OrdersArgs args;
  args.cols = groups ? g.group : x.cols();
  args.rows = x.numel() / args.cols;
  const Tensor scales = Tensor::empty({args.rows}, dtypes::fp32, MemoryKind::kQuantState);
  args.x = x.data();
  args.bf16 = x.dtype() == dtypes::bf16;
  args.by_row.scales = scales.as<float>();
  args.by_row.codes = static_cast<int8_t*>(codes.data());
  args.by_row.stride = args.cols;
  if (!kernels::quantize_int8_orders(args)) return {};
  if (options.mask != nullptr) *options.mask = Tensor();
  return codes.with_quant(std::make_shared<const QuantParams>(detail::params_with(quantizer.name(), spec, scales)));
}

Tensor with_fitted_params(const QuantSpec& spec, const Tensor& x, const QuantizeOptions& options, bool bf16) {
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  quantizer.check(spec, false);
  check_numbers(x, bf16);
  QuantParams params;
  const detail::FlagScope scope(options.flags);
  if (Tensor made = detail::quantize_fused_on_device(quantizer, spec, x, options); made.defined()) return made;
  if (Tensor made = quantize_fused_on_cpu(quantizer, spec, x, options); made.defined()) return made;
  try {
    params = quantizer.fit(spec, quantizer.reads_bf16() ? x : widened(x));
  } catch (const Error& error) {
    if (options.flags == nullptr || error.code() != ErrorCode::kNonFinite || !current_device().is_cpu()) throw;
    // The caller reads the flag later and drops the step; until then any valid scales will do.
    *options.flags |= kFlagNonFinite;
    params = quantizer.fit(spec, Tensor::zeros(x.shape(), dtypes::fp32, MemoryKind::kWorkspace));
  }
  return with_params(spec, x, std::make_shared<const QuantParams>(std::move(params)), options, bf16);
}

}  // namespace

Tensor row_sums_place(Tensor& codes, bool weight) {
  if (codes.device().is_cpu() || codes.device() != current_device() || (device_isa() & isa::kWgmma) == 0) return {};
  const bool bytes = codes.dtype() == dtypes::int8 || codes.dtype() == dtypes::uint8;
  if (!codes.dtype().is_code() || (codes.dtype().bits() != 1 && !bytes) || codes.numel() == 0) return {};
  if (!codes.row_sums().defined() && (!bytes || weight))
    codes.attach_row_sums(Tensor::empty({codes.rows()}, dtypes::int32, MemoryKind::kDerived));
  return codes.row_sums();
}

SteRule ste_rule(const QuantSpec& spec) { return spec.ste ? *spec.ste : find_quantizer(spec.scheme).default_ste(); }

Tensor quantize_tensor(const QuantSpec& spec, const Tensor& x, std::shared_ptr<const QuantParams> params,
                       const QuantizeOptions& options) {
  return with_params(spec, x, std::move(params), options, /*bf16=*/false);
}

Tensor quantize_dynamic(const QuantSpec& spec, const Tensor& x, const QuantizeOptions& options) {
  return with_fitted_params(spec, x, options, /*bf16=*/false);
}

Tensor detail::quantize_values(const QuantSpec& spec, const Tensor& x, std::shared_ptr<const QuantParams> params,
                               const QuantizeOptions& options) {
  return params ? with_params(spec, x, std::move(params), options, /*bf16=*/true)
                : with_fitted_params(spec, x, options, /*bf16=*/true);
}

void detail::dequantize_rows(const Tensor& codes, const Tensor& to) {
  kernels::DequantizeArgs args;
  args.rows = codes.rows();
  args.cols = args.ldy = codes.cols();
  args.dtype = codes.dtype();
  args.codes = codes.data();
  args.stride = codes.stride();
  args.scale = codes.scale_map();
  args.y = to.as<float>();
  if (codes.numel() > 0) kernels::dequantize(args);
}

Tensor dequantize_tensor(const Tensor& x, MemoryKind kind) {
  require(x.defined(), "dequantize", "x is undefined.");
  require(x.dtype().is_code(), "dequantize", "dtype of x: got ", x, ", expected codes of at most 8 bits.");
  require(x.layout() == layouts::canonical, "dequantize", "x is in layout ", x.layout(), ", expected canonical.");
  Tensor y = Tensor::empty(x.shape(), dtypes::fp32, kind);
  detail::dequantize_rows(x, y);
  return y;
}

Tensor widened(const Tensor& x) {
  if (x.dtype() != dtypes::bf16) return x;
  const Tensor from = x.contiguous() ? x : x.clone(MemoryKind::kWorkspace);
  Tensor out = Tensor::empty(x.shape(), dtypes::fp32, MemoryKind::kWorkspace);
  kernels::from_bf16(from.numel(), from.as<uint16_t>(), out.as<float>());
  return out;
}

// Of quantizers without ranges and without learned parts.
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

namespace bitgrad::detail {

KernelScales::KernelScales(const CodeRange& range, const Tensor& codes_or_numbers)
    : map_(codes_or_numbers.scale_map()) {
  if (range.from_lowest) from_lowest(range, *codes_or_numbers.quant());
  if (range.from_statistic) {
    const QuantParams& params = *codes_or_numbers.quant();
    require(params.statistic != nullptr, params.scheme, "the params of ", codes_or_numbers,
            " lack the scheme's statistic. Fit them to values.");
    map_.offset = params.statistic->as<float>();
  }
  if (range.rule == CodeRule::kTimes || range.rule == CodeRule::kTanh) {
    const int64_t count = map_.scale == nullptr ? 1 : codes_or_numbers.quant()->scale->numel();
    steps_ = Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace);
    run_map(maps::FillFloats{static_cast<float>(range.hi), steps_.as<float>()}, count);
    map_.scale = steps_.as<float>();
    if (!range.from_statistic) map_.offset = nullptr;
  }
}

void KernelScales::from_lowest(const CodeRange& range, const QuantParams& params) {
  ensure(map_.scale != nullptr && map_.offset != nullptr, "quantize", "scheme ", params.scheme,
         " has a scale and an offset");
  const int64_t count = params.scale->numel();
  lowest_ = Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace);
  run_map(maps::LowestNumbers{map_.scale, map_.offset, static_cast<float>(range.lo), lowest_.as<float>()}, count);
  map_.offset = lowest_.as<float>();
  if (range.lo == 0) return;
  zero_ = Tensor::empty({count}, dtypes::int32, MemoryKind::kWorkspace);
  run_map(maps::FillInts{static_cast<int32_t>(range.lo), zero_.as<int32_t>()}, count);
  map_.zero = zero_.as<int32_t>();
}

}  // namespace bitgrad::detail
