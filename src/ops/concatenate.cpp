// y = the parts, concatenated along an axis; the gradient of each part is its slice of gy.
#include <algorithm>

#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "ops/common.h"
#include "ops/map/codes.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

constexpr std::string_view kConcatenate = "concatenate";

// Requires both to be absent, or both present with equal bits. On a device the comparison is reported when errors are
// polled.
void require_equal_numbers(size_t part, const std::shared_ptr<const Tensor>& a,
                           const std::shared_ptr<const Tensor>& b) {
  const auto differ = [part] {
    fail(kConcatenate, "scale or zero point of part ", part,
         " differs from that of part 0: codes are joined where one scale serves all. Dequantize them first");
  };
  if ((a == nullptr) != (b == nullptr)) differ();
  if (a == nullptr || a == b) return;
  const FlagWord flag;
  run_map(
      maps::FlagUnequal{static_cast<const uint32_t*>(a->data()), static_cast<const uint32_t*>(b->data()), flag.word()},
      a->numel());
  flag.check(differ);
}

void require_equal_params(size_t part, const Tensor& first, const Tensor& other) {
  const auto &a = first.quant(), &b = other.quant();
  if (a == b) return;
  require((a == nullptr) == (b == nullptr), kConcatenate, "part 0 (", first, ") ", a ? "has a scale" : "has none",
          ", part ", part, " (", other, ") ", b ? "has one" : "has none", ". Quantize or dequantize both");
  require_equal_numbers(part, a->scale, b->scale);
  require_equal_numbers(part, a->zero, b->zero);
  require_equal_numbers(part, a->offset, b->offset);
}

struct Concatenate {
  static constexpr std::string_view kName = kConcatenate;
  struct Saved {
    std::vector<Shape> shapes;
    int64_t axis = 0;
  };

  // Returns the shape of the result.
  static Shape checked(std::span<const Tensor> in, int64_t axis) {
    std::vector<int64_t> dims = in[0].shape().dims();
    for (size_t i = 0; i < in.size(); ++i) {
      require_movable(kName, concat("part ", i), in[i]);
      std::vector<int64_t> other = in[i].shape().dims();
      const bool fits = other.size() == dims.size() && in[i].dtype() == in[0].dtype();
      if (fits) other[static_cast<size_t>(axis)] = dims[static_cast<size_t>(axis)];
      require(fits && other == dims, kName, "part ", i, " (", in[i], ") does not fit part 0 (", in[0],
              "): parts have one dtype, and one size but along axis ", axis);
      if (i > 0) require_equal_params(i, in[0], in[i]);
    }
    int64_t length = 0;
    for (const Tensor& part : in) length += part.shape()[axis];
    dims[static_cast<size_t>(axis)] = length;
    return Shape(dims);
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, int64_t given) {
    s.axis = axis_in(kName, given, in[0]);
    const Shape shape = checked(in, s.axis);
    const DType dtype = in[0].dtype();
    const Tensor y = dtype.is_code() ? Tensor::zeros(shape, dtype) : Tensor::empty(shape, dtype);
    int64_t begin = 0;
    for (const Tensor& part : in) {
      s.shapes.push_back(part.shape());
      copy_in(part, s.axis, begin, y);
      begin += part.shape()[s.axis];
    }
    return y.with_quant(in[0].quant());
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    int64_t begin = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      if (g[i].wanted()) {
        const DType dtype = gy[0].dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
        const Tensor part = Tensor::empty(s.shapes[i], dtype);
        copy_out(gy[0], s.axis, begin, part);
        g[i].set_rounded(part);
      }
      begin += s.shapes[i][s.axis];
    }
  }
};

}  // namespace

Var concatenate(const std::vector<Var>& parts, int64_t axis) {
  require(!parts.empty(), kConcatenate, "no parts to join");
  return apply<Concatenate>(parts, axis);
}

}  // namespace bitgrad
