// The windows of a convolution as an operand of products: rows of K = taps * channels, gathered from the image one
// block at a time. docs/numerics.md section 4, "Convolutions".
#pragma once

#include <memory>
#include <string_view>

#include "bitgrad/ops/spatial.h"
#include "kernels/conv.h"
#include "ops/product/operand.h"

namespace bitgrad::detail {

// Everything about the products of a convolution that shapes alone determine.
struct ConvForm {
  int64_t samples = 0, channels = 0, outputs = 0, groups = 1;
  kernels::WindowGeometry geometry;
  int pad_value = 0;
  bool pads = false;  // some window extends outside the image

  int64_t rows() const { return samples * geometry.windows(); }
  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  int64_t k() const { return geometry.taps() * group_channels(); }
  // Windows are single pixels: the product can read the image as a matrix.
  bool pointwise() const;
};
// Rows of one group of outputs in a tensor [outputs, ..], such as the weight or the bias.
Tensor group_rows(const Tensor& t, const ConvForm& form, int64_t group);
// As conv2d_output; `where` names the op.
std::array<int64_t, 2> conv_output(std::string_view where, int64_t h, int64_t w, const Conv2dOptions& options);
// Throws Error if the image [n,h,w,c] or the number of outputs does not match the options. `where` names the op.
ConvForm conv_form(std::string_view where, const Shape& image, int64_t outputs, const Conv2dOptions& options);

// The image in a dtype that has a code for padding pixels: the image itself, or its values as ternary codes (kind sign,
// exact) or as fp32 (real offsets, and codebooks without a level 0).
DType gathered_dtype(DType image, bool offset, const ConvForm& form);
Tensor gatherable(const Tensor& image, const ConvForm& form);

// The windows of one group of channels. `image` [n,h,w,c] must be gatherable, with scales per tensor or channel(1).
class WindowsOperand final : public Operand {
 public:
  // How the rows of a block are used in the product.
  enum class Use : uint8_t { kFree, kContracted };
  WindowsOperand(const Tensor& image, const ConvForm& form, int64_t group, Use use);
  Side side(bool contracted_rows) const override;
  int64_t row_count() const override { return form_.rows(); }
  int64_t block_rows() const override { return block_; }
  Tensor rows(int64_t begin, int64_t end, Tensor& workspace) const override;

 private:
  const Tensor image_;
  const ConvForm& form_;
  int64_t group_, block_;
  Tensor pad_;                                // [1, c]: a padding pixel
  std::shared_ptr<const QuantParams> quant_;  // params of the rows
};

}  // namespace bitgrad::detail
