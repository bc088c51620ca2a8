// y = X W^T (+ b) of integer codes, kept as int32 with a scale. docs/numerics.md section 4.
//   acc = sum_i qx qw, exact;  y = acc + rint(b / (sx * sw)), bias and sum clamped to int32
//   scale of y: sx * sw (rounded once)
// Backward: that of linear on the values, in fp32; gbias = column sums of gy (the rounding of the bias passes it).
#include <cmath>

#include "bitgrad/kernels/flag.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/map/integers.h"
#include "ops/product/forward.h"
#include "ops/product/gradient.h"
#include "quant/straight_through.h"

namespace bitgrad {
namespace {

constexpr std::string_view kWhere = "integer_linear";

void check_codes(std::string_view name, const Tensor& t, std::string_view granularities, bool fits) {
  require(t.shape().rank() == 2, kWhere, name, ": got ", t, ", expected a matrix");
  require(is_integer(t.dtype()) && t.dtype().is_code(), kWhere, name, ": got ", t,
          ", expected codes of an int, uint or sign dtype of at most 8 bits. Apply `quantize` first.");
  const ScaleMap map = t.scale_map();
  require(map.zero == nullptr && map.offset == nullptr, kWhere, name, ' ', t, " has ",
          map.zero != nullptr ? "zero points" : "real offsets",
          ", expected none (scheme symmetric or absmax). Use `linear` for codes with a zero point.");
  require(fits, kWhere, name, ": got scales per ", t.quant() ? t.quant()->granularity : Granularity{}, ", expected ",
          granularities);
}

// The params of y: one scale, one per row of x, or one per row of w.
std::shared_ptr<const QuantParams> product_params(const Tensor& x, const Tensor& w) {
  const ScaleMap sx = x.scale_map(), sw = w.scale_map();
  QuantParams params;
  params.scheme = "product";
  int64_t count = 1;
  if (!sw.per_tensor()) {
    params.granularity = Granularity::channel(1);
    count = w.rows();
  } else if (!sx.per_tensor()) {
    params.granularity = Granularity::token();
    count = x.rows();
  }
  const Tensor scale = Tensor::empty({count}, dtypes::fp32);
  run_map(maps::ProductScales{sx.scale, sw.scale, sx.per_tensor() ? 0 : 1, sw.per_tensor() ? 0 : 1, scale.as<float>()},
          count);
  params.scale = std::make_shared<const Tensor>(scale);
  return std::make_shared<const QuantParams>(std::move(params));
}

// rint(bias / scale), each in fp32, clamped to int32. A layer whose input is all zeros has sx = 2^-126: its bias is
// past int32 then, and training goes on.
Tensor rounded_bias(const Tensor& bias, const QuantParams& params) {
  const Tensor out = Tensor::empty(bias.shape(), dtypes::int32, MemoryKind::kWorkspace);
  const FlagWord flag;
  run_map(maps::RoundedBias{bias.as<float>(), params.scale->as<float>(), params.scale->numel() == 1 ? 0 : 1,
                            flag.word(), out.as<int32_t>()},
          bias.numel());
  flag.check([bias] {
    const std::vector<double> numbers = bias.elements();
    for (size_t j = 0; j < numbers.size(); ++j)
      if (!std::isfinite(numbers[j]))
        fail_with(ErrorCode::kNonFinite, kWhere, "bias[", j, "] is ", numbers[j], ", expected a finite number");
    fail_with(ErrorCode::kNonFinite, kWhere, "the bias held NaN or Inf, expected finite values");
  });
  return out;
}

void add_bias(const Tensor& y, const Tensor& bias) {
  ScaleMap by_column;
  by_column.col_step = 1;
  detail::run_elements(maps::AddBias{{y.cols(), by_column}, bias.as<int32_t>(), y.as<int32_t>()}, y.rows());
}

struct IntegerLinear {
  static constexpr std::string_view kName = "integer_linear";
  struct Saved {
    Tensor x, w;
    bool bias = false;
  };

  static void check(const Tensor& x, const Tensor& w, const Tensor& bias) {
    const ScaleMap sx = x.scale_map(), sw = w.scale_map();
    check_codes("x", x, "one per tensor, or per token", sx.per_tensor() || sx.per_row());
    check_codes("w", w, "one per tensor, or per channel(0)", sw.per_tensor() || sw.per_row());
    require(x.cols() == w.cols(), kName, "x has ", x.cols(), " features, w expects ", w.cols(), " (x ", x, ", w ", w,
            ")");
    require(
        sx.per_tensor() || sw.per_tensor(), kName,
        "x has scales per token and w per channel: int32 has no scale for each element. Use one scale per tensor on "
        "one side.");
    const int64_t max = most_products_in_int32(x.dtype(), w.dtype());
    require(x.cols() <= max, kName, "sums of ", x.cols(), " products of ", x.dtype(), " and ", w.dtype(),
            " overflow int32: got ", x.cols(), " features, expected at most ", max,
            ". Use `linear`, which sums in int64.");
    if (!bias.defined()) return;
    require(bias.shape() == Shape{w.rows()} && bias.dtype() == dtypes::fp32, kName, "bias must be [", w.rows(),
            "] fp32, got ", bias);
    require(sx.per_tensor(), kName, "a bias needs x per tensor: got scales per ", x.quant()->granularity,
            ", which would need another integer bias for every row");
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor &x = in[0], &w = in[1], bias = in.size() > 2 ? in[2] : Tensor();
    check(x, w, bias);
    const auto params = product_params(x, w);
    const Tensor offsets = bias.defined() ? rounded_bias(bias, *params) : Tensor();
    const Tensor y = Tensor::empty({x.rows(), w.rows()}, dtypes::int32);
    detail::forward_product(x.without_quant(), w.without_quant(), {}, y);
    if (bias.defined()) add_bias(y, offsets);
    s = {keep(x), keep(w), bias.defined()};
    return y.with_quant(params);
  }

  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    const Tensor& gradient = gy[0];
    if (g[0].wanted())
      detail::gradient_product(ProductMode::kFp32, {"gx", "w", gradient, false, s.w, false, std::nullopt}, g[0]);
    if (g[1].wanted())
      detail::gradient_product(ProductMode::kFp32, {"gw", "x", gradient, true, s.x, false, std::nullopt}, g[1]);
    if (s.bias && g[2].wanted()) g[2].set_rounded(column_sums(wide(gradient)));
  }
};

}  // namespace

Var integer_linear(const Var& x, const Var& w, const Var& bias) {
  return bias.defined() ? apply<IntegerLinear>({x, w, bias}) : apply<IntegerLinear>({x, w});
}

}  // namespace bitgrad
