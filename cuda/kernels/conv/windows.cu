// Family conv (contracts: kernels/conv.h): one thread per word, or unit of 1 to 8 bytes, of the gathered
// rows; one thread per element of the images into which rows are added.
#include "bitgrad/base/error.h"
#include "cuda/device/builtins.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"

namespace bitgrad::cuda {
namespace {

struct Gather {
  GatherWindowsArgs args;
  int64_t row_units, tap_units, used_units;  // per row, per tap, in all taps
};

// The pixel of tap `tap` of window m; the padding pixel if it is outside the image.
BITGRAD_DEVICE inline const char* pixel_of(const GatherWindowsArgs& args, int64_t m, int64_t tap) {
  const WindowGeometry& g = args.geometry;
  const int64_t image = m / (g.oh * g.ow), window = m - image * (g.oh * g.ow);
  const int64_t oy = window / g.ow, ox = window - oy * g.ow, ky = tap / g.kw, kx = tap - ky * g.kw;
  const int64_t y = oy * g.stride_y + ky * g.dilation_y - g.top, x = ox * g.stride_x + kx * g.dilation_x - g.left;
  const bool in = y >= 0 && y < g.h && x >= 0 && x < g.w;
  return static_cast<const char*>(in ? args.image : args.pad) + (in ? ((image * g.h + y) * g.w + x) * args.stride : 0);
}

template <typename Unit>
BITGRAD_GLOBAL void gather_units_kernel(Gather p, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t row = i / p.row_units, unit = i - row * p.row_units, tap = unit / p.tap_units;
    Unit value = 0;
    if (unit < p.used_units) {
      const char* const pixel = pixel_of(p.args, p.args.begin + row, tap) + p.args.first_bit / 8;
      value = reinterpret_cast<const Unit*>(pixel)[unit - tap * p.tap_units];
    }
    reinterpret_cast<Unit*>(static_cast<char*>(p.args.rows) + row * p.args.row_stride)[unit] = value;
  }
}

// Writes one word of a row from the taps whose bits fall into it. row_units counts words, tap_units and used_units
// bits.
BITGRAD_GLOBAL void gather_bits_kernel(Gather p, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t row = i / p.row_units, word = i - row * p.row_units;
    uint64_t value = 0;
    for (int64_t bit = word * 64, filled = 0; filled < 64 && bit < p.used_units;) {
      const int64_t tap = bit / p.tap_units, at = bit - tap * p.tap_units;
      const int64_t from = p.args.first_bit + at, shift = from % 64;
      int64_t count = p.tap_units - at;
      count = count < 64 - filled ? count : 64 - filled;
      count = count < 64 - shift ? count : 64 - shift;
      const auto* const words = reinterpret_cast<const uint64_t*>(pixel_of(p.args, p.args.begin + row, tap));
      const uint64_t mask = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
      value |= ((words[from / 64] >> shift) & mask) << filled;
      filled += count;
      bit += count;
    }
    reinterpret_cast<uint64_t*>(static_cast<char*>(p.args.rows) + row * p.args.row_stride)[word] = value;
  }
}

template <typename Unit>
void gather_units(const GatherWindowsArgs& args) {
  const auto size = static_cast<int64_t>(sizeof(Unit));
  const int64_t tap = args.bits / 8 / size;
  const Gather p{args, args.row_stride / size, tap, args.geometry.taps() * tap};
  const int64_t n = (args.end - args.begin) * p.row_units;
  launch(gather_units_kernel<Unit>, cover(n, "gather_windows_cuda"), p, n);
}

// The largest unit in bytes, at most 8, that divides all sizes, strides and addresses.
int64_t unit_of(const GatherWindowsArgs& args) {
  const auto all = static_cast<uint64_t>(args.stride) | static_cast<uint64_t>(args.first_bit / 8) |
                   static_cast<uint64_t>(args.bits / 8) | static_cast<uint64_t>(args.row_stride) |
                   reinterpret_cast<uintptr_t>(args.image) | reinterpret_cast<uintptr_t>(args.pad) |
                   reinterpret_cast<uintptr_t>(args.rows) | 8;
  return static_cast<int64_t>(all & (~all + 1));
}

template <typename T>
BITGRAD_GLOBAL void add_windows_kernel(AddWindowsArgs p, int64_t n) {
  const WindowGeometry& g = p.geometry;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first_image = p.begin / (g.oh * g.ow), width = g.kh * g.kw * p.channels;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t c = i % p.channels, pixel = i / p.channels, x = pixel % g.w, y = pixel / g.w % g.h;
    const int64_t image = pixel / (g.w * g.h);
    T* const to = static_cast<T*>(p.image) + ((first_image + image) * g.h * g.w + y * g.w + x) * p.pixel + p.first + c;
    T sum = *to;
    for (int64_t ky = g.kh - 1; ky >= 0; --ky) {
      const int64_t ty = y + g.top - ky * g.dilation_y, oy = ty / g.stride_y;
      if (ty < 0 || ty % g.stride_y != 0 || oy >= g.oh) continue;
      for (int64_t kx = g.kw - 1; kx >= 0; --kx) {
        const int64_t tx = x + g.left - kx * g.dilation_x, ox = tx / g.stride_x;
        if (tx < 0 || tx % g.stride_x != 0 || ox >= g.ow) continue;
        const int64_t m = (image * g.oh + oy) * g.ow + ox;
        sum = sum + static_cast<const T*>(p.rows)[m * width + (ky * g.kw + kx) * p.channels + c];
      }
    }
    *to = sum;
  }
}

}  // namespace

void gather_windows_cuda(const GatherWindowsArgs& args) {
  if (args.end <= args.begin || args.bits == 0) return;
  if (args.bits % 8 != 0 || args.first_bit % 8 != 0) {
    const Gather p{args, args.row_stride / 8, args.bits, args.geometry.taps() * args.bits};
    const int64_t n = (args.end - args.begin) * p.row_units;
    return launch(gather_bits_kernel, cover(n, "gather_windows_cuda"), p, n);
  }
  switch (unit_of(args)) {
    case 8:
      return gather_units<uint64_t>(args);
    case 4:
      return gather_units<uint32_t>(args);
    case 2:
      return gather_units<uint16_t>(args);
    default:
      return gather_units<uint8_t>(args);
  }
}

void add_windows_cuda(const AddWindowsArgs& args) {
  const WindowGeometry& g = args.geometry;
  ensure(args.begin % g.windows() == 0 && args.end % g.windows() == 0, "add_windows", "blocks of images on a device");
  if (args.end <= args.begin || args.channels == 0) return;
  const int64_t n = (args.end - args.begin) / g.windows() * g.pixels() * args.channels;
  if (args.dtype == dtypes::int32) return launch(add_windows_kernel<int32_t>, cover(n, "add_windows_cuda"), args, n);
  ensure(args.dtype == dtypes::fp32, "add_windows", "no sums of ", args.dtype, " on a device");
  launch(add_windows_kernel<float>, cover(n, "add_windows_cuda"), args, n);
}

}  // namespace bitgrad::cuda
