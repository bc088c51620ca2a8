// Arrays of callers as samples and tensors, and outputs as DLPack tensors.
#pragma once

#include <memory>

#include "bitgrad/c.h"
#include "bitgrad/data/samples.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/tensor/tensor.h"
#include "capi/dlpack.h"

namespace bitgrad::capi {

// Of an array that a call reads: what it is, and numbers of int64 as int32, which must hold them.
class ArrayView {
 public:
  // `name` is a literal. Throws Error for an unknown dtype, a bad rank or shape, and data that are not aligned.
  ArrayView(const bitgrad_array* array, const char* name);
  const SampleView& samples() const { return view_; }
  bool is_float() const { return view_.stored == StoredAs::kFloat; }
  bool is_bytes() const { return view_.stored == StoredAs::kUint8; }
  // [n, shape...] fp32 or int32, without a copy where it is one of the two; bytes become int32. It lives as long as the
  // array and this view.
  Tensor tensor() const;
  // What keeps converted numbers alive.
  std::shared_ptr<const void> owner() const { return converted_; }

 private:
  SampleView view_;
  std::shared_ptr<std::vector<int32_t>> converted_;
};

void write_form(const Form& form, bitgrad_form& out);
Form read_form(const bitgrad_form& form);
// A DLPack tensor that keeps `tensor` (fp32 on the CPU, contiguous) alive until its deleter runs.
DLManagedTensor* to_dlpack(const Tensor& tensor);

}  // namespace bitgrad::capi
