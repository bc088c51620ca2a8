// Shapes: sizes of the axes, outermost first. The last axis is the packed one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <vector>

#include "bitgrad/base/error.h"

namespace bitgrad {

class Shape {
 public:
  Shape() = default;  // a scalar
  Shape(std::initializer_list<int64_t> dims) : Shape(std::vector<int64_t>(dims)) {}
  // Throws Error for a negative size or a product above 2^62.
  explicit Shape(std::vector<int64_t> dims);

  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  // Size of axis i; a negative i counts from the end.
  int64_t operator[](int64_t i) const;
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t numel() const { return rows() * cols(); }
  // The shape as a matrix: cols = last axis (1 for a scalar), rows = product of the others.
  int64_t rows() const { return rows_; }
  int64_t cols() const { return dims_.empty() ? 1 : dims_.back(); }
  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  std::vector<int64_t> dims_;
  int64_t rows_ = 1;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape);  // [3,5]

}  // namespace bitgrad
