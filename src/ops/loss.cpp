#include "ops/loss.h"

#include "kernels/elementwise.h"
#include "ops/map/loss.h"
#include "ops/map/totals.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

void check_classes(std::string_view op, int64_t classes, std::span<const int32_t> labels) {
  for (size_t i = 0; i < labels.size(); ++i)
    require(labels[i] >= 0 && labels[i] < classes, op, "label ", i, " is ", labels[i], ", allowed are 0 .. ",
            classes - 1);
}

// Formats flat index i as "[1,4]".
std::string place_in(const Shape& shape, int64_t i) {
  std::string text = "]";
  for (int64_t axis = shape.rank() - 1; axis >= 0; --axis) {
    text = concat(axis == 0 ? "[" : ",", i % shape[axis], text);
    i /= shape[axis];
  }
  return shape.rank() == 0 ? "" : " at " + text;
}

void check_targets(std::string_view op, const Tensor& targets, int64_t classes, int32_t ignore) {
  const int32_t* const t = targets.as<int32_t>();
  for (int64_t i = 0; i < targets.numel(); ++i) {
    if (t[i] == ignore || (t[i] >= 0 && t[i] < classes)) continue;
    fail(op, "target", place_in(targets.shape(), i), " is ", t[i], ", expected 0 .. ", classes - 1, ", or ", ignore,
         " to ignore it");
  }
}

}  // namespace

CheckedLabels::CheckedLabels(std::string_view op, const Tensor& y, const Tensor& labels) : labels_(labels) {
  require_float(op, "logits", y);
  require(y.shape().rank() >= 2 && y.cols() > 0, op, "logits must be [n, classes], got ", y);
  const Device device = current_device();
  require(labels.defined() && labels.dtype() == dtypes::int32 && labels.contiguous() && !labels.quant(), op,
          "labels must be dense int32, got ", labels);
  if (labels.device() != device)
    fail_with(ErrorCode::kDevice, op, "labels (", labels, ") are on ", to_string(labels.device()),
              ", but the current device is ", to_string(device), '.');
  require(labels.numel() == y.rows(), op, "logits ", y, " have ", y.rows(), " rows, got ", labels.numel(), " labels");
  if (device.is_cpu())
    check_classes(op, y.cols(), {data(), static_cast<size_t>(labels.numel())});
  else
    flag_.emplace();
}

void CheckedLabels::check(std::string_view op, const Tensor& y) const {
  if (!flag_) return;
  flag_->check([op, labels = labels_, classes = y.cols()] {
    const Tensor host = labels.on_host();
    check_classes(op, classes, {host.as<int32_t>(), static_cast<size_t>(host.numel())});
    fail(op, "a label was not in 0 .. ", classes - 1);
  });
}

Tensor labels_of(std::string_view op, const Tensor& y, std::span<const int32_t> labels) {
  const Device device = current_device();
  const bool fits = y.shape().rank() >= 2 && y.cols() > 0 && y.rows() == static_cast<int64_t>(labels.size());
  if (fits && !device.is_cpu()) check_classes(op, y.cols(), labels);  // check now rather than when errors are polled
  Tensor out = Tensor::empty({static_cast<int64_t>(labels.size())}, dtypes::int32, MemoryKind::kBatch);
  device_backend(device).copy_from_host(out.data(), labels.data(), out.bytes());
  return out;
}

ClassTargets::ClassTargets(std::string_view op, const Tensor& logits, const Tensor& targets, int32_t ignore)
    : targets_(targets), classes_(logits.cols()), ignore_(ignore) {
  require_activation(op, "logits", logits);
  require(logits.shape().rank() > 0 && logits.cols() > 0, op, "logits must be [.., classes], got ", logits);
  require(targets.defined() && targets.dtype() == dtypes::int32 && targets.contiguous() && !targets.quant(), op,
          "targets must be dense int32, got ", targets);
  const std::vector<int64_t>& dims = logits.shape().dims();
  const Shape want(std::vector<int64_t>(dims.begin(), dims.end() - 1));
  require(targets.shape() == want, op, "targets of logits ", logits, " must be ", want, ", got ", targets);
  require_here(op, "targets", targets);
  if (current_device().is_cpu())
    check_targets(op, targets, classes_, ignore);
  else
    flag_.emplace();
}

void ClassTargets::check(std::string_view op) const {
  if (!flag_) return;
  flag_->check([op, targets = targets_, classes = classes_, ignore = ignore_] {
    check_targets(op, targets.on_host(), classes, ignore);
    fail(op, "a target was not in 0 .. ", classes - 1);
  });
}

Tensor total_of_pieces(DType dtype, int64_t n, const std::function<void(void* out, int64_t pieces)>& first) {
  const auto pieces_of = [](int64_t count) {
    return std::max<int64_t>(1, (count + maps::kTotalPiece - 1) / maps::kTotalPiece);
  };
  Tensor part = Tensor::empty({pieces_of(n)}, dtype);
  first(part.data(), part.numel());
  while (part.numel() > 1) {
    const Tensor next = Tensor::empty({pieces_of(part.numel())}, dtype);
    if (dtype == dtypes::int64)
      run_map(maps::SumCounts{part.as<int64_t>(), part.numel(), next.as<int64_t>()}, next.numel());
    else
      run_map(maps::SumDoubles{part.as<double>(), part.numel(), next.as<double>()}, next.numel());
    part = next;
  }
  return part.reshape(Shape{});
}

Tensor count_targets(const Tensor& targets, int32_t ignore) {
  return total_of_pieces(dtypes::int64, targets.numel(), [&](void* out, int64_t pieces) {
    run_map(maps::CountTargets{targets.as<int32_t>(), targets.numel(), ignore, static_cast<int64_t*>(out)}, pieces,
            rows_per_task(maps::kTotalPiece));
  });
}

void require_targets_like(std::string_view op, const Tensor& y, const Tensor& target) {
  require_activation(op, "outputs", y);
  require_activation(op, "targets", target);
  require(target.shape() == y.shape(), op, "targets must have the shape of outputs ", y, ", got ", target);
  require((target.dtype() == dtypes::fp64) == (y.dtype() == dtypes::fp64), op,
          "outputs and targets are both fp64 or neither: got ", y, " and ", target);
  require(y.numel() > 0, op, "outputs have no elements to average over: got ", y);
  require_here(op, "targets", target);
}

Tensor loss_total(const Tensor& terms, double divisor) {
  if (terms.dtype() == dtypes::fp64) {
    double total = 0;
    for (int64_t i = 0; i < terms.numel(); ++i) total += terms.as<double>()[i];
    return Tensor::scalar(total / divisor, dtypes::fp64);
  }
  Tensor total = total_of(terms);
  if (divisor != 1) kernels::divide(1, total.as<float>(), static_cast<float>(divisor));
  return total;
}

Tensor loss_gradient(const Tensor& gy, double factor, const Tensor& kept) {
  const Tensor number = wide(gy);
  Tensor gx = Tensor::empty(kept.shape(), kept.dtype());
  if (kept.dtype() == dtypes::fp64) {
    const double s = *number.as<double>() * factor;
    for (int64_t i = 0; i < gx.numel(); ++i) gx.as<double>()[i] = s * kept.as<double>()[i];
  } else {
    run_map(maps::ScaleByNumber{number.as<float>(), static_cast<float>(factor), kept.as<float>(), gx.as<float>()},
            gx.numel());
  }
  return gx;
}

void SlopeLoss::backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
  if (!g[0].wanted()) return;
  const bool f64 = s.slope.dtype() == dtypes::fp64;
  const float rounded = static_cast<float>(s.times) / static_cast<float>(s.divisor);
  g[0].set_rounded(loss_gradient(gy[0], f64 ? s.times / s.divisor : double{rounded}, s.slope));
}

}  // namespace bitgrad
