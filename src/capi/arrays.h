// Converts callers' arrays to samples and tensors, and outputs to DLPack tensors.
#pragma once

#include <cstdint>
#include <memory>

#include "bitgrad/c.h"
#include "bitgrad/data/samples.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/tensor/tensor.h"

// The structs of DLPack 0.x, with the ABI of DLManagedTensor (github.com/dmlc/dlpack, include/dlpack/dlpack.h).
struct DLDevice {
  int32_t device_type;  // 1: CPU
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;  // 0: int, 1: uint, 2: float
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64, "the ABI of 64-bit systems");

namespace bitgrad::capi {

// Read access to a caller's array. int64 elements are converted to int32; values that do not fit are an error.
class ArrayView {
 public:
  // `name` must be a string literal. Throws Error for an unknown dtype, a bad rank or shape, NULL and misaligned data.
  ArrayView(const bitgrad_array* array, const char* name);
  const SampleView& samples() const { return view_; }
  bool is_float() const { return view_.stored == StoredAs::kFloat; }
  bool is_bytes() const { return view_.stored == StoredAs::kUint8; }
  // Returns [n, shape...] in fp32 or int32: a view of data in these dtypes, an int32 copy of bytes. A view of data that
  // were not converted must not outlive the caller's array.
  Tensor tensor() const;
  // Owns the converted elements of an int64 array; nullptr otherwise.
  std::shared_ptr<const void> owner() const { return converted_; }

 private:
  SampleView view_;
  std::shared_ptr<std::vector<int32_t>> converted_;
};

// Whether `reading` is BITGRAD_STORED; throws Error if it is not BITGRAD_AS_IS either.
bool is_stored(int32_t reading);
void write_form(const Form& form, bitgrad_form& out);
Form read_form(const bitgrad_form& form);
// A DLPack tensor that keeps `tensor` (fp32 on the CPU, contiguous) alive until its deleter runs.
DLManagedTensor* to_dlpack(const Tensor& tensor);

}  // namespace bitgrad::capi
