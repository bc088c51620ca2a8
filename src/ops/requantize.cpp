// int32 with a scale -> codes of at most 8 bits, or int32 again. docs/numerics.md section 4.
//   requantize:        u = rint(float(acc) * M) + float(z);  q = clamp(u), all in fp32
//                      M = min(fp32(s_in / s_out), largest fp32): an s_out of eps saturates all sums but 0
//   requantize_shift:  u = (acc + 2^(k-1) - 1 + ((acc >> k) & 1)) >> k (to nearest even), exact;   s = s_in * 2^k
//   integer_relu:      q = max(acc, 0), with the scale of acc and no zero point
// Backward (of the value): gy passes where u is in the range of the codes (relu: acc > 0); one bit per element is
// saved.
#include <cmath>

#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "ops/common.h"
#include "ops/map/integers.h"

namespace bitgrad {
namespace {

struct Saved {
  Tensor mask;
};

void check_input(std::string_view op, const Tensor& x, DType dtype) {
  require(x.dtype() == dtypes::int32 && x.contiguous(), op, "x: got ", x,
          ", expected dense int32, such as the output of integer_linear");
  const ScaleMap map = x.scale_map();
  require(map.zero == nullptr && map.offset == nullptr, op, "x ", x, " has a zero point, expected a scale only");
  require(dtype.is_code() && (dtype.kind() == DTypeKind::kInt || dtype.kind() == DTypeKind::kUint), op,
          "dtype of the result: got ", dtype, ", expected an int or uint dtype of at most 8 bits");
}

// Writes codes and mask by a map over runs; fills in the map's runs.
template <typename Map>
Tensor clamped_codes(const Tensor& x, DType dtype, Saved& s, Map map) {
  Tensor y = Tensor::empty(x.shape(), dtype), mask = Tensor::empty({x.rows(), x.cols()}, dtypes::bint1);
  map.runs = {x.as<int32_t>(), x.cols(), dtype.bits(), y.data(), y.stride(), static_cast<uint64_t*>(mask.data())};
  run_map(map, x.rows() * map.runs.per_row(), kMapGrain / 64);
  s.mask = keep(mask);
  return y;
}

void pass_unclamped(const Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
  if (g[0].wanted()) g[0].set_rounded(masked(wide(gy[0]), s.mask));
}

struct Requantize {
  static constexpr std::string_view kName = "requantize";
  using Saved = bitgrad::Saved;

  static void check_params(const Tensor& x, const QuantParams& out) {
    const Granularity& g = out.granularity;
    require(g.kind == Granularity::kTensor || g.kind == Granularity::kToken, kName, "params of the result: got per ", g,
            ", expected per tensor or token");
    require(out.offset == nullptr, kName,
            "params of the result have real offsets, expected integer zero points or none");
    const int64_t count = scale_count(g, x.rows(), x.cols());
    for (const auto& part : {out.scale, out.zero})
      require(!part || part->numel() == count, kName, "params of the result: got ", part ? part->numel() : 0,
              " scales per ", g, ", expected ", count, " for x ", x);
    if (!out.scale) return;
    const FlagWord flag;
    run_map(maps::FlagNotPositive{out.scale->as<float>(), flag.word()}, count);
    flag.check([scale = out.scale] {
      const std::vector<double> numbers = scale->elements();
      for (size_t i = 0; i < numbers.size(); ++i)
        require(std::isfinite(numbers[i]) && numbers[i] > 0, kName, "scale ", i, " of the result is ", numbers[i],
                ", expected a positive number");
    });
  }

  // M for every pair of scales, [rows of params, columns of params], and its steps.
  struct Factors {
    Tensor m;
    int64_t row_step = 0, col_step = 0;
  };
  static Factors factors(const Tensor& x, const QuantParams& out) {
    const ScaleMap in = x.scale_map();
    const bool by_token = out.granularity.kind == Granularity::kToken;
    require(in.per_tensor() || in.per_row() || in.per_column(), kName, "x: got scales per ",
            x.quant() ? x.quant()->granularity : Granularity{}, ", expected per tensor, token or channel");
    const int64_t rows = by_token || in.per_row() ? x.rows() : 1, cols = in.per_column() ? x.cols() : 1;
    Factors f{Tensor::empty({rows, cols}, dtypes::fp32, MemoryKind::kWorkspace), rows > 1 ? cols : 0, cols > 1 ? 1 : 0};
    const FlagWord flag;
    run_map(maps::RequantizeFactors{in, out.scale ? out.scale->as<float>() : nullptr, by_token ? 1 : 0, cols,
                                    f.m.as<float>(), flag.word()},
            rows * cols);
    flag.check([params = x.quant()] {
      for (const double s : params->scale->elements())
        require(std::isfinite(s), kName, "scale of x: got ", s, ", expected a finite number");
    });
    return f;
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, DType dtype,
                        const std::shared_ptr<const QuantParams>& out) {
    const Tensor& x = in[0];
    check_input(kName, x, dtype);
    require(out != nullptr, kName, "no params of the result");
    check_params(x, *out);
    const Factors f = factors(x, *out);
    const int32_t* zero = out->zero ? out->zero->as<int32_t>() : nullptr;
    const int64_t zero_step = out->granularity.kind == Granularity::kToken ? 1 : 0;
    const DTypeInfo& info = dtype.info();
    return clamped_codes(x, dtype, s,
                         maps::RequantizeRuns{{},
                                              {f.m.as<float>(), f.row_step, f.col_step, zero, zero_step},
                                              static_cast<float>(info.qmin),
                                              static_cast<float>(info.qmax)})
        .with_quant(out);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) { pass_unclamped(s, gy, g); }
};

struct RequantizeShift {
  static constexpr std::string_view kName = "requantize_shift";
  using Saved = bitgrad::Saved;

  static std::shared_ptr<const QuantParams> shifted(const Tensor& x, int k) {
    QuantParams params = x.quant() ? *x.quant() : QuantParams{};
    if (params.scheme.empty()) params.scheme = "shift";
    const int64_t count = scale_count(params.granularity, x.rows(), x.cols());
    const Tensor scale = Tensor::empty({count}, dtypes::fp32, MemoryKind::kQuantState);
    const FlagWord flag;
    run_map(maps::ShiftedScales{params.scale ? params.scale->as<float>() : nullptr,
                                static_cast<float>(int64_t{1} << k),
                                {scale.as<float>(), flag.word()}},
            count);
    flag.check([before = params.scale, k] {
      for (const double s : before->elements()) {
        const float v = std::ldexp(static_cast<float>(s), k);
        require(std::isfinite(v), kName, "scale ", s, " times 2^", k, " is ", v, ", expected a finite scale");
      }
    });
    params.scale = std::make_shared<const Tensor>(scale);
    return std::make_shared<const QuantParams>(std::move(params));
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, DType dtype, int k) {
    const Tensor& x = in[0];
    check_input(kName, x, dtype);
    require(k >= 1 && k <= 31, kName, "shift: got ", k, ", expected 1 to 31 bits");
    const auto params = shifted(x, k);
    const DTypeInfo& info = dtype.info();
    return clamped_codes(x, dtype, s, maps::ShiftRuns{{}, {k}, info.qmin, info.qmax}).with_quant(params);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) { pass_unclamped(s, gy, g); }
};

struct IntegerRelu {
  static constexpr std::string_view kName = "integer_relu";
  using Saved = bitgrad::Saved;

  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor& x = in[0];
    require(x.dtype() == dtypes::int32 && x.contiguous(), kName, "x: got ", x,
            ", expected dense int32, such as the output of integer_linear");
    const ScaleMap map = x.scale_map();
    require(map.zero == nullptr && map.offset == nullptr, kName, "x ", x, " has a zero point: 0 is not its code 0");
    const Tensor y = Tensor::empty(x.shape(), dtypes::int32), mask = Tensor::empty({x.rows(), x.cols()}, dtypes::bint1);
    run_map(maps::IntegerReluRuns{x.cols(), x.as<int32_t>(), y.as<int32_t>(), static_cast<uint64_t*>(mask.data())},
            x.rows() * ((x.cols() + 63) / 64), kMapGrain / 64);
    s.mask = keep(mask);
    return y.with_quant(x.quant());
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) { pass_unclamped(s, gy, g); }
};

}  // namespace

Var requantize(const Var& x, DType dtype, std::shared_ptr<const QuantParams> out) {
  return apply<Requantize>({x}, dtype, out);
}
Var requantize_shift(const Var& x, DType dtype, int k) { return apply<RequantizeShift>({x}, dtype, k); }
Var integer_relu(const Var& x) { return apply<IntegerRelu>({x}); }

}  // namespace bitgrad
