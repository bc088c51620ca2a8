// Batches: buffers for samples and targets that are reused from batch to batch, and their transfer to the device.
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/data/loader.h"

namespace bitgrad {
namespace {

// The first elements of a buffer as a tensor.
Tensor part_of(const Tensor& room, const Shape& shape) { return room.row_slice(0, shape.numel()).reshape(shape); }

Shape with_samples(int64_t samples, const Shape& one) {
  std::vector<int64_t> dims{samples};
  dims.insert(dims.end(), one.dims().begin(), one.dims().end());
  return Shape(std::move(dims));
}

void copy_to(const Tensor& from, Tensor& into) {
  if (!into.defined() || into.shape() != from.shape() || into.dtype() != from.dtype() ||
      into.device() != current_device())
    into = Tensor::empty(from.shape(), from.dtype(), MemoryKind::kBatch);
  if (into.numel() > 0) device_backend(current_device()).copy_from_host(into.data(), from.data(), into.bytes());
}

}  // namespace

void copy_batch(const Batch& batch, Tensor& into) { copy_to(batch.x_tensor(), into); }
void copy_targets(const Batch& batch, Tensor& into) { copy_to(batch.target_tensor(), into); }

Tensor Batch::x_tensor() const { return part_of(samples_, {size, features}); }
Tensor Batch::target_tensor() const { return part_of(targets_, with_samples(size, target)); }

void Batch::swap(Batch& other) noexcept {
  std::swap(x, other.x);
  std::swap(tokens, other.tokens);
  std::swap(dtype, other.dtype);
  std::swap(labels, other.labels);
  std::swap(values, other.values);
  std::swap(ids, other.ids);
  std::swap(size, other.size);
  std::swap(features, other.features);
  std::swap(sample, other.sample);
  std::swap(target, other.target);
  std::swap(counted, other.counted);
  std::swap(epoch, other.epoch);
  std::swap(position, other.position);
  std::swap(last_of_epoch, other.last_of_epoch);
  std::swap(samples_, other.samples_);
  std::swap(targets_, other.targets_);
  ids_.swap(other.ids_);
}

void Batch::resize(int64_t samples, const Shape& one, DType of, const TargetForm& form) {
  require(of == dtypes::fp32 || of == dtypes::int32, "data.batch", "dtype: got ", of, ", expected fp32 or int32.");
  const auto fits = [&](const Shape& shape) {
    return samples >= 0 && (shape.numel() == 0 || samples <= (int64_t{1} << 58) / shape.numel());
  };
  require(fits(one) && fits(form.shape), "data.batch", "size: got ", samples, " x ", one, " and ", form.shape,
          ", expected products of at most 2^58.");
  constexpr int64_t kLine = 64;  // bytes per cache line
  const auto lines = [](int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  const int64_t numbers = samples * one.numel(), targets = samples * form.shape.numel();
  const int64_t id_bytes = lines(samples * int64_t{sizeof(int64_t)});
  const auto too_small = [](const Tensor& room, int64_t elements, DType dtype) {
    return !room.defined() || room.numel() < elements || room.dtype() != dtype;
  };
  if (too_small(samples_, numbers, of) || too_small(targets_, targets, form.dtype()) || ids_.size() < id_bytes) {
    // Release the old buffer first, so that both never exist at once.
    x = values = nullptr;
    tokens = labels = nullptr;
    ids = nullptr;
    size = 0;
    samples_ = targets_ = Tensor();
    ids_ = TrackedBytes();
    samples_ = Tensor::empty({lines(numbers * 4) / 4, 1}, of, MemoryKind::kBatch, Device::cpu());
    targets_ = Tensor::empty({lines(targets * 4) / 4, 1}, form.dtype(), MemoryKind::kBatch, Device::cpu());
    ids_ = TrackedBytes(id_bytes, MemoryKind::kBatch);
  }
  x = of == dtypes::fp32 ? samples_.as<float>() : nullptr;
  tokens = of == dtypes::int32 ? samples_.as<int32_t>() : nullptr;
  labels = form.classes > 0 ? targets_.as<int32_t>() : nullptr;
  values = form.classes > 0 ? nullptr : targets_.as<float>();
  ids = reinterpret_cast<int64_t*>(ids_.data());
  size = samples;
  features = one.numel();
  sample = one;
  target = form.shape;
  counted = targets;
  dtype = of;
}

}  // namespace bitgrad
