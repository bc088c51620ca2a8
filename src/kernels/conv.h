// Family conv: gathers the windows of a convolution from images as rows of a matrix, and adds such rows back into
// images. Window m of images [n,h,w] is (image, oy, ox) in row-major order. Its row holds the channels of tap (0, 0),
// then those of (0, 1), and so on. docs/numerics.md section 4, "Convolutions".
#pragma once

#include <cstdint>

#include "bitgrad/dtype/dtype.h"
#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels {

// Tap (ky, kx) of window (oy, ox) reads pixel (oy * stride_y + ky * dilation_y - top, ox * stride_x + kx * dilation_x -
// left), which may lie outside the image.
struct WindowGeometry {
  int64_t h = 0, w = 0;    // size of an image in pixels
  int64_t oh = 0, ow = 0;  // windows per image
  int64_t kh = 1, kw = 1;  // taps per window
  int64_t stride_y = 1, stride_x = 1, dilation_y = 1, dilation_x = 1, top = 0, left = 0;
  int64_t taps() const { return kh * kw; }
  int64_t windows() const { return oh * ow; }
  int64_t pixels() const { return h * w; }
};

struct GatherWindowsArgs {
  WindowGeometry geometry;
  int64_t begin = 0, end = 0;  // range of windows, counted over all images
  const void* image = nullptr;
  int64_t stride = 0;  // bytes between pixels
  // Range of bits read of each pixel: the channels of one group. Unless they are whole bytes, image and stride must be
  // multiples of 8.
  int64_t first_bit = 0, bits = 0;
  const void* pad = nullptr;  // pixel in the same format, used outside the image
  // Row m - begin is written at (m - begin) * row_stride bytes: taps * bits bits, one tap after another, then zeros.
  // row_stride is a multiple of 8 unless `bits` is whole bytes; if it is one, `rows` is 8-byte aligned.
  void* rows = nullptr;
  int64_t row_stride = 0;
};
void gather_windows(const GatherWindowsArgs& args);

// image[pixel, first + i] += rows[m, t * channels + i] over the taps t of windows [begin, end) that lie inside, in
// ascending order of m for every element. fp32, fp64, or int32 (which wraps). Not atomic: pass whole images, or blocks
// of one image one after another; on a device whole images only.
struct AddWindowsArgs {
  WindowGeometry geometry;
  int64_t begin = 0, end = 0;
  const void* rows = nullptr;  // [end - begin, taps * channels], dense
  int64_t channels = 0;
  void* image = nullptr;
  int64_t first = 0, pixel = 0;  // in elements: first channel, and distance between pixels
  DType dtype = dtypes::fp32;    // of rows and image
};
void add_windows(const AddWindowsArgs& args);

// Convolutions with dilation 1 that read the images directly, without gathered rows, where the CPU has a kernel for the
// operands (AMX tiles, or AVX-512 for signs and for few channels) and it is expected to be faster. Codes (kind int,
// uint or sign, at most 8 bits, no zero points or offsets) times codes are exact. Products with fp32 are summed in an
// unspecified order (fast mode only), with the floats as they are or rounded to bf16. A kernel supports what it
// computes faster than gathered windows. Both functions return false, without any effect, if there is none.
struct DirectConvArgs {
  WindowGeometry geometry;
  int64_t images = 0, channels = 0, outputs = 0;
  const void* image = nullptr;  // [images,h,w,channels]; input_gradient: gy, [images,oh,ow,channels]
  DType dtype = dtypes::fp32;
  int64_t stride = 0;           // bytes between pixels
  int pad_value = 0;            // value of codes outside the image
  const float* fold = nullptr;  // [channels], multiplied into float images; nullptr: 1
  bool bf16 = false;            // float images are rounded to bf16, after folding
  // Codes or fp32 [outputs, taps * channels], rows w_stride bytes apart; input_gradient: [channels, taps * outputs].
  const void* w = nullptr;
  DType w_dtype = dtypes::bint1;
  int64_t w_stride = 0;
  bool input_gradient = false;  // computes gx: the image is gy of these windows, and C has one row per pixel
  // C[window, output] = float(sum) * (image_scale * w_scale) (+ bias), fp32; or the sums as int32.
  void* c = nullptr;
  DType c_dtype = dtypes::fp32;
  int64_t ldc = 0;                                                          // elements between rows of C
  const float *image_scale = nullptr, *w_scale = nullptr, *bias = nullptr;  // nullptr: 1, 1, 0
  int64_t image_step = 0, w_step = 0;                                       // 0: one for all
};
KernelList<Kernel<DirectConvArgs>>& conv_kernels();
bool conv_direct(const DirectConvArgs& args);

struct DirectWeightsArgs {
  WindowGeometry geometry;
  int64_t images = 0, channels = 0, outputs = 0;
  const void* image = nullptr;  // codes or fp32, [images,h,w,channels]
  DType dtype = dtypes::bint1;
  int64_t stride = 0;  // bytes between pixels
  int pad_value = 0;
  const void* gy = nullptr;  // [windows, outputs], fp32 or int8
  DType gy_dtype = dtypes::fp32;
  int64_t gy_stride = 0;        // bytes between windows
  const float* fold = nullptr;  // one factor, multiplied into float gy; nullptr: 1
  bool bf16 = false;            // float gy is rounded to bf16, after folding
  void* c = nullptr;            // [outputs, taps * channels], dense: fp32, or int32 sums of int8 gy
};
KernelList<Kernel<DirectWeightsArgs>>& conv_weights_kernels();
bool conv_weights_direct(const DirectWeightsArgs& args);

// Family conv, depthwise convolutions: output channel j of `channels * multiplier` reads only input channel (j /
// multiplier), so channels map to lanes and no windows are gathered. Operands are expanded to fp32 one row of pixels at
// a time; integers and sums below 2^24 are exact. docs/numerics.md section 4, "Depthwise convolutions".

// Images with values s * (q - z), s * q + m or s * q, each operation rounded once in fp32: codes of at most 8 bits,
// fp32 or bf16; or fp64 without scales. Scales per tensor or per channel.
struct DepthwiseImages {
  const void* data = nullptr;
  DType dtype = dtypes::fp32;
  int64_t pixel = 0, image = 0;  // bytes between pixels, and between images
  ScaleMap scale;                // row index: pixel
};

// Common to the three kernels. Type T is fp32, or fp64 if the images are; on a device fp32 only.
struct DepthwiseForm {
  WindowGeometry geometry;
  int64_t samples = 0, channels = 0, multiplier = 1;
  int64_t outputs() const { return channels * multiplier; }
};

// y[m,j] = (one fma chain from +0 over ascending taps t of x[pixel(m,t), j / multiplier] * w[t,j]) (* scale[j]) (+
// bias[j]), rounded to fp32, bf16 or fp64; or int32 for integer operands without scale and bias. Taps on pixels outside
// the image are skipped, or read `pad` if given.
struct DepthwiseForwardArgs {
  DepthwiseForm form;
  DepthwiseImages x;
  const void* pad = nullptr;                      // T [channels]
  const void* w = nullptr;                        // T [taps, outputs]
  int64_t first_tap = 0, end_tap = 0;             // range of taps that are summed
  const float *scale = nullptr, *bias = nullptr;  // fp32 [outputs], optional
  void* y = nullptr;                              // dense [samples * windows, outputs]
  DType y_dtype = dtypes::fp32;
};
void depthwise_forward(const DepthwiseForwardArgs& args);

// gx[p,c] = (one fma chain from +0 over the windows m that read pixel p, ascending, and within each over ascending
// multiples j of gy[m, c * multiplier + j] * w[t(m,p),j,c]) (* image_scale[image of p]).
struct DepthwiseGxArgs {
  DepthwiseForm form;
  DepthwiseImages gy;
  const void* w = nullptr;             // T [taps, multiplier, channels]
  const float* image_scale = nullptr;  // fp32, one per image; optional
  void* gx = nullptr;                  // T, dense [samples * pixels, channels]
};
void depthwise_gx(const DepthwiseGxArgs& args);

// Number of windows in a panel of gw; integer sums of 8-bit codes stay below 2^24.
inline constexpr int64_t kDepthwisePanel = 512;
// panels[i,t,j] = one fma chain from +0 over ascending windows m of panel i of gy[m,j] * x[pixel(m,t), j / multiplier].
// Pixels outside the image as in forward.
struct DepthwiseGwArgs {
  DepthwiseForm form;
  DepthwiseImages x, gy;
  const void* pad = nullptr;  // T [channels]
  void* panels = nullptr;     // T, dense [ceil(windows of all images / kDepthwisePanel), taps, outputs]
};
void depthwise_gw(const DepthwiseGwArgs& args);

// Family conv: the gradient of max pooling, CPU only. Devices run maps::MaxPoolGradient.

// gx[pixel, c] = +0, plus gy of each window whose maximum it was, in ascending order of windows; fp32. The position of
// the maximum is given by `taps`, or by the one-bit codes that were pooled: the first 1, else the first pixel inside.
struct MaxPoolGradientArgs {
  WindowGeometry geometry;  // dilation 1
  int64_t images = 0, channels = 0;
  const uint8_t* taps = nullptr;   // tap of each maximum: [windows, channels], dense; or
  const uint64_t* bits = nullptr;  // the pooled codes: [pixels, words]
  int64_t words = 0;
  const float* gy = nullptr;  // [windows, channels], dense
  float* gx = nullptr;        // [pixels, channels], dense; every element is written
};
void max_pool_gradient(const MaxPoolGradientArgs& args);
// Computes rows [begin, end) of pixels, counted over all images, into gx [(end - begin) * w, channels]; args.gx is not
// used. Runs on the calling thread.
void max_pool_gradient_rows(const MaxPoolGradientArgs& args, int64_t begin, int64_t end, float* gx);

}  // namespace bitgrad::kernels
