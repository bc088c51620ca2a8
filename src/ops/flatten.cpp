// Concatenates the elements of a sample. Packed rows that do not fill whole words are copied together, as the single
// window of a convolution whose kernel is the whole sample (kernels/conv.h).
#include <algorithm>

#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/spatial.h"
#include "kernels/conv.h"
#include "kernels/map/map.h"
#include "ops/common.h"

namespace bitgrad {
namespace {

constexpr std::string_view kFlatten = "flatten";

// Rows of codes [n * rows, c], each `stride` bytes, as rows of rows * c codes.
Tensor joined_rows(const Tensor& x, int64_t samples, int64_t rows) {
  const Tensor y = Tensor::empty({samples, rows * x.cols()}, x.dtype());
  kernels::GatherWindowsArgs args;
  args.geometry = {rows, 1, 1, 1, rows, 1};
  args.image = args.pad = x.data();  // no window extends outside
  args.stride = x.stride();
  args.bits = x.cols() * x.dtype().bits();
  args.row_stride = y.stride();
  const auto run = [&](int64_t begin, int64_t end) {
    kernels::GatherWindowsArgs part = args;
    part.begin = begin;
    part.end = end;
    part.rows = static_cast<char*>(y.data()) + begin * y.stride();
    kernels::gather_windows(part);
  };
  if (current_device().is_cpu())
    parallel_ranges(samples, std::max<int64_t>(1, kMapGrain / std::max<int64_t>(1, rows)), run);
  else if (samples > 0)
    run(0, samples);
  return y.with_quant(x.quant());
}

struct Flatten {
  static constexpr std::string_view kName = kFlatten;
  struct Saved {
    Shape shape;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    const Tensor& x = in[0];
    s.shape = x.shape();
    require(s.shape.rank() >= 2, kFlatten, "x must have samples of elements [n,...]: got ", x);
    int64_t elements = 1;
    for (int64_t i = 1; i < s.shape.rank(); ++i) elements *= s.shape[i];
    const int64_t samples = s.shape[0], rows = x.cols() == 0 ? 1 : elements / x.cols();
    const bool whole_words = x.cols() * x.dtype().bits() % 64 == 0;
    if (!x.dtype().is_code() || rows == 1 || whole_words) return x.reshape({samples, elements});
    require(x.layout() == layouts::canonical, kFlatten, "x must be canonical codes, got layout ", x.layout(), " of ",
            x);
    require(!x.quant() || x.quant()->granularity.kind == Granularity::kTensor, kFlatten, "x ", x, " has scales per ",
            x.quant() ? x.quant()->granularity : Granularity{}, ", expected one per tensor. Quantize after flatten");
    return joined_rows(x, samples, rows);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(wide(gy[0]).reshape(s.shape));
  }
};

}  // namespace

Var flatten(const Var& x) { return apply<Flatten>({x}); }

}  // namespace bitgrad
