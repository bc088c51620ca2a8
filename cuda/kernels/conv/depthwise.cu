// Depthwise convolutions (contracts: kernels/conv.h): one thread per output of forward, element of gx, or
// weight of a panel of gw. Adjacent threads process adjacent channels. Codes are decoded as they are read.
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "cuda/device/builtins.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/operand.h"
#include "cuda/kernels/launch.h"

namespace bitgrad::cuda {
namespace {

struct Images {
  gemm::Operand pixels;
  int64_t image;  // bytes
  gemm::Levels levels;
};

// Value of channel c of a pixel of an image.
BITGRAD_DEVICE inline float number_of(const Images& images, int64_t image, int64_t pixel, int64_t c) {
  gemm::Operand x = images.pixels;
  x.data += image * images.image;
  return gemm::float_value(x, images.levels, pixel, c);
}

enum class DepthwiseStore : uint8_t { kFp32, kBf16, kInt32 };

struct DepthwiseForward {
  DepthwiseForm form;
  Images x;
  const float *pad, *w, *scale, *bias;
  int64_t first_tap, end_tap;
  void* y;
  DepthwiseStore store;
};

BITGRAD_GLOBAL void depthwise_forward_kernel(DepthwiseForward p, int64_t n) {
  const WindowGeometry& g = p.form.geometry;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, outputs = p.form.channels * p.form.multiplier;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t m = i / outputs, o = i - m * outputs, c = o / p.form.multiplier, row = m / g.ow, ox = m - row * g.ow;
    const int64_t image = row / g.oh, oy = row - image * g.oh;
    float sum = 0;
    for (int64_t t = p.first_tap; t < p.end_tap; ++t) {
      const int64_t ky = t / g.kw, y = oy * g.stride_y + ky * g.dilation_y - g.top;
      const int64_t x = ox * g.stride_x + (t - ky * g.kw) * g.dilation_x - g.left;
      const bool in = y >= 0 && y < g.h && x >= 0 && x < g.w;
      if (!in && p.pad == nullptr) continue;
      sum = fmaf(in ? number_of(p.x, image, y * g.w + x, c) : p.pad[c], p.w[t * outputs + o], sum);
    }
    if (p.scale != nullptr) sum = sum * p.scale[o];
    if (p.bias != nullptr) sum = sum + p.bias[o];
    if (p.store == DepthwiseStore::kFp32) static_cast<float*>(p.y)[i] = sum;
    if (p.store == DepthwiseStore::kBf16) static_cast<uint16_t*>(p.y)[i] = bf16_from_float(sum);
    if (p.store == DepthwiseStore::kInt32) static_cast<int32_t*>(p.y)[i] = static_cast<int32_t>(sum);
  }
}

struct PixelGradient {
  DepthwiseForm form;
  Images gy;
  const float *w, *image_scale;
  float* gx;
};

BITGRAD_GLOBAL void depthwise_gx_kernel(PixelGradient p, int64_t n) {
  const WindowGeometry& g = p.form.geometry;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, multiples = p.form.multiplier;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t pixel = i / p.form.channels, c = i - pixel * p.form.channels, row = pixel / g.w;
    const int64_t x = pixel - row * g.w, image = row / g.h, y = row - image * g.h;
    float sum = 0;
    for (int64_t ky = g.kh - 1; ky >= 0; --ky) {
      const int64_t ty = y + g.top - ky * g.dilation_y, oy = ty / g.stride_y;
      if (ty < 0 || ty % g.stride_y != 0 || oy >= g.oh) continue;
      for (int64_t kx = g.kw - 1; kx >= 0; --kx) {
        const int64_t tx = x + g.left - kx * g.dilation_x, ox = tx / g.stride_x;
        if (tx < 0 || tx % g.stride_x != 0 || ox >= g.ow) continue;
        const float* const w = p.w + (ky * g.kw + kx) * multiples * p.form.channels + c;
        for (int64_t j = 0; j < multiples; ++j)
          sum = fmaf(number_of(p.gy, image, oy * g.ow + ox, c * multiples + j), w[j * p.form.channels], sum);
      }
    }
    p.gx[i] = p.image_scale == nullptr ? sum : sum * p.image_scale[image];
  }
}

struct WeightPanels {
  DepthwiseForm form;
  Images x, gy;
  const float* pad;
  int64_t windows;  // in all images
  float* panels;
};

BITGRAD_GLOBAL void depthwise_gw_kernel(WeightPanels p, int64_t n) {
  const WindowGeometry& g = p.form.geometry;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, outputs = p.form.channels * p.form.multiplier;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t tap = i / outputs, o = i - tap * outputs, c = o / p.form.multiplier;
    const int64_t panel = tap / (g.kh * g.kw), t = tap - panel * (g.kh * g.kw), ky = t / g.kw, kx = t - ky * g.kw;
    const int64_t begin = panel * kDepthwisePanel, rest = p.windows - begin;
    const int64_t end = begin + (rest < kDepthwisePanel ? rest : kDepthwisePanel);
    float sum = 0;
    for (int64_t m = begin; m < end; ++m) {
      const int64_t row = m / g.ow, ox = m - row * g.ow, image = row / g.oh, oy = row - image * g.oh;
      const int64_t y = oy * g.stride_y + ky * g.dilation_y - g.top, x = ox * g.stride_x + kx * g.dilation_x - g.left;
      const bool in = y >= 0 && y < g.h && x >= 0 && x < g.w;
      if (!in && p.pad == nullptr) continue;
      sum = fmaf(number_of(p.gy, image, oy * g.ow + ox, o), in ? number_of(p.x, image, y * g.w + x, c) : p.pad[c], sum);
    }
    p.panels[i] = sum;
  }
}

Images images_of(const DepthwiseImages& x) {
  GemmOperand pixels;
  pixels.data = x.data;
  pixels.dtype = x.dtype;
  pixels.stride = x.pixel;
  pixels.scale = x.scale;
  if (x.dtype == dtypes::fp64) bitgrad::detail::fail_fp64_on_device("depthwise convolutions");
  return {gemm::operand_of(pixels), x.image, gemm::levels_of(x.dtype)};
}

DepthwiseStore store_of(DType y) {
  if (y == dtypes::bf16) return DepthwiseStore::kBf16;
  ensure(y == dtypes::fp32 || y == dtypes::int32, "depthwise_forward", "no output of ", y, " on a device");
  return y == dtypes::fp32 ? DepthwiseStore::kFp32 : DepthwiseStore::kInt32;
}

}  // namespace

void depthwise_forward_cuda(const DepthwiseForwardArgs& args) {
  const int64_t n = args.form.samples * args.form.geometry.windows() * args.form.outputs();
  if (n == 0) return;
  const DepthwiseForward p{args.form,
                           images_of(args.x),
                           static_cast<const float*>(args.pad),
                           static_cast<const float*>(args.w),
                           args.scale,
                           args.bias,
                           args.first_tap,
                           args.end_tap,
                           args.y,
                           store_of(args.y_dtype)};
  launch(depthwise_forward_kernel, cover(n, "depthwise_forward_cuda"), p, n);
}

void depthwise_gx_cuda(const DepthwiseGxArgs& args) {
  const int64_t n = args.form.samples * args.form.geometry.pixels() * args.form.channels;
  if (n == 0) return;
  const PixelGradient p{args.form, images_of(args.gy), static_cast<const float*>(args.w), args.image_scale,
                        static_cast<float*>(args.gx)};
  launch(depthwise_gx_kernel, cover(n, "depthwise_gx_cuda"), p, n);
}

void depthwise_gw_cuda(const DepthwiseGwArgs& args) {
  const int64_t windows = args.form.samples * args.form.geometry.windows();
  const int64_t n = ceil_div(windows, kDepthwisePanel) * args.form.geometry.taps() * args.form.outputs();
  if (n == 0) return;
  const WeightPanels p{args.form,
                       images_of(args.x),
                       images_of(args.gy),
                       static_cast<const float*>(args.pad),
                       windows,
                       static_cast<float*>(args.panels)};
  launch(depthwise_gw_kernel, cover(n, "depthwise_gw_cuda"), p, n);
}

}  // namespace bitgrad::cuda
