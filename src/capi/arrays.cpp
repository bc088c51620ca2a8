#include "capi/arrays.h"

#include <algorithm>
#include <limits>

#include "capi/guard.h"

namespace bitgrad::capi {
namespace {

int64_t element_size(int32_t dtype) { return dtype == BITGRAD_UINT8 ? 1 : dtype == BITGRAD_INT64 ? 8 : 4; }

// Owns the data behind a DLPack tensor that we export.
struct Held {
  Tensor tensor;
  std::vector<int64_t> shape;
  DLManagedTensor dl{};
};
void delete_held(DLManagedTensor* self) { delete static_cast<Held*>(self->manager_ctx); }

}  // namespace

ArrayView::ArrayView(const bitgrad_array* array, const char* name) {
  const bitgrad_array& a = given(array, name);
  require(a.dtype >= BITGRAD_FLOAT32 && a.dtype <= BITGRAD_INT64, "c", name, ": dtype: got ", a.dtype,
          ", expected BITGRAD_FLOAT32, UINT8, INT32 or INT64 (0 .. 3)");
  require(a.rank >= 1 && a.rank <= BITGRAD_MAX_RANK, "c", name, ": rank: got ", a.rank, ", expected 1 .. ",
          int{BITGRAD_MAX_RANK});
  std::vector<int64_t> dims(a.shape, a.shape + a.rank);
  for (const int64_t d : dims) require(d >= 0, "c", name, ": shape: got an axis of ", d);
  const Shape whole(dims);
  require(a.data != nullptr || whole.numel() == 0, "c", name, ": data: got NULL");
  require(
      whole.numel() == 0 || reinterpret_cast<uintptr_t>(a.data) % static_cast<uintptr_t>(element_size(a.dtype)) == 0,
      "c", name, ": data: its address is not a multiple of ", element_size(a.dtype), ", the size of an element");
  view_.name = name;
  view_.count = dims[0];
  view_.shape = Shape(std::vector<int64_t>(dims.begin() + 1, dims.end()));
  view_.data = a.data;
  view_.stored = a.dtype == BITGRAD_FLOAT32 ? StoredAs::kFloat
                 : a.dtype == BITGRAD_UINT8 ? StoredAs::kUint8
                                            : StoredAs::kInt32;
  if (a.dtype != BITGRAD_INT64) return;
  const auto* const from = static_cast<const int64_t*>(a.data);
  converted_ = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(whole.numel()));
  for (int64_t i = 0; i < whole.numel(); ++i) {
    require(from[i] == static_cast<int32_t>(from[i]), "c", name, ": element ", i, ": got ", from[i],
            ", expected a number of int32");
    (*converted_)[static_cast<size_t>(i)] = static_cast<int32_t>(from[i]);
  }
  view_.data = converted_->data();
}

Tensor ArrayView::tensor() const {
  std::vector<int64_t> dims{view_.count};
  dims.insert(dims.end(), view_.shape.dims().begin(), view_.shape.dims().end());
  const Shape shape(std::move(dims));
  if (is_bytes()) {
    Tensor wide = Tensor::empty(shape, dtypes::int32, MemoryKind::kBatch, Device::cpu());
    std::copy_n(static_cast<const uint8_t*>(view_.data), shape.numel(), wide.as<int32_t>());
    return wide;
  }
  return Tensor::external(const_cast<void*>(view_.data), shape, is_float() ? dtypes::fp32 : dtypes::int32, converted_);
}

bool is_stored(int32_t reading) {
  require(reading == BITGRAD_AS_IS || reading == BITGRAD_STORED, "c", "reading: got ", reading,
          ", expected BITGRAD_AS_IS or BITGRAD_STORED");
  return reading == BITGRAD_STORED;
}

void write_form(const Form& form, bitgrad_form& out) {
  require(form.sample.rank() <= BITGRAD_MAX_RANK, "c", "a form of ", form.sample.rank(), " axes, at most ",
          int{BITGRAD_MAX_RANK});
  out = {};
  out.dtype = form.dtype == dtypes::int32 ? BITGRAD_INT32 : BITGRAD_FLOAT32;
  out.rank = static_cast<int32_t>(form.sample.rank());
  std::copy(form.sample.dims().begin(), form.sample.dims().end(), out.shape);
  out.ids = form.ids;
}

Form read_form(const bitgrad_form& in) {
  require(in.dtype == BITGRAD_FLOAT32 || in.dtype == BITGRAD_INT32, "c", "input: dtype: got ", in.dtype,
          ", expected BITGRAD_FLOAT32 or BITGRAD_INT32");
  require(in.rank >= 1 && in.rank <= BITGRAD_MAX_RANK, "c", "input: rank: got ", in.rank, ", expected 1 .. ",
          int{BITGRAD_MAX_RANK});
  for (int32_t i = 0; i < in.rank; ++i) require(in.shape[i] >= 1, "c", "input: shape: got an axis of ", in.shape[i]);
  Form form;
  form.sample = Shape(std::vector<int64_t>(in.shape, in.shape + in.rank));
  form.dtype = in.dtype == BITGRAD_INT32 ? dtypes::int32 : dtypes::fp32;
  form.ids = in.ids;
  return form;
}

DLManagedTensor* to_dlpack(const Tensor& tensor) {
  auto held = std::make_unique<Held>();
  held->tensor = tensor;
  held->shape = tensor.shape().dims();
  DLTensor& t = held->dl.dl_tensor;
  t.data = tensor.data();
  t.device = {1, 0};
  t.ndim = static_cast<int32_t>(held->shape.size());
  t.dtype = {2, 32, 1};
  t.shape = held->shape.data();
  held->dl.manager_ctx = held.get();
  held->dl.deleter = delete_held;
  return &held.release()->dl;
}

}  // namespace bitgrad::capi

using namespace bitgrad;
using namespace bitgrad::capi;

bitgrad_array bitgrad_array_of(const void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  bitgrad_array a{data, dtype, rank, {}};
  if (shape != nullptr) std::copy_n(shape, std::clamp<int32_t>(rank, 0, BITGRAD_MAX_RANK), a.shape);
  return a;
}

int bitgrad_dlpack_share(const DLManagedTensor* tensor, DLManagedTensor** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    require(given(tensor, "tensor").deleter == delete_held, "c", "DLPack: got a tensor of somebody else");
    *out = to_dlpack(static_cast<const Held*>(tensor->manager_ctx)->tensor);
  });
}

int bitgrad_array_of_dlpack(const DLManagedTensor* tensor, bitgrad_array* out) {
  return guarded([&] {
    const DLTensor& t = given(tensor, "tensor").dl_tensor;
    given(out, "out") = {};
    require(t.device.device_type == 1, "c", "DLPack: got a tensor of device type ", t.device.device_type,
            ", expected the CPU (1). Copy it to the host first");
    require(t.ndim >= 1 && t.ndim <= BITGRAD_MAX_RANK, "c", "DLPack: got ", t.ndim, " axes, expected 1 .. ",
            int{BITGRAD_MAX_RANK});
    const DLDataType d = t.dtype;
    int32_t dtype = -1;
    if (d.lanes == 1 && d.code == 2 && d.bits == 32) dtype = BITGRAD_FLOAT32;
    if (d.lanes == 1 && d.code == 1 && d.bits == 8) dtype = BITGRAD_UINT8;
    if (d.lanes == 1 && d.code == 0 && d.bits == 32) dtype = BITGRAD_INT32;
    if (d.lanes == 1 && d.code == 0 && d.bits == 64) dtype = BITGRAD_INT64;
    require(dtype >= 0, "c", "DLPack: got dtype code ", int{d.code}, " of ", int{d.bits},
            " bits, expected float32, uint8, int32 or int64");
    int64_t step = 1;
    for (int32_t i = t.ndim - 1; t.strides != nullptr && i >= 0; --i) {
      require(t.strides[i] == step || t.shape[i] == 1, "c", "DLPack: axis ", i, " has stride ", t.strides[i],
              ", expected ", step, ": row-major. Make the tensor contiguous");
      step *= t.shape[i];
    }
    *out = bitgrad_array_of(static_cast<const char*>(t.data) + t.byte_offset, dtype, t.ndim, t.shape);
  });
}
