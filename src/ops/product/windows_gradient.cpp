#include "ops/product/windows_gradient.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/map/fill.h"
#include "ops/common.h"
#include "ops/map/windows.h"
#include "ops/product/blocks.h"
#include "ops/product/depthwise.h"
#include "ops/product/fold.h"
#include "ops/product/gradient.h"

namespace bitgrad::detail {
namespace {

// Elements per call of a map that scales sums.
int64_t scale_run(int64_t numbers) { return current_device().is_cpu() ? std::min<int64_t>(numbers, 4096) : 4; }

constexpr int64_t kMostSumRows = 448, kLeastSumRows = 32;  // windows per block of gy W
constexpr int64_t kSumElements = 1 << 18, kDeviceElements = 1 << 24;

// How many images' windows form a block, or how many windows of one image. A pure function of the form and the kind of
// device; it only affects sums with a free order.
struct Blocks {
  explicit Blocks(const ConvForm& form) : windows(form.geometry.windows()) {
    const int64_t k = std::max<int64_t>(1, form.k());
    if (current_device().is_cpu()) {
      rows = std::clamp(kSumElements / k, kLeastSumRows, kMostSumRows);
    } else {
      rows = std::max(windows, kDeviceElements / k);
    }
    images = std::max<int64_t>(1, rows / windows);
    rows = std::min(rows, images * windows);
  }
  int64_t windows;
  int64_t rows = 0;    // per block
  int64_t images = 1;  // per task
};

// Calls block(begin, end) for blocks of the windows of images [first, last), in order.
template <typename Block>
void for_blocks(const Blocks& b, int64_t first, int64_t last, Block&& block) {
  const int64_t end = last * b.windows;
  for (int64_t m = first * b.windows; m < end; m += b.rows) block(m, std::min(m + b.rows, end));
}

// Adds rows of windows to the images, which begin at image `first`.
void add_rows(const ConvForm& form, int64_t group, int64_t first, int64_t begin, int64_t end, const Tensor& rows,
              const Tensor& images) {
  kernels::AddWindowsArgs args;
  args.geometry = form.geometry;
  args.begin = begin - first * form.geometry.windows();
  args.end = end - first * form.geometry.windows();
  args.rows = rows.data();
  args.channels = form.group_channels();
  args.image = images.data();
  args.first = group * form.group_channels();
  args.pixel = form.channels;
  args.dtype = images.dtype();
  kernels::add_windows(args);
}

void fill_zero(const Tensor& t) { device_backend(t.device()).fill_zero(t.data(), t.rows() * t.stride()); }

// Computes one task's images of gx, starting from zeros. make(group, begin, end, rows) computes rows of gy W.
template <typename Make>
void sum_images(const ConvForm& form, const Blocks& blocks, int64_t first, int64_t last, const Tensor& images,
                Make&& make) {
  fill_zero(images);
  const Tensor space = Tensor::empty({blocks.rows, form.k()}, images.dtype(), MemoryKind::kWorkspace);
  for (int64_t g = 0; g < form.groups; ++g) {
    for_blocks(blocks, first, last, [&](int64_t begin, int64_t end) {
      const Tensor rows = end - begin == blocks.rows ? space : space.row_slice(0, end - begin);
      make(g, begin, end, rows);
      add_rows(form, g, first, begin, end, rows, images);
    });
  }
}

template <typename Task>
void for_tasks(const ConvForm& form, const Blocks& blocks, Task&& task) {
  parallel_for((form.samples + blocks.images - 1) / blocks.images,
               [&](int64_t i) { task(i * blocks.images, std::min((i + 1) * blocks.images, form.samples)); });
}

Tensor image_rows(const Tensor& t, const ConvForm& form, int64_t first, int64_t last) {
  return t.row_slice(first * form.geometry.pixels(), last * form.geometry.pixels());
}

GradientProduct product_of(const ConvForm& form, const Tensor& gy, const Tensor& w, int64_t group) {
  const int64_t n = form.group_outputs();
  const Tensor rows = form.groups == 1 ? gy : gy.column_slice(group * n, (group + 1) * n).clone(MemoryKind::kWorkspace);
  return {"gx", "w", rows, false, group_rows(w, form, group), false, std::nullopt};
}

void gx_floats(const ConvGradient& g, const Tensor& w, GradSlot& slot) {
  const ConvForm& form = g.form;
  if (g.gy.dtype() != dtypes::fp64) {
    const Tensor direct = Tensor::empty(slot.shape(), dtypes::fp32);
    if (direct_gx(g, w, direct)) return slot.set_rounded(direct);
  }
  const Blocks blocks(form);
  const Tensor gy = g.gy.reshape({form.rows(), form.outputs});
  const DType sums = gy.dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
  std::vector<RowBlocks> products;
  for (int64_t i = 0; i < form.groups; ++i)
    with_product(g.mode, product_of(form, gy.row_slice(0, 0), w, i), [&](kernels::GemmArgs& args) {
      args.m = form.rows();
      args.c_dtype = sums;
      products.emplace_back(args, blocks.rows);
    });
  const Tensor gx = Tensor::empty(slot.shape(), sums), pixels = gx.reshape({gx.rows(), gx.cols()});
  for_tasks(form, blocks, [&](int64_t first, int64_t last) {
    const auto make = [&](int64_t group, int64_t begin, int64_t end, const Tensor& rows) {
      with_product(g.mode, product_of(form, gy.row_slice(begin, end), w, group), [&](kernels::GemmArgs& args) {
        args.c = rows.data();
        args.c_dtype = sums;
        products[static_cast<size_t>(group)].run(args);
      });
    };
    sum_images(form, blocks, first, last, image_rows(pixels, form, first, last), make);
  });
  slot.set_rounded(gx);
}

// Converts the codes of gy, per image [n, oh*ow*o], to rows [n*oh*ow, o] of one group, padded to whole words.
Tensor code_rows(const Tensor& codes, const ConvForm& form, int64_t group) {
  const int64_t windows = form.geometry.windows(), n = form.group_outputs();
  const Tensor bare = codes.without_quant();
  if (form.groups == 1 && form.outputs % 8 == 0) return bare.reshape({form.rows(), form.outputs});
  const Tensor out = Tensor::empty({form.rows(), n}, dtypes::int8, MemoryKind::kWorkspace);
  kernels::GatherWindowsArgs args;
  args.geometry.h = args.geometry.oh = windows;
  args.geometry.w = args.geometry.ow = 1;
  args.end = windows;
  args.stride = form.outputs;
  args.first_bit = group * n * 8;
  args.bits = n * 8;
  args.row_stride = out.stride();
  for (int64_t i = 0; i < form.samples; ++i) {
    args.image = args.pad = static_cast<const char*>(bare.data()) + i * bare.stride();
    args.rows = static_cast<char*>(out.data()) + i * windows * out.stride();
    kernels::gather_windows(args);
  }
  return out;
}

}  // namespace

Tensor image_codes(const ConvGradient& g, const ScaleMap& w) {
  const ConvForm& form = g.form;
  const int64_t elements = form.geometry.windows() * form.outputs;
  Tensor fold;
  if (w.scale != nullptr && w.row_step != 0) {
    const Along channels = along(w, form.outputs, 0);
    fold = Tensor::empty({elements}, dtypes::fp32, MemoryKind::kWorkspace);
    run_map(maps::TileWords{static_cast<const uint32_t*>(channels.scale.data()), 0, form.outputs,
                            static_cast<uint32_t*>(fold.data())},
            elements);
  }
  const Tensor gy = g.gy.reshape({form.samples, elements});
  return to_int8_codes(FoldedGradient(gy, false, fold.defined() ? fold.as<float>() : nullptr), g.sr, 0);
}

namespace {

// Inputs of one group's product: codes of gy, the sums to subtract for zero points of w, and B.
struct CodeProduct {
  Tensor codes, minus;
  kernels::GemmArgs args;  // for all rows
};

CodeProduct code_product(const ConvForm& form, const Tensor& codes, const Tensor& w, int64_t group) {
  CodeProduct p;
  p.codes = code_rows(codes, form, group);
  const Tensor rows = group_rows(w, form, group);
  p.args = product_args(side_of(p.codes, false), side_of(rows, true, {}), dtypes::int32);
  ScaleMap map = rows.scale_map();
  map.scale = nullptr;
  if (map.zero == nullptr) return p;
  p.minus = sums_with_zeros(p.codes, false, along(map, form.group_outputs(), 0).zero);
  p.args.row_minus = p.minus.as<int64_t>();
  return p;
}

void gx_int8(const ConvGradient& g, const Tensor& w, GradSlot& slot) {
  const ConvForm& form = g.form;
  const Blocks blocks(form);
  const ScaleMap w_map = w.scale_map();
  const Tensor codes = image_codes(g, w_map);
  const Tensor gx = Tensor::empty(slot.shape(), dtypes::fp32);
  if (form.groups == 1 && direct_gx_int8(form, code_rows(codes, form, 0), *codes.quant()->scale, w, gx))
    return slot.set_rounded(gx);
  std::vector<CodeProduct> products;
  std::vector<RowBlocks> runs;
  for (int64_t i = 0; i < form.groups; ++i) {
    products.push_back(code_product(form, codes, w, i));
    runs.emplace_back(products.back().args, blocks.rows);
  }
  const int64_t elements = form.geometry.pixels() * form.channels;
  const float* const w_scale = w_map.row_step == 0 ? w_map.scale : nullptr;
  const float* const scales = codes.quant()->scale->as<float>();
  for_tasks(form, blocks, [&](int64_t first, int64_t last) {
    const Tensor sums =
        Tensor::empty({(last - first) * form.geometry.pixels(), form.channels}, dtypes::int32, MemoryKind::kWorkspace);
    sum_images(form, blocks, first, last, sums, [&](int64_t group, int64_t begin, int64_t end, const Tensor& rows) {
      const CodeProduct& p = products[static_cast<size_t>(group)];
      kernels::GemmArgs args = p.args;
      args.m = end - begin;
      args.a.data = static_cast<const char*>(args.a.data) + begin * args.a.stride;
      if (args.row_minus != nullptr) args.row_minus += begin;
      args.c = rows.data();
      runs[static_cast<size_t>(group)].run(args);
    });
    const maps::ScaleImages scale{sums.as<int32_t>(), scales + first,      w_scale,
                                  elements,           scale_run(elements), gx.as<float>() + first * elements};
    run_map(scale, (last - first) * scale.runs(), rows_per_task(scale.run));
  });
  slot.set_rounded(gx);
}

// Integer sums of gy's codes per output channel, for zero points of x.
Tensor channel_sums(const Tensor& codes) {
  const Tensor ones = Tensor::empty({codes.rows()}, dtypes::int32, MemoryKind::kWorkspace);
  run_map(maps::FillInts{1, ones.as<int32_t>()}, codes.rows());
  return sums_with_zeros(codes, true, ones);
}

// image: x in gatherable form.
void gw_int8(const ConvGradient& g, const Tensor& x, const Tensor& image, GradSlot& slot) {
  const ConvForm& form = g.form;
  const int64_t n = form.group_outputs(), k = form.k();
  const Tensor gy = g.gy.reshape({form.rows(), form.outputs});
  const Tensor codes = to_int8_codes(FoldedGradient(gy, true, nullptr), g.sr, 0);
  const bool zeros = image.scale_map().zero != nullptr;
  const Tensor of_channels = zeros ? channel_sums(codes) : Tensor();
  const Tensor gw = Tensor::empty(slot.shape(), dtypes::fp32);
  for (int64_t group = 0; group < form.groups; ++group) {
    const WindowsOperand windows(image, form, group, WindowsOperand::Use::kContracted);
    const Tensor sums = Tensor::zeros({n, k}, dtypes::int64, MemoryKind::kWorkspace);
    const Tensor part = Tensor::empty({n, k}, dtypes::int32, MemoryKind::kWorkspace);
    const bool direct = direct_gw_int8(form, codes, x, part);
    if (direct) run_map(maps::AddToSums{part.as<int32_t>(), sums.as<int64_t>()}, n * k);
    Tensor workspace;
    for (int64_t begin = direct ? form.rows() : 0; begin < form.rows(); begin += windows.block_rows()) {
      const int64_t end = std::min(begin + windows.block_rows(), form.rows());
      const Tensor rows = windows.rows(begin, end, workspace);
      kernels::GemmArgs args =
          product_args(side_of(codes.row_slice(begin, end), true, {}), side_of(rows, true, {}), dtypes::int32);
      args.m = n;
      args.a.data = static_cast<const char*>(args.a.data) + group * n;
      args.c = part.data();
      run_product(args);
      run_map(maps::AddToSums{part.as<int32_t>(), sums.as<int64_t>()}, n * k);
    }
    const ScaleMap map = windows.side(true).gemm.scale;
    const maps::ScaleWindowSums scale{sums.as<int64_t>(),
                                      zeros ? of_channels.as<int64_t>() + group * n : nullptr,
                                      codes.quant()->scale->as<float>() + group * n,
                                      map.scale,
                                      map.zero,
                                      k,
                                      map.col_step,
                                      scale_run(k),
                                      gw.as<float>() + group * n * k};
    run_map(scale, n * scale.runs(), rows_per_task(scale.run));
  }
  slot.set_rounded(gw);
}

}  // namespace

void check_conv_gx(ProductMode mode, const OperandForm& w, int64_t taps) {
  if (mode != ProductMode::kInt8) return;
  const Granularity g = w.scales.value_or(Granularity{});
  require(g.kind == Granularity::kTensor || g.per_row(), "conv2d",
          "gx int8 needs scales of w per tensor or channel(0); use bf16: got w per ", g);
  const int64_t most = most_products_in_int32(dtypes::int8, w.dtype);
  require(w.rows <= most / taps, "conv2d", "gx int8 sums the products of a pixel in int32; use bf16: got ", w.rows,
          " channels of ", taps, " taps, expected at most ", most / taps);
}

void conv_gx(const ConvGradient& g, const Tensor& w, GradSlot& slot) {
  if (g.form.pointwise()) return gradient_product(g.mode, {"gx", "w", g.gy, false, w, false, g.sr}, slot);
  if (has_depthwise_gx(g, w)) return depthwise_gx(g, w, slot);
  g.mode == ProductMode::kInt8 ? gx_int8(g, w, slot) : gx_floats(g, w, slot);
}

void conv_gw(const ConvGradient& g, const Tensor& x, GradSlot& slot) {
  const ConvForm& form = g.form;
  if (form.pointwise()) return gradient_product(g.mode, {"gw", "x", g.gy, true, x, false, g.sr}, slot);
  if (slot.block_rows() > 0)
    slot.decline_rows("the weight gradient of a convolution is not produced in blocks of rows");
  if (form.rows() == 0) return slot.set_rounded(Tensor::zeros(slot.shape(), slot.dtype()));
  if (g.mode != ProductMode::kInt8 && g.gy.dtype() != dtypes::fp64) {
    const Tensor direct = Tensor::empty(slot.shape(), dtypes::fp32);
    if (direct_gw(g, x, direct)) return slot.set_rounded(direct);
  }
  if (has_depthwise_gw(g, x)) return depthwise_gw(g, x, slot);
  const Tensor image = gatherable(x, form);
  if (g.mode == ProductMode::kInt8) return gw_int8(g, x, image, slot);
  std::vector<std::unique_ptr<Operand>> windows;
  std::vector<const Operand*> all;
  for (int64_t i = 0; i < form.groups; ++i) {
    windows.push_back(std::make_unique<WindowsOperand>(image, form, i, WindowsOperand::Use::kContracted));
    all.push_back(windows.back().get());
  }
  gradient_product(g.mode, {"gw", "x", g.gy, true, {}, false, std::nullopt}, all, slot);
}

}  // namespace bitgrad::detail
