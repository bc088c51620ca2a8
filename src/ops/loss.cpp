#include "ops/loss.h"

#include "kernels/elementwise.h"
#include "ops/map/loss.h"

namespace bitgrad {
namespace {

void check_classes(std::string_view op, int64_t classes, std::span<const int32_t> labels) {
  for (size_t i = 0; i < labels.size(); ++i)
    require(labels[i] >= 0 && labels[i] < classes, op, "label ", i, " is ", labels[i], ", allowed are 0 .. ",
            classes - 1);
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

}  // namespace bitgrad
