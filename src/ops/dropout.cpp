// Dropout: y = x * keep / (1 - p) (Srivastava et al. 2014). Values: dropped ones become 0; bf16 is widened and rounded
// once. Codes: dropped ones become the code of value 0 and the scale is multiplied by 1/(1-p); bint1, which has no 0,
// becomes ternary. Backward: gx = keep ? gy / (1 - p) : 0, with respect to the value. An element is kept if
// bits16(element) >= rint(p * 65536). The factor 1/(1-p) is computed in double and cast once. Saved: the keep bits.
#include <algorithm>
#include <cmath>

#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/ops.h"
#include "kernels/elementwise.h"
#include "kernels/flag.h"
#include "kernels/map/fill.h"
#include "ops/common.h"
#include "ops/map/codes.h"

namespace bitgrad {
namespace {

constexpr std::string_view kWhere = "dropout";
constexpr std::string_view kHint = " Put dropout before the quantizer.";

const uint64_t* bits_of(const Tensor& mask) { return static_cast<const uint64_t*>(mask.data()); }

Tensor keep_bits(const Tensor& x, const DropoutOptions& options) {
  Tensor mask = Tensor::empty({x.rows(), x.cols()}, dtypes::bint1);
  kernels::KeepMaskArgs args;
  args.rows = x.rows();
  args.cols = x.cols();
  args.stream = &options.stream;
  args.first_element = options.first_row * x.cols();
  args.threshold = static_cast<uint32_t>(std::rint(options.p * 65536.0));
  args.mask = static_cast<uint64_t*>(mask.data());
  if (x.numel() > 0) kernels::keep_mask(args);
  return mask;
}

// y = keep ? x * factor : 0; returns y, with the shape of x. fp32 or bf16 each, or both fp64.
Tensor masked(const Tensor& x, const Tensor& mask, double factor, const Tensor& y) {
  if (x.numel() == 0) return y;
  if (x.dtype() != dtypes::fp64) {
    kernels::apply_mask(
        {x.rows(), x.cols(), {x.data(), x.dtype()}, bits_of(mask), static_cast<float>(factor), {y.data(), y.dtype()}});
    return y;
  }
  const int64_t cols = x.cols(), words = (cols + 63) / 64;
  parallel_ranges(x.rows(), std::max(int64_t{1}, 16384 / cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const bool kept = (bits_of(mask)[r * words + c / 64] >> (c % 64)) & 1;
        y.as<double>()[r * cols + c] = kept ? x.as<double>()[r * cols + c] * factor : 0.0;
      }
  });
  return y;
}

// The dtype of codes of `dtype` after dropout.
DType dropped_dtype(DType dtype) { return dtype.kind() == DTypeKind::kSign ? dtypes::ternary : dtype; }

// Throws Error unless value 0 has an exact code for every element.
void check_zero_code(const Tensor& x) {
  const DTypeInfo& info = x.dtype().info();
  const QuantParams* params = x.quant().get();
  require(x.layout() == layouts::canonical, kWhere, "x ", x, " is in layout ", x.layout(), ", expected canonical.");
  require(params == nullptr || !params->offset, kWhere, "dtype ", x.dtype(),
          " with a real offset has no exact code for value 0.", kHint);
  if (info.kind == DTypeKind::kSign) {
    require(x.dtype() == dtypes::bint1, kWhere, "dtype ", x.dtype(),
            ": of kind sign only bint1 has a form with 0, ternary.", kHint);
  } else if (info.kind == DTypeKind::kCodebook) {
    require(std::find(info.levels.begin(), info.levels.end(), 0.0f) != info.levels.end(), kWhere, "codebook ",
            x.dtype(), " has no exact code for value 0.", kHint);
  }
  if (params == nullptr || !params->zero) {
    const bool has_zero =
        info.kind == DTypeKind::kSign || info.kind == DTypeKind::kCodebook || (info.qmin <= 0 && info.qmax >= 0);
    require(has_zero, kWhere, "dtype ", x.dtype(), " has no exact code for value 0: its codes are ", info.qmin, " to ",
            info.qmax, '.', kHint);
    return;
  }
  require(info.kind == DTypeKind::kInt || info.kind == DTypeKind::kUint, kWhere, "dtype ", x.dtype(),
          " with a zero point: expected kind int or uint.");
  const ScaleMap map = x.scale_map();
  require(map.per_tensor() || map.per_row(), kWhere, "zero points of ", x, " per ", params->granularity,
          ": expected per tensor or per row.", kHint);
  const FlagWord flag;
  run_map(maps::FlagOutside{map.zero, info.qmin, info.qmax, flag.word()}, params->zero->numel());
  flag.check([dtype = x.dtype()] {
    fail(kWhere, "dtype ", dtype, " has no exact code for value 0: a zero point is outside its codes ",
         dtype.info().qmin, " to ", dtype.info().qmax, '.', kHint);
  });
}

std::shared_ptr<const QuantParams> scaled(const Tensor& x, float factor) {
  QuantParams params;
  if (x.quant())
    params = *x.quant();
  else
    params.scheme = "fixed";
  const Tensor scale =
      Tensor::empty({scale_count(params.granularity, x.rows(), x.cols())}, dtypes::fp32, MemoryKind::kQuantState);
  if (params.scale)
    kernels::scale(scale.numel(), params.scale->as<float>(), factor, scale.as<float>());
  else
    run_map(maps::Fill{scale.as<float>(), factor}, scale.numel());
  params.scale = std::make_shared<const Tensor>(scale);
  return std::make_shared<const QuantParams>(std::move(params));
}

Tensor dropped_codes(const Tensor& x, const Tensor& mask, float factor) {
  const Tensor y = Tensor::empty(x.shape(), dropped_dtype(x.dtype()));
  const ScaleMap map = x.scale_map();
  kernels::DropCodesArgs args;
  args.rows = x.rows();
  args.cols = x.cols();
  args.from = x.dtype();
  args.to = y.dtype();
  args.in = x.data();
  args.in_stride = x.stride();
  args.mask = bits_of(mask);
  args.zero = map.zero;
  args.zero_step = map.row_step;
  args.out = y.data();
  args.out_stride = y.stride();
  if (x.numel() > 0) kernels::drop_codes(args);
  return y.with_quant(scaled(x, factor));
}

struct Dropout {
  static constexpr std::string_view kName = kWhere;
  struct Saved {
    Tensor mask;
    double factor = 1;
  };

  static Tensor forward(Saved& s, std::span<const Tensor> in, const DropoutOptions& options) {
    const Tensor& x = in[0];
    const bool codes = x.dtype().is_code();
    require(codes || x.dtype() == dtypes::fp32 || x.dtype() == dtypes::fp64 || x.dtype() == dtypes::bf16, kWhere,
            "dtype of x: got ", x, ", expected fp32, bf16, fp64 or codes of at most 8 bits.");
    require(codes || !x.quant(), kWhere, "x ", x, " has scales: expected values without scales.");
    if (codes) check_zero_code(x);
    const Tensor mask = keep_bits(x, options);
    s.factor = 1.0 / (1.0 - options.p);
    s.mask = keep(mask);
    if (codes) return dropped_codes(x, mask, static_cast<float>(s.factor));
    const Tensor from = x.contiguous() ? x : x.clone(MemoryKind::kActivation);
    return masked(from, mask, s.factor, Tensor::empty(x.shape(), x.dtype()));
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    g[0].set_rounded(masked(gy[0], s.mask, s.factor, Tensor::empty(gy[0].shape(), g[0].stored_dtype())));
  }
};

}  // namespace

Var dropout(const Var& x, const DropoutOptions& options) {
  require(options.p >= 0.0 && options.p < 1.0, kWhere, "p: got ", options.p, ", expected 0 <= p < 1.");
  require(options.first_row >= 0, kWhere, "first_row: got ", options.first_row, ", expected at least 0.");
  require(x.defined(), kWhere, "x is undefined.");
  return options.p == 0.0 ? x : apply<Dropout>({x}, options);
}

}  // namespace bitgrad
