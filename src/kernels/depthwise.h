// Family conv, depthwise convolutions: output channel j of `channels * multiplier` reads only input channel (j /
// multiplier), so channels map to lanes and no windows are gathered. Operands are expanded to fp32 one row of pixels at
// a time; integers and sums below 2^24 are exact. docs/numerics.md section 4, "Depthwise convolutions".
#pragma once

#include <cstdint>

#include "bitgrad/dtype/dtype.h"
#include "kernels/conv.h"

namespace bitgrad::kernels {

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

}  // namespace bitgrad::kernels
