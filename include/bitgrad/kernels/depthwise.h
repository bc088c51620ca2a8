// Family windows, depthwise convolutions: output channel j of `channels * multiplier` reads input channel j /
// multiplier alone, so channels are lanes and no window is gathered. Operands are opened to fp32 a row of pixels at a
// time; integer numbers and sums below 2^24 are exact in it. docs/numerics.md section 4, "Depthwise convolutions".
#pragma once

#include <cstdint>

#include "bitgrad/dtype/dtype.h"
#include "bitgrad/dtype/scale_map.h"
#include "bitgrad/kernels/windows.h"

namespace bitgrad::kernels {

// Images of numbers s * (q - z), s * q + m or s * q, each operation rounded once in fp32: codes of at most 8 bits, fp32
// or bf16; fp64 without scales. Parameters per tensor or per channel.
struct DepthwiseImages {
  const void* data = nullptr;
  DType dtype = dtypes::fp32;
  int64_t pixel = 0, image = 0;  // bytes from a pixel to the next, and from an image to the next
  ScaleMap scale;                // rows: pixels
};

// What the three kernels share. Numbers of type T are fp32, or fp64 where the images are. Outputs: channels *
// multiplier. On a device fp32 alone.
struct DepthwiseForm {
  WindowGeometry geometry;
  int64_t samples = 0, channels = 0, multiplier = 1;
  int64_t outputs() const { return channels * multiplier; }
};

// y[m,j] = (one fma chain from +0 over ascending taps t of x[pixel(m,t), j / multiplier] * w[t,j]) (* scale[j]) (+
// bias[j]), rounded to fp32, bf16, fp64, or int32 (of integer numbers, without scale and bias). Taps on pixels outside
// are left out, or read `pad`.
struct DepthwiseForwardArgs {
  DepthwiseForm form;
  DepthwiseImages x;
  const void* pad = nullptr;           // T [channels]
  const void* w = nullptr;             // T [taps, outputs]
  int64_t first_tap = 0, end_tap = 0;  // those that are summed
  const float *scale = nullptr, *bias = nullptr;
  void* y = nullptr;  // dense [samples * windows, outputs]
  DType y_dtype = dtypes::fp32;
};
void depthwise_forward(const DepthwiseForwardArgs& args);

// gx[p,c] = (one fma chain from +0 over the windows m that read pixel p, ascending, and for each over ascending
// multiples j of gy[m, c * multiplier + j] * w[t(m,p),j,c]) (* image_scale[image of p]).
struct DepthwiseGxArgs {
  DepthwiseForm form;
  DepthwiseImages gy;
  const void* w = nullptr;  // T [taps, multiplier, channels]
  const float* image_scale = nullptr;
  void* gx = nullptr;  // T, dense [samples * pixels, channels]
};
void depthwise_gx(const DepthwiseGxArgs& args);

// Windows of a panel of gw: integer sums of codes of 8 bits stay below 2^24.
inline constexpr int64_t kDepthwisePanel = 512;
// panels[i,t,j] = one fma chain from +0 over ascending windows m of panel i of gy[m,j] * x[pixel(m,t), j / multiplier];
// pixels outside as in forward.
struct DepthwiseGwArgs {
  DepthwiseForm form;
  DepthwiseImages x, gy;
  const void* pad = nullptr;  // T [channels]
  void* panels = nullptr;     // T, dense [windows of all images / kDepthwisePanel rounded up, taps, outputs]
};
void depthwise_gw(const DepthwiseGwArgs& args);

}  // namespace bitgrad::kernels
