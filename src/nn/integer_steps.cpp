#include "nn/integer_steps.h"

#include <algorithm>
#include <cstring>

#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/product.h"
#include "kernels/pack.h"

namespace bitgrad::inference::integer {
namespace {

namespace codes = kernels::codes;

constexpr int64_t kFour = 4;  // codes that a kernel multiplies together

int64_t whole(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// number(channel) of all channels and 0 behind them, on the current device.
template <typename F>
Tensor numbers(DType dtype, int64_t channels, F&& number) {
  const int64_t size = whole(channels, codes::kBlock);
  std::vector<double> values(static_cast<size_t>(size));
  for (int64_t j = 0; j < channels; ++j) values[static_cast<size_t>(j)] = static_cast<double>(number(j));
  return Tensor::from_elements({size}, dtype, values, MemoryKind::kBuffer);
}
// One number for all channels, or one each.
template <typename T>
const T& of(const std::vector<T>& values, int64_t channel) {
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
}

std::shared_ptr<const QuantParams> params_here(const std::shared_ptr<const QuantParams>& params) {
  if (params == nullptr || current_device().is_cpu()) return params;
  QuantParams here = *params;
  for (auto* const part : {&here.scale, &here.zero, &here.offset})
    if (*part) *part = std::make_shared<const Tensor>((*part)->to_device(current_device(), MemoryKind::kQuantState));
  return std::make_shared<const QuantParams>(std::move(here));
}

// The weight as its kernel reads it, planned for pieces of a batch. Windows have no pixels outside.
Tensor planned_weight(const Product& op, const Form& in) {
  Tensor w = op.weight.without_quant().to_device(current_device(), MemoryKind::kBuffer);
  if (op.conv && op.conv->groups > 1) return w;
  ProductForm form;
  form.x.rows = kSamplesAtOnce * in.sample_rows();
  form.x.cols = in.features();
  form.x.dtype = dtypes::int8;
  if (op.conv) {
    Conv2dOptions options = *op.conv;
    const auto [top, left, bottom, right] = options.padding;
    options.padding = {0, 0, 0, 0};
    const Shape image{kSamplesAtOnce, in.sample[0] + top + bottom, in.sample[1] + left + right, in.sample[2]};
    form.x.rows = image.rows();
    form.x = windows_form(form.x, image, options);
    form.taps = options.kernel[0] * options.kernel[1];
  }
  form.w = form_of(w);
  form.integer_out = true;
  const Layout layout = plan_product(form).w_layout;
  if (layout == layouts::canonical) return w;
  const Tensor derived = Tensor::empty_layout(w.shape(), w.dtype(), layout, MemoryKind::kDerived);
  kernels::pack({w.dtype(), w.rows(), w.cols(), w.data(), w.stride(), layout, derived.data()});
  w.attach_layout(derived);
  return w;
}

// bias[o] + sum over k of w[o, k] * (x - zero) is this plus the sum of w * x.
Tensor plain_bias(const Product& op, int64_t zero) {
  const int64_t k = op.weight.cols();
  const std::vector<double> w = op.weight.elements(), bias = op.bias.elements();
  std::vector<double> out;
  for (int64_t o = 0; o < op.weight.rows(); ++o) {
    int64_t sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += static_cast<int64_t>(w[static_cast<size_t>(o * k + i)]);
    out.push_back(bias[static_cast<size_t>(o)] - static_cast<double>(zero * sum));
  }
  return Tensor::from_elements(op.bias.shape(), dtypes::int32, out, MemoryKind::kBuffer);
}

}  // namespace

StageNumbers::StageNumbers(const Requantize& op, int64_t channels, std::span<const int32_t> bias) {
  constants_.rule = kernel_rule(op.rule);
  constants_.zero = op.zero;
  constants_.lo = static_cast<int32_t>(op.lo);
  constants_.hi = static_cast<int32_t>(op.hi);
  if (!bias.empty()) bias_ = numbers(dtypes::int32, channels, [&](int64_t j) { return bias[static_cast<size_t>(j)]; });
  if (op.rule == OutputRounding::kFloat) {
    factor_ = numbers(dtypes::fp32, channels, [&](int64_t j) { return of(op.factor, j); });
    return;
  }
  m_ = numbers(dtypes::int32, channels, [&](int64_t j) { return of(op.multiplier, j).m; });
  e_ = numbers(dtypes::int32, channels, [&](int64_t j) { return of(op.multiplier, j).e; });
  constants_.left = std::any_of(op.multiplier.begin(), op.multiplier.end(), [](FixedPoint f) { return f.e > 0; });
}

codes::Stage StageNumbers::stage() const {
  codes::Stage s = constants_;
  if (bias_.defined()) s.bias = bias_.as<int32_t>();
  if (m_.defined()) s.m = m_.as<int32_t>();
  if (e_.defined()) s.e = e_.as<int32_t>();
  if (factor_.defined()) s.factor = factor_.as<float>();
  return s;
}

bool DirectProduct::fits(const Product& op, const Requantize& stage, const Form& in) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  const bool left = std::any_of(stage.multiplier.begin(), stage.multiplier.end(), [](FixedPoint f) { return f.e > 0; });
  if (left || stage.zero_in != 0 || (op.conv && op.conv->groups > 1)) return false;
  if (!op.conv) return true;
  const auto [top, left_side, bottom, right] = op.conv->padding;
  return (in.sample[0] + top + bottom) * (in.sample[1] + left_side + right) * whole(in.features(), kFour) < kMostBytes;
}

DirectProduct::DirectProduct(const Node& product, const Form& in, int32_t zero, const Requantize& stage,
                             std::span<const int32_t> bias)
    : channels_(in.features()), zero_(zero) {
  const auto& op = std::get<Product>(product.operation);
  outputs_ = op.weight.rows();
  image_ = op.conv.has_value();
  if (image_) {
    window_ = *op.conv;
    const auto [top, left, bottom, right] = window_.padding;
    in_ = {in.sample[0], in.sample[1]};
    out_ = {product.form.sample[0], product.form.sample[1]};
    height_ = in_[0] + top + bottom;
    width_ = in_[1] + left + right;
  }
  pixel_ = whole(channels_, kFour);
  pack(op);
  // The kernel reads codes plus 128.
  constexpr uint32_t kRaised = 128;
  std::vector<int32_t> raised(bias.begin(), bias.end());
  const std::vector<double> w = op.weight.elements();
  for (int64_t o = 0; o < outputs_; ++o) {
    int64_t sum = 0;
    for (int64_t i = 0; i < op.weight.cols(); ++i)
      sum += static_cast<int64_t>(w[static_cast<size_t>(o * op.weight.cols() + i)]);
    int32_t& each = raised[static_cast<size_t>(o)];  // modulo 2^32, as the kernel adds
    each = static_cast<int32_t>(static_cast<uint32_t>(each) - kRaised * static_cast<uint32_t>(sum));
  }
  stage_ = StageNumbers(stage, outputs_, raised);
}

void DirectProduct::pack(const Product& op) {
  const int64_t taps = image_ ? window_.kernel[0] * window_.kernel[1] : 1, fours = pixel_ / kFour;
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t c = 0; c < pixel_; c += kFour) {
      const int64_t line = t / window_.kernel[1] * window_.dilation[0],
                    column = t % window_.kernel[1] * window_.dilation[1];
      offsets_.push_back(static_cast<int32_t>(image_ ? (line * width_ + column) * pixel_ + c : c));
    }
  constexpr int64_t kRow = codes::kBlock * kFour;
  const int64_t groups = taps * fours, blocks = whole(outputs_, codes::kBlock) / codes::kBlock, k = taps * channels_;
  weights_ = Tensor::zeros({blocks * groups, kRow}, dtypes::int8, MemoryKind::kDerived);
  const std::vector<double> w = op.weight.elements();
  for (int64_t o = 0; o < outputs_; ++o)
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t c = 0; c < channels_; ++c) {
        const int64_t group = t * fours + c / kFour;
        int8_t* const row = weights_.as<int8_t>() + (o / codes::kBlock * groups + group) * kRow;
        row[o % codes::kBlock * kFour + c % kFour] =
            static_cast<int8_t>(w[static_cast<size_t>(o * k + t * channels_ + c)]);
      }
}

void DirectProduct::fill_outside(uint8_t* to) const {
  std::memset(to, zero_ + 128, static_cast<size_t>(height_ * width_ * pixel_));
}

// One image without the pixels outside, raised; rows of pixels are `stride` bytes apart, at least pixel_.
void DirectProduct::copy_image(const int8_t* from, int64_t stride, uint8_t* to) const {
  constexpr uint32_t kHighBits = 0x80808080;
  const auto [top, left, bottom, right] = window_.padding;
  for (int64_t y = 0; y < in_[0]; ++y) {
    const int8_t* x = from + y * in_[1] * stride;
    uint8_t* into = to + ((y + top) * width_ + left) * pixel_;
    if (stride == pixel_) {
      codes::raise_codes(in_[1] * pixel_, x, into);
      continue;
    }
    for (int64_t p = 0; p < in_[1]; ++p, x += stride, into += pixel_)
      for (int64_t c = 0; c < pixel_; c += kFour) {
        uint32_t four = 0;
        std::memcpy(&four, x + c, sizeof four);
        four ^= kHighBits;
        std::memcpy(into + c, &four, sizeof four);
      }
  }
}

void DirectProduct::run(const Tensor& x, const Tensor& y) const {
  codes::ProductCall call;
  call.stage = stage_.stage();
  call.channels = outputs_;
  call.offset = offsets_.data();
  call.groups = static_cast<int64_t>(offsets_.size());
  call.w = weights_.as<int8_t>();
  call.y_pixel = y.stride();
  const auto* const from = static_cast<const int8_t*>(x.data());
  auto* const to = static_cast<int8_t*>(y.data());
  if (image_) {
    const Tensor images =
        Tensor::empty({x.shape()[0], height_ * width_ * pixel_}, dtypes::uint8, MemoryKind::kWorkspace);
    call.x_line = window_.stride[0] * width_ * pixel_;
    call.x_pixel = window_.stride[1] * pixel_;
    call.lines = out_[0];
    call.pixels = out_[1];
    call.y_line = out_[1] * y.stride();
    parallel_ranges(x.shape()[0], 1, [&](int64_t begin, int64_t end) {
      codes::ProductCall own = call;
      uint8_t* const image = images.as<uint8_t>() + begin * images.stride();  // for all of them: it stays in the cache
      fill_outside(image);
      for (int64_t n = begin; n < end; ++n) {
        copy_image(from + n * in_[0] * in_[1] * x.stride(), x.stride(), image);
        own.x = image;
        own.y = to + n * out_[0] * out_[1] * y.stride();
        codes::product_codes(own);
      }
    });
    return;
  }
  constexpr int64_t kRows = 64;  // of a piece of work
  const Tensor rows = Tensor::empty({x.rows(), pixel_}, dtypes::uint8, MemoryKind::kWorkspace);
  call.x_pixel = rows.stride();
  call.lines = 1;
  parallel_ranges(x.rows(), kRows, [&](int64_t begin, int64_t end) {
    codes::ProductCall own = call;
    for (int64_t r = begin; r < end; ++r)
      codes::raise_codes(pixel_, from + r * x.stride(), rows.as<uint8_t>() + r * rows.stride());
    own.x = rows.as<uint8_t>() + begin * rows.stride();
    own.y = to + begin * y.stride();
    own.pixels = end - begin;
    codes::product_codes(own);
  });
}

std::vector<Step> steps_of(const Graph& graph) {
  const std::vector<Node>& nodes = graph.nodes();
  std::vector<Step> steps(nodes.size());
  for (size_t v = 0; v < nodes.size(); ++v) {
    const Node& node = nodes[v];
    for (const Value input : node.inputs) steps[static_cast<size_t>(input)].last_reader = static_cast<Value>(v);
    steps[v].params = params_here(node.params);
    if (const auto* const product = std::get_if<Product>(&node.operation)) {
      steps[v].weight = planned_weight(*product, graph[node.inputs[0]].form);
      steps[v].bias = plain_bias(*product, code_scale(graph[node.inputs[0]]).zero);
      continue;
    }
    const auto* const stage = std::get_if<Requantize>(&node.operation);
    if (stage == nullptr || graph[node.inputs[0]].form.dtype != dtypes::int32) continue;
    steps[v].stage = StageNumbers(*stage, node.form.features(), {});
    if (!current_device().is_cpu()) continue;
    const Node& before = graph[node.inputs[0]];
    const auto* const product = std::get_if<Product>(&before.operation);
    if (product == nullptr || graph.readers(node.inputs[0]) != 1) continue;
    const Value x = before.inputs[0];
    if (!DirectProduct::fits(*product, *stage, graph[x].form)) continue;
    const Tensor& bias = steps[static_cast<size_t>(node.inputs[0])].bias;
    steps[v].direct =
        std::make_shared<const DirectProduct>(before, graph[x].form, code_scale(graph[x]).zero, *stage,
                                              std::span(bias.as<int32_t>(), static_cast<size_t>(bias.numel())));
    steps[static_cast<size_t>(x)].last_reader = static_cast<Value>(v);  // later readers follow in the loop
  }
  return steps;
}

}  // namespace bitgrad::inference::integer
