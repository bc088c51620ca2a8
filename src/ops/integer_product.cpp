// Shared by integer_linear and integer_conv2d: docs/numerics.md section 4, "Integer networks".
#include "ops/integer_product.h"

#include <cmath>

#include "kernels/flag.h"
#include "ops/common.h"
#include "ops/map/integers.h"
#include "quant/straight_through.h"

namespace bitgrad::detail {
namespace {

void check_codes(std::string_view where, std::string_view name, const Tensor& t, std::string_view granularities,
                 bool fits) {
  require(is_integer(t.dtype()) && t.dtype().is_code(), where, name, ": got ", t,
          ", expected codes of an int, uint or sign dtype of at most 8 bits. Apply `quantize` first.");
  const ScaleMap map = t.scale_map();
  require(map.zero == nullptr && map.offset == nullptr, where, name, ' ', t, " has ",
          map.zero != nullptr ? "zero points" : "real offsets",
          ", expected none (scheme symmetric or absmax). Use `linear` for codes with a zero point.");
  require(fits, where, name, ": got scales per ", t.quant() ? t.quant()->granularity : Granularity{}, ", expected ",
          granularities);
}

}  // namespace

void check_integer_product(std::string_view where, const Tensor& x, const Tensor& w, const Tensor& bias, int64_t k) {
  const ScaleMap sx = x.scale_map(), sw = w.scale_map();
  check_codes(where, "x", x, "one per tensor, or per token", sx.per_tensor() || sx.per_row());
  check_codes(where, "w", w, "one per tensor, or per channel(0)", sw.per_tensor() || sw.per_row());
  require(sx.per_tensor() || sw.per_tensor(), where,
          "x has scales per token and w per channel: int32 has no scale for each element. Use one scale per tensor on "
          "one side.");
  const int64_t max = most_products_in_int32(x.dtype(), w.dtype());
  require(k <= max, where, "sums of ", k, " products of ", x.dtype(), " and ", w.dtype(), " overflow int32: got ", k,
          " features, expected at most ", max, ". Use `linear`, which sums in int64.");
  if (!bias.defined()) return;
  require(bias.shape() == Shape{w.rows()} && bias.dtype() == dtypes::fp32, where, "bias must be [", w.rows(),
          "] fp32, got ", bias);
  require(sx.per_tensor(), where, "a bias needs x per tensor: got scales per ", x.quant()->granularity,
          ", which would need another integer bias for every row");
}

std::shared_ptr<const QuantParams> integer_product_params(const Tensor& x, const Tensor& w) {
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

Tensor rounded_bias(std::string_view where, const Tensor& bias, const QuantParams& params) {
  const Tensor out = Tensor::empty(bias.shape(), dtypes::int32, MemoryKind::kWorkspace);
  const FlagWord flag;
  run_map(maps::RoundedBias{bias.as<float>(), params.scale->as<float>(), params.scale->numel() == 1 ? 0 : 1,
                            flag.word(), out.as<int32_t>()},
          bias.numel());
  flag.check([bias, where = std::string(where)] {
    const std::vector<double> numbers = bias.elements();
    for (size_t j = 0; j < numbers.size(); ++j)
      if (!std::isfinite(numbers[j]))
        fail_with(ErrorCode::kNonFinite, where, "bias[", j, "] is ", numbers[j], ", expected a finite number");
    fail_with(ErrorCode::kNonFinite, where, "the bias held NaN or Inf, expected finite values");
  });
  return out;
}

void add_integer_bias(const Tensor& y, const Tensor& bias) {
  ScaleMap by_column;
  by_column.col_step = 1;
  run_elements(maps::AddBias{{y.cols(), by_column}, bias.as<int32_t>(), y.as<int32_t>()}, y.rows());
}

}  // namespace bitgrad::detail
