#include "ops/product/windows_gradient.h"

#include "ops/product/fold.h"
#include "ops/product/gradient.h"

namespace bitgrad::detail {
namespace {

bool plain_codes(const Tensor& t) {
  const ScaleMap map = t.scale_map();
  return t.dtype().is_code() && is_integer(t.dtype()) && map.zero == nullptr && map.offset == nullptr &&
         t.layout() == layouts::canonical;
}
bool per_tensor(const Tensor& t) { return t.scale_map().per_tensor(); }
bool per_row(const Tensor& t) { return t.scale_map().per_tensor() || t.scale_map().per_row(); }
bool plain_floats(const Tensor& t) { return t.dtype() == dtypes::fp32 && !t.quant() && t.contiguous(); }

kernels::DirectConvArgs gx_args(const ConvForm& form, const Tensor& w, const Tensor& gx) {
  kernels::DirectConvArgs args;
  args.geometry = form.geometry;
  args.images = form.samples;
  args.channels = form.outputs;
  args.outputs = form.channels;
  args.w = w.data();
  args.w_dtype = w.dtype();
  args.w_stride = w.stride();
  args.input_gradient = true;
  args.c = gx.data();
  args.ldc = form.channels;
  return args;
}

// The arguments that say which images are read: of the forward pass, or of the gradient of the weights.
template <typename Args>
Args args_of(const ConvForm& form, const Tensor& x) {
  Args args;
  args.geometry = form.geometry;
  args.images = form.samples;
  args.channels = form.channels;
  args.outputs = form.outputs;
  args.image = x.data();
  args.dtype = x.dtype();
  args.stride = x.stride();
  args.pad_value = form.pad_value;
  return args;
}

}  // namespace

bool direct_forward(const ConvForm& form, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  const bool floats = plain_floats(x) && form.pad_value == 0;
  if (form.groups != 1 || !(floats || (plain_codes(x) && per_tensor(x))) ||
      !(plain_floats(w) || (plain_codes(w) && per_row(w))))
    return false;
  if (y.dtype() != dtypes::fp32 && (y.dtype() != dtypes::int32 || bias.defined())) return false;
  const ScaleMap sx = x.scale_map(), sw = w.scale_map();
  auto args = args_of<kernels::DirectConvArgs>(form, x);
  args.w = w.data();
  args.w_dtype = w.dtype();
  args.w_stride = w.stride();
  args.c = y.data();
  args.c_dtype = y.dtype();
  args.ldc = form.outputs;
  args.image_scale = sx.scale;
  args.w_scale = sw.scale;
  args.w_step = sw.row_step;
  args.bias = bias.defined() ? bias.as<float>() : nullptr;
  return kernels::conv_direct(args);
}

bool direct_gx(const ConvGradient& g, const Tensor& w, const Tensor& gx) {
  if (g.form.groups != 1 || !plain_floats(g.gy) || !plain_codes(w) || !per_row(w) || !current_device().is_cpu())
    return false;
  kernels::DirectConvArgs args = gx_args(g.form, w, gx);
  const Along channels = along(w.scale_map(), g.form.outputs, 0);
  args.image = g.gy.data();
  args.stride = g.form.outputs * int64_t{sizeof(float)};
  args.fold = channels.scales();
  args.bf16 = g.mode == ProductMode::kBf16;
  return kernels::conv_direct(args);
}

bool direct_gx_int8(const ConvForm& form, const Tensor& codes, const Tensor& scales, const Tensor& w,
                    const Tensor& gx) {
  if (form.groups != 1 || !plain_codes(w) || !current_device().is_cpu()) return false;
  kernels::DirectConvArgs args = gx_args(form, w, gx);
  args.image = codes.data();
  args.dtype = dtypes::int8;
  args.stride = codes.stride();
  args.image_scale = scales.as<float>();
  args.image_step = 1;
  args.w_scale = per_tensor(w) ? w.scale_map().scale : nullptr;
  return kernels::conv_direct(args);
}

bool direct_gw(const ConvGradient& g, const Tensor& x, const Tensor& gw) {
  const bool floats = plain_floats(x) && g.form.pad_value == 0;
  if (g.form.groups != 1 || !plain_floats(g.gy) || !(floats || (plain_codes(x) && per_tensor(x)))) return false;
  auto args = args_of<kernels::DirectWeightsArgs>(g.form, x);
  args.c = gw.data();
  args.gy = g.gy.data();
  args.gy_stride = g.form.outputs * int64_t{sizeof(float)};
  args.fold = x.scale_map().scale;
  args.bf16 = g.mode == ProductMode::kBf16;
  return kernels::conv_weights_direct(args);
}

bool direct_gw_int8(const ConvForm& form, const Tensor& codes, const Tensor& x, const Tensor& sums) {
  if (form.groups != 1 || !plain_codes(x)) return false;
  auto args = args_of<kernels::DirectWeightsArgs>(form, x);
  args.c = sums.data();
  args.gy = codes.data();
  args.gy_dtype = dtypes::int8;
  args.gy_stride = codes.stride();
  return kernels::conv_weights_direct(args);
}

}  // namespace bitgrad::detail
