// int32 with a scale -> codes of at most 8 bits. docs/numerics.md section 4.
//   requantize:        u = rint(float(acc) * M) + float(z);  q = clamp(u), all in fp32
//                      M = min(fp32(s_in / s_out), largest fp32): an s_out of eps saturates all sums but 0
//   requantize_shift:  u = (acc + 2^(k-1) - 1 + ((acc >> k) & 1)) >> k (to nearest even), exact;   s = s_in * 2^k
// Backward (of the value): passes where u lies in the range of the codes; one bit an element is kept.
#include <algorithm>
#include <cmath>
#include <limits>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/ops/ops.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

struct Saved {
  Tensor mask;
};

void check_input(std::string_view op, const Tensor& x, DType dtype) {
  require(x.dtype() == dtypes::int32 && x.contiguous(), op, "x: got ", x,
          ", expected dense int32, such as integer_linear gives");
  const ScaleMap map = x.scale_map();
  require(map.zero == nullptr && map.offset == nullptr, op, "x ", x, " has a zero point, expected a scale only");
  require(dtype.is_code() && (dtype.kind() == DTypeKind::kInt || dtype.kind() == DTypeKind::kUint), op,
          "dtype of the result: got ", dtype, ", expected an int or uint dtype of at most 8 bits");
}

// Codes and mask from before_clamp(row, column), a number of type T. Rows are written whole.
template <typename T, typename Before>
Tensor clamped_codes(const Tensor& x, DType dtype, Saved& s, Before&& before_clamp) {
  const Tensor y = Tensor::zeros(x.shape(), dtype), mask = Tensor::zeros({x.rows(), x.cols()}, dtypes::bint1);
  const DTypeInfo& info = dtype.info();
  const T lo = static_cast<T>(info.qmin), hi = static_cast<T>(info.qmax);
  const int64_t n = x.cols();
  parallel_ranges(x.rows(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      void* codes = static_cast<char*>(y.data()) + r * y.stride();
      auto* bits = reinterpret_cast<uint64_t*>(static_cast<char*>(mask.data()) + r * mask.stride());
      const int32_t* acc = x.as<int32_t>() + r * n;
      for (int64_t j = 0; j < n; ++j) {
        const T u = before_clamp(acc[j], r, j);
        const auto q = static_cast<int64_t>(std::clamp(u, lo, hi));
        store_raw(codes, j, info.bits, static_cast<uint32_t>(encode_int(info, q)));
        bits[j / 64] |= uint64_t{u >= lo && u <= hi} << (j % 64);
      }
    }
  });
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
    for (int64_t i = 0; out.scale != nullptr && i < count; ++i) {
      const float s = out.scale->as<float>()[i];
      require(std::isfinite(s) && s > 0, kName, "scale ", i, " of the result is ", s, ", expected a positive number");
    }
  }

  // M of every pair of scales: [rows of params, columns of params], and how to step through it.
  struct Factors {
    std::vector<float> m;
    int64_t row_step = 0, col_step = 0;
  };
  static Factors factors(const Tensor& x, const QuantParams& out) {
    const ScaleMap in = x.scale_map();
    const bool by_token = out.granularity.kind == Granularity::kToken;
    require(in.per_tensor() || in.per_row() || in.per_column(), kName, "x: got scales per ",
            x.quant() ? x.quant()->granularity : Granularity{}, ", expected per tensor, token or channel");
    const int64_t rows = by_token || in.per_row() ? x.rows() : 1, cols = in.per_column() ? x.cols() : 1;
    Factors f;
    f.row_step = rows > 1 ? cols : 0;
    f.col_step = cols > 1 ? 1 : 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const float s_in = in.scale == nullptr ? 1.0f : in.scale[in.index(r, c)];
        const float s_out = out.scale == nullptr ? 1.0f : out.scale->as<float>()[by_token ? r : 0];
        require(std::isfinite(s_in), kName, "scale of x: got ", s_in, ", expected a finite number");
        f.m.push_back(std::min(s_in / s_out, std::numeric_limits<float>::max()));
      }
    return f;
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, DType dtype,
                        const std::shared_ptr<const QuantParams>& out) {
    const Tensor& x = in[0];
    check_input(kName, x, dtype);
    require(out != nullptr, kName, "no params of the result are given");
    check_params(x, *out);
    const Factors f = factors(x, *out);
    const int32_t* zero = out->zero ? out->zero->as<int32_t>() : nullptr;
    const int64_t zero_step = out->granularity.kind == Granularity::kToken ? 1 : 0;
    return clamped_codes<float>(x, dtype, s,
                                [&](int32_t acc, int64_t r, int64_t c) {
                                  const float u = std::rint(static_cast<float>(acc) *
                                                            f.m[static_cast<size_t>(r * f.row_step + c * f.col_step)]);
                                  return zero == nullptr ? u : u + static_cast<float>(zero[r * zero_step]);
                                })
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
    const Tensor scale = params.scale ? params.scale->clone(MemoryKind::kQuantState)
                                      : Tensor::full({scale_count(params.granularity, x.rows(), x.cols())},
                                                     dtypes::fp32, 1.0, MemoryKind::kQuantState);
    for (int64_t i = 0; i < scale.numel(); ++i) {
      float& v = scale.as<float>()[i];
      const float before = v;
      v = std::ldexp(v, k);
      require(std::isfinite(v), kName, "scale ", before, " times 2^", k, " is ", v, ", expected a finite scale");
    }
    params.scale = std::make_shared<const Tensor>(scale);
    return std::make_shared<const QuantParams>(std::move(params));
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, DType dtype, int k) {
    const Tensor& x = in[0];
    check_input(kName, x, dtype);
    require(k >= 1 && k <= 31, kName, "shift: got ", k, ", expected 1 to 31 bits");
    const auto params = shifted(x, k);
    return clamped_codes<int64_t>(x, dtype, s,
                                  [k](int32_t acc, int64_t, int64_t) {
                                    const int64_t wide_acc = acc;
                                    return (wide_acc + (int64_t{1} << (k - 1)) - 1 + ((wide_acc >> k) & 1)) >> k;
                                  })
        .with_quant(params);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) { pass_unclamped(s, gy, g); }
};

}  // namespace

Var requantize(const Var& x, DType dtype, std::shared_ptr<const QuantParams> out) {
  return apply<Requantize>({x}, dtype, out);
}
Var requantize_shift(const Var& x, DType dtype, int k) { return apply<RequantizeShift>({x}, dtype, k); }

}  // namespace bitgrad
