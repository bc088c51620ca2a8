#include "bitgrad/tensor/shape.h"

#include <ostream>

namespace bitgrad {

Shape::Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {
  int64_t product = 1;
  for (const int64_t d : dims_) {
    require(d >= 0, "Shape", "sizes must be at least 0: got ", d);
    if (d > 0) {
      require(product <= (int64_t{1} << 62) / d, "Shape", "too large: the product of the sizes passes 2^62");
      product *= d;
    }
  }
  for (size_t i = 0; i + 1 < dims_.size(); ++i) rows_ *= dims_[i];
}

int64_t Shape::operator[](int64_t i) const {
  const int64_t axis = i < 0 ? i + rank() : i;
  require(axis >= 0 && axis < rank(), "Shape", "axis ", i, " of ", *this, ", which has rank ", rank());
  return dims_[static_cast<size_t>(axis)];
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int64_t i = 0; i < shape.rank(); ++i) out << (i ? "," : "") << shape[i];
  return out << ']';
}

}  // namespace bitgrad
