// Batch norm of int32 with a scale, such as the output of integer_conv2d. Statistics come from exact sums, so they do
// not depend on the order. The integers are saved, in 16 bits if they fit, and no float copy. docs/numerics.md section
// 6.
#include "ops/map/integer_norm.h"
#include "ops/common.h"
#include "ops/map/norm.h"
#include "ops/norm.h"

namespace bitgrad {
namespace {

constexpr std::string_view kBatchNorm = "batch_norm";
constexpr int64_t kMostRows = int64_t{1} << 31;  // sums are exact for fewer rows
constexpr uint32_t kMost16 = 32767;
constexpr int64_t kDeviceColumns = 4;

struct IntegerNorm {
  static constexpr std::string_view kName = kBatchNorm;
  struct Saved {
    Tensor q;       // int32 with its scale, or
    Tensor narrow;  // the same values in 16 bits, as bytes
    Shape shape;
    std::shared_ptr<const QuantParams> params;
    NormSaved norm;
  };
  struct Statistics {
    Tensor mean, inv;
    bool narrow = false;  // every integer fits in 16 bits; read only on the CPU, where that needs no wait
  };

  static void check(std::span<const Tensor> in, const NormOptions& o) {
    const Tensor& x = in[0];
    const ScaleMap map = x.scale_map();
    require(x.contiguous() && map.zero == nullptr && map.offset == nullptr, kName, "x ", x,
            " must be dense int32 without zero points or offsets");
    require(map.per_tensor() || map.per_column(), kName, "x ", x, " has scales per ", x.quant()->granularity,
            ", which differ within a column: expected per tensor or channel(1)");
    check_norm(kName, true, in, o);
    require(x.rows() < kMostRows, kName, "x ", x, " has ", x.rows(), " rows to sum exactly, expected fewer than ",
            kMostRows);
  }

  static Statistics of_batch(const Tensor& x, const NormOptions& o) {
    const int64_t cols = x.cols();
    const bool host = current_device().is_cpu();
    const Tensor sums = Tensor::zeros({3, cols}, dtypes::int64, MemoryKind::kWorkspace);
    const Tensor largest = Tensor::zeros({1}, dtypes::int32, MemoryKind::kWorkspace);
    auto* const sum = sums.as<int64_t>();
    auto* const bits = reinterpret_cast<uint32_t*>(largest.as<int32_t>());
    const maps::integer_norm::Sums places{sum, sum + cols, sum + 2 * cols};
    const maps::IntegerSums map{x.as<int32_t>(), x.rows(), cols, host ? maps::integer_norm::kColumns : int64_t{1},
                                places,          bits};
    run_map(map, map.parts(), 1);
    Statistics out{Tensor::empty({cols}, dtypes::fp32), Tensor::empty({cols}, dtypes::fp32)};
    const ScaleMap scale = x.scale_map();
    const bool running = o.running_mean.defined();
    run_map(maps::IntegerStatistics{places, x.rows(), scale.scale, scale.col_step, o.eps, out.mean.as<float>(),
                                    out.inv.as<float>(), running ? o.running_mean.as<float>() : nullptr,
                                    running ? o.running_var.as<float>() : nullptr, o.momentum},
            cols);
    out.narrow = host && *bits <= kMost16;
    return out;
  }

  static Statistics of_running(const NormOptions& o) {
    Statistics out{o.running_mean.clone(MemoryKind::kActivation), Tensor::empty(o.running_mean.shape(), dtypes::fp32)};
    run_map(maps::NormStatistics{out.mean.as<float>(), o.running_var.as<float>(), 1.0f, o.eps, out.inv.as<float>(),
                                 nullptr, nullptr, 0.0f, 1.0f},
            out.mean.numel());
    return out;
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, const NormOptions& o) {
    check(in, o);
    const Tensor& x = in[0];
    const Statistics statistics = o.training ? of_batch(x, o) : of_running(o);
    Tensor y = Tensor::empty(x.shape(), dtypes::fp32);
    const bool narrow = statistics.narrow && will_backward();
    const Tensor bytes = narrow ? Tensor::empty({1, x.numel() * 2}, dtypes::uint8) : Tensor();
    const ScaleMap scale = x.scale_map();
    const maps::IntegerNormalize map{x.as<int32_t>(),
                                     x.cols(),
                                     current_device().is_cpu() ? x.cols() : kDeviceColumns,
                                     scale.scale,
                                     scale.col_step,
                                     statistics.mean.as<float>(),
                                     statistics.inv.as<float>(),
                                     in[1].as<float>(),
                                     in[2].as<float>(),
                                     y.as<float>(),
                                     narrow ? static_cast<int16_t*>(bytes.data()) : nullptr};
    run_map(map, x.rows() * map.runs(), rows_per_task(map.run));
    if (narrow)
      s.narrow = keep(bytes);
    else
      s.q = keep(x);
    s.shape = x.shape();
    s.params = x.quant();
    s.norm = {{}, keep(statistics.mean), keep(statistics.inv), keep(in[1]), o.training};
    return y;
  }

  static Tensor values(const Saved& s) {
    if (s.q.defined()) return values_of(kName, s.q, MemoryKind::kWorkspace);
    Tensor out = Tensor::empty(s.shape, dtypes::fp32, MemoryKind::kWorkspace);
    const ScaleMap scale = out.with_quant(s.params).scale_map();
    run_map(maps::NarrowValues{static_cast<const int16_t*>(s.narrow.data()), out.cols(), scale.scale, scale.col_step,
                               out.as<float>()},
            out.rows(), rows_per_task(out.cols()));
    return out;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    s.norm.x = values(s);
    norm_backward(true, s.norm, gy[0], g);
  }
};

}  // namespace

Var integer_batch_norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options) {
  return apply<IntegerNorm>({x, gamma, beta}, options);
}

}  // namespace bitgrad
