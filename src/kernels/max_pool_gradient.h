// Family conv: the gradient of max pooling, CPU only. Devices run maps::MaxPoolGradient.
#pragma once

#include "kernels/conv.h"

namespace bitgrad::kernels {

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
