// Family windows: the gradient of a largest element of a window, on the CPU. Devices run maps::MaxPoolGradient.
#pragma once

#include "bitgrad/kernels/windows.h"

namespace bitgrad::kernels {

// gx[pixel, c] = +0, then + gy of each window, in ascending order, whose maximum it was: fp32. Where the maxima were is
// known by the tap of each, or by the codes of one bit that they are of: the first 1, else the first pixel inside.
struct MaxPoolGradientArgs {
  WindowGeometry geometry;  // dilation 1
  int64_t images = 0, channels = 0;
  const uint8_t* taps = nullptr;   // [windows, channels], dense; or
  const uint64_t* bits = nullptr;  // [pixels, words]
  int64_t words = 0;
  const float* gy = nullptr;  // [windows, channels], dense
  float* gx = nullptr;        // [pixels, channels], dense; every element is written
};
void max_pool_gradient(const MaxPoolGradientArgs& args);
// Rows [begin, end) of pixels, counted over all images, to gx [(end - begin) * w, channels]; args.gx is not read. On
// the calling thread.
void max_pool_gradient_rows(const MaxPoolGradientArgs& args, int64_t begin, int64_t end, float* gx);

}  // namespace bitgrad::kernels
