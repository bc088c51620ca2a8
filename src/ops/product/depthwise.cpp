#include "ops/product/depthwise.h"

#include <algorithm>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"
#include "kernels/quantize.h"
#include "ops/map/depthwise.h"
#include "ops/product/depthwise_operands.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kMostTaps = 512;  // one panel of chain512
thread_local int without_depthwise = 0;

// How a product is computed from sums: gemm.h.
enum class DepthwiseProduct { kFloats, kPlain, kOffsets, kGroups };

DepthwiseProduct depthwise_product(const Tensor& x, const Tensor& w, const ConvForm& form) {
  kernels::GemmArgs args;
  args.m = args.n = 1;
  args.k = form.k();
  args.a.scale = x.scale_map();
  args.a.dtype = gathered_dtype(x.dtype(), args.a.scale.offset != nullptr, form);
  if (args.a.dtype.is_float()) return DepthwiseProduct::kFloats;
  args.b.dtype = w.dtype();
  args.b.scale = w.scale_map();
  if (!kernels::gemm_is_integer(args)) return DepthwiseProduct::kFloats;
  if (args.b.scale.col_step != 0) return DepthwiseProduct::kGroups;
  const bool offsets = args.a.scale.offset != nullptr || args.b.scale.offset != nullptr;
  return offsets ? DepthwiseProduct::kOffsets : DepthwiseProduct::kPlain;
}

bool has_canonical(const Tensor& w) { return w.in_layout(layouts::canonical).defined(); }

}  // namespace

WithoutDepthwise::WithoutDepthwise() { ++without_depthwise; }
WithoutDepthwise::~WithoutDepthwise() { --without_depthwise; }

bool is_depthwise(const ConvForm& form) {
  return without_depthwise == 0 && form.groups > 1 && form.groups == form.channels && form.geometry.taps() <= kMostTaps;
}

bool opens_to_fp32(const Tensor& t) {
  const DType d = t.dtype();
  return d == dtypes::fp32 || d == dtypes::bf16 || (d.is_code() && d.bits() <= 8);
}

int64_t most_of_code(const Tensor& t) {
  const DTypeInfo& info = t.dtype().info();
  if (t.scale_map().zero != nullptr) return (int64_t{1} << info.bits) - 1;
  return std::max<int64_t>(1, std::max<int64_t>(-info.qmin, info.qmax));
}

bool has_depthwise_forward(const Tensor& x, const Tensor& w, const ConvForm& form) {
  if (!is_depthwise(form) || !has_canonical(w)) return false;
  if (x.dtype() == dtypes::fp64) return w.dtype() == dtypes::fp64;
  if (!opens_to_fp32(x) || !opens_to_fp32(w)) return false;
  return depthwise_product(x, w, form) == DepthwiseProduct::kFloats ||
         form.geometry.taps() * most_of_code(x) * most_of_code(w) < kExactInFp32;
}

kernels::DepthwiseForm depthwise_form(const ConvForm& form) {
  return {form.geometry, form.samples, form.channels, form.group_outputs()};
}

kernels::DepthwiseImages depthwise_images(const Tensor& images, const ConvForm& form, const ScaleMap& map) {
  return {images.data(), images.dtype(), images.stride(), images.stride() * form.geometry.pixels(), map};
}

Tensor depthwise_pad(const Tensor& image, const ConvForm& form, const ScaleMap& map) {
  if (form.pad_value == 0 || !form.pads) return {};
  if (image.dtype() == dtypes::fp64)
    return Tensor::full({form.channels}, dtypes::fp64, form.pad_value, MemoryKind::kWorkspace);
  Tensor pad = Tensor::empty({form.channels}, dtypes::fp32, MemoryKind::kWorkspace);
  run_map(maps::DepthwisePad{static_cast<float>(form.pad_value), map.scale, map.zero, map.col_step, pad.as<float>()},
          form.channels);
  return pad;
}

Tensor depthwise_weights(const Tensor& weights, const ConvForm& form, const ScaleMap& map, bool by_multiples) {
  const Tensor w = weights.in_layout(layouts::canonical);
  const bool wide = w.dtype() == dtypes::fp64;
  const int64_t outputs = form.outputs, taps = form.geometry.taps();
  Tensor numbers = w;
  if (!wide) {
    numbers = Tensor::empty({outputs, taps}, dtypes::fp32, MemoryKind::kWorkspace);
    kernels::dequantize({outputs, taps, w.dtype(), w.data(), w.stride(), map, numbers.as<float>(), taps});
  }
  Tensor out = Tensor::empty({taps, outputs}, numbers.dtype(), MemoryKind::kWorkspace);
  run_map(maps::DepthwiseTaps{numbers.data(), outputs, taps, by_multiples ? form.group_outputs() : 1, wide, out.data()},
          outputs * taps);
  return out;
}

namespace {

// One forward product.
class DepthwiseForward {
 public:
  DepthwiseForward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvForm& form, const Tensor& y)
      : x_(x), w_(w), form_(form), y_(y), x_map_(x.scale_map()), w_map_(w.scale_map()) {
    outputs_ = form.outputs;
    taps_ = form.geometry.taps();
    bias_ = bias.defined() ? bias.as<float>() : nullptr;
  }

  void run() {
    switch (depthwise_product(x_, w_, form_)) {
      case DepthwiseProduct::kFloats:
        return floats();
      case DepthwiseProduct::kPlain:
        return plain();
      case DepthwiseProduct::kOffsets:
        return offsets();
      case DepthwiseProduct::kGroups:
        return groups();
    }
  }

 private:
  static ScaleMap numbers_map(ScaleMap map) {
    map.scale = map.offset = nullptr;
    return map;
  }
  kernels::DepthwiseForwardArgs args(const ScaleMap& x, const ScaleMap& w) {
    weights_ = depthwise_weights(w_, form_, w, false);
    pad_ = depthwise_pad(x_, form_, x);
    kernels::DepthwiseForwardArgs a;
    a.form = depthwise_form(form_);
    a.x = depthwise_images(x_, form_, x);
    a.pad = data_of(pad_);
    a.w = weights_.data();
    a.end_tap = taps_;
    a.y = y_.data();
    a.y_dtype = y_.dtype();
    return a;
  }
  // Arguments for sums of codes, without scales and offsets.
  kernels::DepthwiseForwardArgs exact_args() { return args(numbers_map(x_map_), numbers_map(w_map_)); }

  // fp32 sums over taps; `ones`: sums of x alone.
  Tensor sums(kernels::DepthwiseForwardArgs a, bool ones) {
    Tensor out = Tensor::empty({form_.rows(), outputs_}, dtypes::fp32, MemoryKind::kWorkspace);
    if (ones && !ones_.defined()) ones_ = Tensor::full({taps_, outputs_}, dtypes::fp32, 1, MemoryKind::kWorkspace);
    if (ones) a.w = ones_.data();
    a.y = out.data();
    a.y_dtype = dtypes::fp32;
    kernels::depthwise_forward(a);
    return out;
  }
  maps::DepthwiseOut out() const { return {outputs_, bias_, y_.dtype() == dtypes::bf16, y_.data()}; }

  void floats() {
    kernels::DepthwiseForwardArgs a = args(x_map_, w_map_);
    a.bias = bias_;
    kernels::depthwise_forward(a);
  }
  void plain() {
    kernels::DepthwiseForwardArgs a = exact_args();
    a.bias = bias_;
    Tensor scale;
    if (x_map_.scale != nullptr || w_map_.scale != nullptr) {
      scale = Tensor::empty({outputs_}, dtypes::fp32, MemoryKind::kWorkspace);
      run_map(maps::DepthwiseScales{x_map_.scale, w_map_.scale, w_map_.row_group, w_map_.row_step, scale.as<float>()},
              outputs_);
      a.scale = scale.as<float>();
    }
    kernels::depthwise_forward(a);
  }
  void offsets() {
    const kernels::DepthwiseForwardArgs a = exact_args();
    const Tensor sum = sums(a, false), sum_a = w_map_.offset != nullptr ? sums(a, true) : Tensor();
    Tensor sum_b;
    if (x_map_.offset != nullptr) {
      sum_b = Tensor::empty({outputs_}, dtypes::fp32, MemoryKind::kWorkspace);
      run_map(maps::DepthwiseTapSums{weights_.as<float>(), outputs_, taps_, sum_b.as<float>()}, outputs_);
    }
    run_map(
        maps::DepthwiseOffsets{sum.as<float>(), static_cast<const float*>(data_of(sum_a)),
                               static_cast<const float*>(data_of(sum_b)), static_cast<float>(taps_), x_map_.scale,
                               x_map_.offset, w_map_.scale, w_map_.offset, w_map_.row_group, w_map_.row_step, out()},
        sum.numel());
  }
  void groups() {
    kernels::DepthwiseForwardArgs a = exact_args();
    const Tensor total = Tensor::empty({form_.rows(), outputs_}, dtypes::fp32, MemoryKind::kWorkspace);
    for (int64_t t = 0, at = 0; t < taps_; t += w_map_.col_group, at += w_map_.col_step) {
      a.first_tap = t;
      a.end_tap = std::min(taps_, t + w_map_.col_group);
      const Tensor sum = sums(a, false), sum_a = w_map_.offset != nullptr ? sums(a, true) : Tensor();
      run_map(maps::DepthwiseGroup{sum.as<float>(), static_cast<const float*>(data_of(sum_a)),
                                   w_map_.scale == nullptr ? nullptr : w_map_.scale + at,
                                   w_map_.offset == nullptr ? nullptr : w_map_.offset + at, outputs_, w_map_.row_group,
                                   w_map_.row_step, t == 0, total.as<float>()},
              total.numel());
    }
    run_map(maps::DepthwiseTotals{total.as<float>(), x_map_.scale, out()}, total.numel());
  }

  const Tensor &x_, &w_;
  const ConvForm& form_;
  const Tensor& y_;
  const ScaleMap x_map_, w_map_;
  int64_t outputs_, taps_;
  const float* bias_;
  Tensor weights_, pad_, ones_;
};

}  // namespace

void depthwise_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvForm& form, const Tensor& y) {
  if (form.rows() > 0) DepthwiseForward(x, w, bias, form, y).run();
}

}  // namespace bitgrad::detail
