#include "ops/product/windows.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/quant/quantizer.h"
#include "ops/map/windows.h"

namespace bitgrad {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 20;  // limit for a kernel, stride or dilation; a padding must be smaller
constexpr std::string_view kConv2d = "conv2d";

void check_range(std::string_view where, const char* name, int64_t value, int64_t least, int64_t most) {
  require(value >= least && value <= most, where, name, ": got ", value, ", expected ", least, " .. ", most);
}

void check_options(std::string_view where, const Conv2dOptions& o) {
  for (const int64_t v : o.kernel) check_range(where, "kernel", v, 1, kMostPixels);
  for (const int64_t v : o.stride) check_range(where, "stride", v, 1, kMostPixels);
  for (const int64_t v : o.dilation) check_range(where, "dilation", v, 1, kMostPixels);
  for (const int64_t v : o.padding) check_range(where, "padding", v, 0, kMostPixels - 1);
  require(o.pad_value >= -1 && o.pad_value <= 1, where, "pad_value: got ", o.pad_value, ", expected -1, 0 or 1");
  require(o.groups >= 1, where, "groups: got ", o.groups, ", expected at least 1");
}

// Extent in pixels from the first to the last tap.
int64_t extent(int64_t kernel, int64_t dilation) { return (kernel - 1) * dilation + 1; }

int64_t windows_along(int64_t size, int64_t before, int64_t behind, int64_t extent, int64_t stride) {
  const int64_t room = size + before + behind - extent;
  return room < 0 ? 0 : room / stride + 1;
}

std::array<int64_t, 2> output_of(std::string_view where, int64_t h, int64_t w, const Conv2dOptions& o) {
  check_options(where, o);
  require(h >= 1 && w >= 1, where, "an image must have pixels: got ", h, " x ", w);
  const int64_t ey = extent(o.kernel[0], o.dilation[0]), ex = extent(o.kernel[1], o.dilation[1]);
  const int64_t oh = windows_along(h, o.padding[0], o.padding[2], ey, o.stride[0]),
                ow = windows_along(w, o.padding[1], o.padding[3], ex, o.stride[1]);
  require(oh >= 1 && ow >= 1, where, "no window fits: an image of ", h, " x ", w, " pixels with padding [",
          o.padding[0], ',', o.padding[1], ',', o.padding[2], ',', o.padding[3], "] is smaller than a window of ", ey,
          " x ", ex, ". Use larger images, a smaller kernel or more padding");
  return {oh, ow};
}

}  // namespace

std::array<int64_t, 2> conv2d_output(int64_t h, int64_t w, const Conv2dOptions& options) {
  return output_of(kConv2d, h, w, options);
}

std::array<int64_t, 4> same_padding(int64_t h, int64_t w, const Conv2dOptions& options) {
  check_options(kConv2d, options);
  const auto total = [&](size_t axis, int64_t size) {
    const int64_t s = options.stride[axis], windows = (size + s - 1) / s;
    return std::max<int64_t>((windows - 1) * s + extent(options.kernel[axis], options.dilation[axis]) - size, 0);
  };
  const int64_t y = total(0, h), x = total(1, w);
  return {y / 2, x / 2, y - y / 2, x - x / 2};
}

OperandForm windows_form(const OperandForm& pixels, const Shape& image, const Conv2dOptions& options) {
  const detail::ConvForm form = detail::conv_form(kConv2d, image, options.groups, options);
  OperandForm windows = pixels;
  windows.rows = form.rows();
  windows.cols = form.k();
  if (form.pointwise()) return windows;
  windows.dtype = detail::gathered_dtype(pixels.dtype, pixels.offset, form);
  if (windows.dtype != dtypes::fp32 || pixels.dtype.is_float()) return windows;
  windows.scales.reset();
  windows.zero_point = windows.offset = false;
  return windows;
}

namespace detail {

std::array<int64_t, 2> conv_output(std::string_view where, int64_t h, int64_t w, const Conv2dOptions& options) {
  return output_of(where, h, w, options);
}

bool ConvForm::pointwise() const {
  const kernels::WindowGeometry& g = geometry;
  return groups == 1 && g.taps() == 1 && g.stride_y == 1 && g.stride_x == 1 && !pads && g.oh == g.h && g.ow == g.w;
}

Tensor group_rows(const Tensor& t, const ConvForm& form, int64_t group) {
  const int64_t n = form.group_outputs();
  return form.groups == 1 ? t : t.row_slice(group * n, (group + 1) * n);
}

ConvForm conv_form(std::string_view where, const Shape& image, int64_t outputs, const Conv2dOptions& options) {
  require(image.rank() == 4, where, "x must be images [n,h,w,c]: got ", image);
  ConvForm form;
  form.samples = image[0];
  form.channels = image[3];
  form.outputs = outputs;
  form.groups = options.groups;
  form.pad_value = options.pad_value;
  const auto [oh, ow] = output_of(where, image[1], image[2], options);
  const auto& [top, left, bottom, right] = options.padding;
  form.geometry = {image[1],
                   image[2],
                   oh,
                   ow,
                   options.kernel[0],
                   options.kernel[1],
                   options.stride[0],
                   options.stride[1],
                   options.dilation[0],
                   options.dilation[1],
                   top,
                   left};
  require(form.channels % form.groups == 0 && outputs % form.groups == 0, where, "groups: got ", form.groups,
          ", expected a divisor of the ", form.channels, " channels of x and of the ", outputs, " of w");
  const auto reaches = [](int64_t windows, int64_t stride, int64_t extent, int64_t before, int64_t size) {
    return (windows - 1) * stride + extent - before > size;
  };
  form.pads = top > 0 || left > 0 ||
              reaches(oh, options.stride[0], extent(options.kernel[0], options.dilation[0]), top, image[1]) ||
              reaches(ow, options.stride[1], extent(options.kernel[1], options.dilation[1]), left, image[2]);
  return form;
}

DType gathered_dtype(DType image, bool offset, const ConvForm& form) {
  if (!form.pads) return image;
  if (offset) return dtypes::fp32;
  if (image.kind() == DTypeKind::kSign && form.pad_value == 0)
    return image.bits() == 1 ? dtypes::ternary : dtypes::fp32;
  if (image.kind() != DTypeKind::kCodebook) return image;
  const std::vector<float>& levels = image.info().levels;
  return std::find(levels.begin(), levels.end(), 0.0f) == levels.end() ? dtypes::fp32 : image;
}

Tensor gatherable(const Tensor& image, const ConvForm& form) {
  const bool offset = image.quant() && image.quant()->offset;
  const DType dtype = gathered_dtype(image.dtype(), offset, form);
  if (dtype == image.dtype()) return image;
  if (dtype == dtypes::fp32) return dequantize_tensor(image, MemoryKind::kWorkspace);
  const Tensor out = Tensor::empty(image.shape(), dtypes::ternary, MemoryKind::kWorkspace);
  const int64_t words = out.stride() / 8;
  run_map(maps::SignsToTernary{static_cast<const uint64_t*>(image.data()), image.stride() / 8, image.cols(),
                               static_cast<uint64_t*>(out.data()), words},
          out.rows() * words);
  return out.with_quant(image.quant());
}

namespace {

// Rows produced at a time. Contracted: pieces of sums, whose size is part of the numerics (a multiple of 64 and of the
// passes of sum tables). Free: as many as stay in cache.
constexpr int64_t kContractedRows = 4032, kFreeRows = 512, kLeastRows = 64, kRowUnit = 16;
constexpr int64_t kCacheBytes = 256 << 10, kDeviceBytes = 64 << 20;

int64_t free_rows(int64_t row_bytes) {
  if (!current_device().is_cpu()) return std::max(kFreeRows, kDeviceBytes / std::max<int64_t>(1, row_bytes));
  const int64_t fit = kCacheBytes / std::max<int64_t>(1, row_bytes);
  return std::clamp(fit / kRowUnit * kRowUnit, kLeastRows, kFreeRows);
}

// A padding pixel. Codes of kind codebook use the code of level 0, which must exist.
Tensor pad_pixel(const Tensor& image, int pad_value) {
  const Shape shape{1, image.cols()};
  const DType dtype = image.dtype();
  if (dtype.is_float()) {
    if (pad_value == 0) return Tensor::zeros(shape, dtype, MemoryKind::kWorkspace);
    if (dtype == dtypes::fp64) return Tensor::full(shape, dtype, pad_value, MemoryKind::kWorkspace);
    Tensor pad = Tensor::empty(shape, dtype, MemoryKind::kWorkspace);
    run_map(maps::PadFloats{static_cast<float>(pad_value), dtype == dtypes::bf16, pad.data()}, shape.cols());
    return pad;
  }
  if (!dtype.is_code()) return Tensor::zeros(shape, dtype, MemoryKind::kWorkspace);
  uint32_t raw = dtype.kind() == DTypeKind::kSign && pad_value > 0 ? 1 : 0;
  if (dtype.kind() == DTypeKind::kCodebook) {
    const std::vector<float>& levels = dtype.info().levels;
    raw = static_cast<uint32_t>(std::find(levels.begin(), levels.end(), 0.0f) - levels.begin());
  }
  Tensor pad = Tensor::empty(shape, dtype, MemoryKind::kWorkspace);
  const ScaleMap map = image.scale_map();
  run_map(maps::PadCodes{pad_value == 0 ? map.zero : nullptr, map.col_step, shape.cols(), raw, dtype.bits(),
                         static_cast<uint64_t*>(pad.data())},
          pad.stride() / 8);
  return pad;
}

std::shared_ptr<const Tensor> tiled(const std::shared_ptr<const Tensor>& of_channels, int64_t first, int64_t count,
                                    int64_t taps) {
  if (of_channels == nullptr) return nullptr;
  const Tensor out = Tensor::empty({taps * count}, of_channels->dtype(), MemoryKind::kWorkspace);
  run_map(maps::TileWords{static_cast<const uint32_t*>(of_channels->data()), first, count,
                          static_cast<uint32_t*>(out.data())},
          taps * count);
  return std::make_shared<const Tensor>(out);
}

// Scales of the rows: those of the image; per-channel scales are repeated for every tap.
std::shared_ptr<const QuantParams> row_params(const Tensor& image, const ConvForm& form, int64_t group) {
  const auto& params = image.quant();
  if (!params || params->granularity.kind != Granularity::kChannel) return params;
  const int64_t count = form.group_channels(), first = group * count, taps = form.geometry.taps();
  QuantParams out;
  out.scheme = params->scheme;
  out.granularity = Granularity::channel(1);
  out.scale = tiled(params->scale, first, count, taps);
  out.zero = tiled(params->zero, first, count, taps);
  out.offset = tiled(params->offset, first, count, taps);
  return std::make_shared<const QuantParams>(std::move(out));
}

}  // namespace

WindowsOperand::WindowsOperand(const Tensor& image, const ConvForm& form, int64_t group, Use use)
    : image_(image),
      form_(form),
      group_(group),
      block_(use == Use::kContracted ? kContractedRows : free_rows(row_bytes_memory(image.dtype(), form.k()))),
      pad_(pad_pixel(image, form.pad_value)),
      quant_(row_params(image, form, group)) {}

Side WindowsOperand::side(bool contracted_rows) const {
  Side side;
  side.free = contracted_rows ? form_.k() : form_.rows();
  side.contracted = contracted_rows ? form_.rows() : form_.k();
  side.gemm.dtype = image_.dtype();
  side.gemm.stride = row_bytes_memory(image_.dtype(), form_.k());
  side.gemm.k_major = contracted_rows;
  if (!quant_) return side;
  side.gemm.scale = scale_steps(quant_->granularity, form_.k());
  if (quant_->scale) side.gemm.scale.scale = quant_->scale->as<float>();
  if (quant_->zero) side.gemm.scale.zero = quant_->zero->as<int32_t>();
  if (quant_->offset) side.gemm.scale.offset = quant_->offset->as<float>();
  return side;
}

Tensor WindowsOperand::rows(int64_t begin, int64_t end, Tensor& workspace) const {
  const int64_t k = form_.k(), count = form_.group_channels(), bits = image_.dtype().bits();
  if (!workspace.defined() || workspace.rows() < end - begin || workspace.cols() != k)
    workspace = Tensor::empty({end - begin, k}, image_.dtype(), MemoryKind::kWorkspace);
  const Tensor out = workspace.rows() == end - begin ? workspace : workspace.row_slice(0, end - begin);
  kernels::GatherWindowsArgs args;
  args.geometry = form_.geometry;
  args.begin = begin;
  args.end = end;
  args.image = image_.data();
  args.stride = image_.stride();
  args.first_bit = group_ * count * bits;
  args.bits = count * bits;
  args.pad = pad_.data();
  args.rows = out.data();
  args.row_stride = out.stride();
  kernels::gather_windows(args);
  return quant_ ? out.with_quant(quant_) : out;
}

}  // namespace detail
}  // namespace bitgrad
