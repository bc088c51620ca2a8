// Family windows: the windows of a convolution as rows of a matrix, gathered from images, and sums of such rows added
// back into images. Window m of images [n,h,w] is (image, oy, ox) in row-major order; its row holds the channels of tap
// (0, 0), then of (0, 1) ..: docs/numerics.md section 4, "Convolutions".
#pragma once

#include <cstdint>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::kernels {

// Tap (ky, kx) of window (oy, ox) lies on pixel (oy * stride_y + ky * dilation_y - top, ox * stride_x + kx * dilation_x
// - left), which may be outside the image.
struct WindowGeometry {
  int64_t h = 0, w = 0;    // pixels of an image
  int64_t oh = 0, ow = 0;  // windows of an image
  int64_t kh = 1, kw = 1;  // taps of a window
  int64_t stride_y = 1, stride_x = 1, dilation_y = 1, dilation_x = 1, top = 0, left = 0;
  int64_t taps() const { return kh * kw; }
  int64_t windows() const { return oh * ow; }
  int64_t pixels() const { return h * w; }
};

struct GatherWindowsArgs {
  WindowGeometry geometry;
  int64_t begin = 0, end = 0;  // windows, of all images
  const void* image = nullptr;
  int64_t stride = 0;  // bytes between pixels
  // Of a pixel, the bits that are read: of one group's channels. Not whole bytes: image and stride are multiples of 8.
  int64_t first_bit = 0, bits = 0;
  const void* pad = nullptr;  // a pixel in the same form that stands for those outside
  // Row m - begin at row_stride bytes from the one before: taps * bits bits, one tap after another, then zeros. Rows
  // are multiples of 8 bytes unless `bits` are whole bytes, and begin on 8 bytes where they are.
  void* rows = nullptr;
  int64_t row_stride = 0;
};
void gather_windows(const GatherWindowsArgs& args);

// image[pixel, first + i] += rows[m, t * channels + i] over the taps t of windows [begin, end) that lie inside, for
// every element in ascending order of m. fp32, fp64, or int32 (which wraps). Not atomic: a caller gives whole images,
// or blocks of them one after another; on a device whole images alone.
struct AddWindowsArgs {
  WindowGeometry geometry;
  int64_t begin = 0, end = 0;
  const void* rows = nullptr;  // [end - begin, taps * channels], dense
  int64_t channels = 0;
  void* image = nullptr;
  int64_t first = 0, pixel = 0;  // elements: first channel, and between pixels
  DType dtype = dtypes::fp32;    // of both
};
void add_windows(const AddWindowsArgs& args);

// Convolutions of one stride in both directions and dilation 1 from the images themselves, without gathered rows, where
// the CPU has a unit that loads rows at any distance (AMX) and it pays. Codes (kind int, uint or sign, at most 8 bits,
// without zero points and offsets) times codes are exact; fp32 times codes are summed in a free order (mode `fast`
// alone), the floats as they are or rounded to bf16. Both return false, and have done nothing, where there is no such
// unit or it does not pay.
struct DirectConvArgs {
  WindowGeometry geometry;
  int64_t images = 0, channels = 0, outputs = 0;
  const void* image = nullptr;  // [images,h,w,channels]; input_gradient: [images,oh,ow,channels]
  DType dtype = dtypes::fp32;
  int64_t stride = 0;           // bytes between pixels
  int pad_value = 0;            // of codes outside
  const float* fold = nullptr;  // [channels], multiplied into floats; nullptr: none
  bool bf16 = false;            // floats are rounded, after folding
  // Codes [outputs, taps * channels], rows w_stride bytes apart; input_gradient: [channels, taps * outputs].
  const void* w = nullptr;
  DType w_dtype = dtypes::bint1;
  int64_t w_stride = 0;
  bool input_gradient = false;  // gx: the image is gy of these windows, and C has a row for every pixel
  // C[window, output] = float(sum) * (image_scale * w_scale) (+ bias), fp32; or int32 sums.
  void* c = nullptr;
  DType c_dtype = dtypes::fp32;
  int64_t ldc = 0;
  const float *image_scale = nullptr, *w_scale = nullptr, *bias = nullptr;  // nullptr: 1, 1, 0
  int64_t image_step = 0, w_step = 0;                                       // 0: one for all
};
bool conv_direct(const DirectConvArgs& args);

struct DirectWeightsArgs {
  WindowGeometry geometry;
  int64_t images = 0, channels = 0, outputs = 0;
  const void* image = nullptr;  // codes
  DType dtype = dtypes::bint1;
  int64_t stride = 0;
  int pad_value = 0;
  const void* gy = nullptr;  // [windows, outputs], fp32 or int8
  DType gy_dtype = dtypes::fp32;
  int64_t gy_stride = 0;        // bytes between windows
  const float* fold = nullptr;  // one number, multiplied into floats; nullptr: none
  bool bf16 = false;
  void* c = nullptr;  // [outputs, taps * channels], dense: fp32, or int32 sums of int8
};
bool conv_weights_direct(const DirectWeightsArgs& args);

}  // namespace bitgrad::kernels
