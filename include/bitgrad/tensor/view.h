// Typed views of a tensor's matrix: TensorView<T> for plain elements, CodeView for packed codes.
#pragma once

#include "bitgrad/dtype/codec.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

template <typename T>
// Throws Error on construction unless T matches the dtype (Tensor::as).
class TensorView {
 public:
  explicit TensorView(const Tensor& t)
      : data_(reinterpret_cast<char*>(t.as<T>())), stride_(t.stride()), rows_(t.rows()), cols_(t.cols()) {}
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  T* row(int64_t r) const { return reinterpret_cast<T*>(data_ + r * stride_); }
  T& operator()(int64_t r, int64_t c) const { return row(r)[c]; }

 private:
  char* data_;
  int64_t stride_, rows_, cols_;
};

class CodeView {
 public:
  // Throws Error unless the tensor holds canonical codes.
  explicit CodeView(const Tensor& t)
      : data_(static_cast<char*>(t.data())),
        stride_(t.stride()),
        rows_(t.rows()),
        cols_(t.cols()),
        info_(&t.dtype().info()) {
    require(t.dtype().is_code() && t.layout() == layouts::canonical, "CodeView", "needs canonical codes, got ", t,
            " in layout ", t.layout());
  }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  uint32_t raw(int64_t r, int64_t c) const { return load_raw(data_ + r * stride_, c, info_->bits); }
  void set_raw(int64_t r, int64_t c, uint32_t raw) const { store_raw(data_ + r * stride_, c, info_->bits, raw); }
  int64_t number(int64_t r, int64_t c) const { return decode_int(*info_, raw(r, c)); }

 private:
  char* data_;
  int64_t stride_, rows_, cols_;
  const DTypeInfo* info_;
};

}  // namespace bitgrad
