#include "ops/loss.h"

#include "bitgrad/kernels/elementwise.h"
#include "kernels/map/ops_loss.h"

namespace bitgrad {
namespace {

void check_classes(std::string_view op, int64_t classes, std::span<const int32_t> labels) {
  for (size_t i = 0; i < labels.size(); ++i)
    require(labels[i] >= 0 && labels[i] < classes, op, "label ", i, " is ", labels[i], ", allowed are 0 .. ",
            classes - 1);
}

}  // namespace

CheckedLabels::CheckedLabels(std::string_view op, const Tensor& y, const Labels& labels) {
  require_float(op, "logits", y);
  require(y.shape().rank() == 2 && y.cols() > 0, op, "logits must be [n, classes], got ", y);
  const Device device = current_device();
  const Tensor& t = labels.tensor;
  if (t.defined()) {
    require(t.dtype() == dtypes::int32 && t.contiguous() && !t.quant(), op, "labels must be dense int32, got ", t);
    if (t.device() != device)
      fail_with(ErrorCode::kDevice, op, "labels (", t, ") are on ", to_string(t.device()),
                ", but the current device is ", to_string(device), '.');
  }
  const int64_t count = t.defined() ? t.numel() : static_cast<int64_t>(labels.host.size());
  require(count == y.rows(), op, "logits ", y, " have ", y.rows(), " rows, got ", count, " labels");
  held_ = t;
  if (t.defined() && !device.is_cpu()) {
    flag_.emplace();
    data_ = t.as<int32_t>();
    return;
  }
  const std::span<const int32_t> host =
      t.defined() ? std::span<const int32_t>(t.as<int32_t>(), static_cast<size_t>(count)) : labels.host;
  check_classes(op, y.cols(), host);
  data_ = host.data();
  if (device.is_cpu()) return;
  held_ = Tensor::empty({count}, dtypes::int32, MemoryKind::kBatch);
  device_backend(device).copy_from_host(held_.data(), host.data(), held_.bytes());
  data_ = held_.as<int32_t>();
}

void CheckedLabels::check(std::string_view op, const Tensor& y) const {
  if (!flag_) return;
  flag_->check([op, labels = held_, classes = y.cols()] {
    const Tensor host = labels.on_host();
    check_classes(op, classes, {host.as<int32_t>(), static_cast<size_t>(host.numel())});
    fail(op, "a label was none of 0 .. ", classes - 1);
  });
}

Tensor loss_total(const Tensor& terms, double divisor) {
  if (terms.dtype() == dtypes::fp64) {
    double total = 0;
    for (int64_t i = 0; i < terms.numel(); ++i) total += terms.as<double>()[i];
    return Tensor::scalar(total / divisor, dtypes::fp64);
  }
  const Tensor total = total_of(terms);
  if (divisor != 1) divide(1, total.as<float>(), static_cast<float>(divisor));
  return total;
}

Tensor loss_gradient(const Tensor& gy, double factor, const Tensor& kept) {
  const Tensor number = wide(gy), gx = Tensor::empty(kept.shape(), kept.dtype());
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
