// Runs graphs of integers: products by the kernels of integer_linear and integer_conv2d, all else by loops over rows.
#include <algorithm>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/product.h"
#include "bitgrad/ops/spatial.h"
#include "kernels/pack.h"

namespace bitgrad::inference {
namespace {

constexpr int64_t kGrain = int64_t{1} << 14;  // elements of a piece of work
constexpr int64_t kSamplesAtOnce = 16;        // their values stay in caches

// Rows of int8 or int32 along the last axis.
template <typename T>
T* row_of(const Tensor& t, int64_t row) {
  return reinterpret_cast<T*>(static_cast<uint8_t*>(t.data()) + row * t.stride());
}

template <typename F>
void for_rows(const Tensor& y, F&& row) {
  parallel_ranges(y.rows(), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, y.cols())),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) row(i);
                  });
}

// The same elements in row-major order under another shape; rows of codes begin at multiples of 8 bytes.
Tensor reshaped(const Tensor& x, const Shape& shape) {
  const Tensor y = Tensor::zeros(shape, dtypes::int8);
  if (x.cols() == y.cols()) {
    for_rows(y, [&](int64_t i) { std::memcpy(row_of<int8_t>(y, i), row_of<int8_t>(x, i), size_t(x.cols())); });
    return y;
  }
  const int64_t n = shape[0], each = n == 0 ? 0 : shape.numel() / n;
  parallel_ranges(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * each; at < end * each; ++at)
      row_of<int8_t>(y, at / y.cols())[at % y.cols()] = row_of<int8_t>(x, at / x.cols())[at % x.cols()];
  });
  return y;
}

Tensor clamped(const Tensor& x, int64_t lo, int64_t hi) {
  for_rows(x, [&](int64_t i) {
    int8_t* const row = row_of<int8_t>(x, i);
    for (int64_t j = 0; j < x.cols(); ++j) row[j] = static_cast<int8_t>(std::clamp<int64_t>(row[j], lo, hi));
  });
  return x;
}

Tensor quantized(const Quantize& op, const Node& node, const Tensor& x) {
  QuantizeOpOptions options;
  options.params = node.params;
  const Tensor codes = quantize(Var(x), op.spec, options).value();
  const bool all = op.lo <= op.spec.dtype.info().qmin && op.hi >= op.spec.dtype.info().qmax;
  return all ? codes : clamped(codes, op.lo, op.hi);
}

// x with the pixels outside, which are its code for 0.
Tensor padded(const Tensor& x, const std::array<int64_t, 4>& padding, int32_t zero) {
  const auto [top, left, bottom, right] = padding;
  if (top + left + bottom + right == 0) return x;
  const int64_t n = x.shape()[0], h = x.shape()[1], w = x.shape()[2], c = x.shape()[3];
  const int64_t ph = h + top + bottom, pw = w + left + right;
  const Tensor y = Tensor::zeros({n, ph, pw, c}, dtypes::int8);
  parallel_ranges(n * ph, std::max<int64_t>(1, kGrain / (pw * c)), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t from = line % ph - top;
      const bool inside = from >= 0 && from < h;
      for (int64_t j = 0; j < pw; ++j) {
        int8_t* const to = row_of<int8_t>(y, line * pw + j);
        if (!inside || j < left || j >= left + w)
          std::memset(to, zero, static_cast<size_t>(c));
        else
          std::memcpy(to, row_of<int8_t>(x, ((line / ph) * h + from) * w + j - left), static_cast<size_t>(c));
      }
    }
  });
  return y;
}

// The weight as its kernel reads it, planned for pieces of a batch. Windows have no pixels outside: padded().
Tensor planned_weight(const Product& op, const Form& in) {
  Tensor w = op.weight.without_quant().clone(MemoryKind::kBuffer);
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

// bias[o] + sum over k of w[o, k] * (x - zero), as bias less zero * sum of w, plus sum of w * x.
Tensor sums(const Product& op, const Var& w, const std::vector<int32_t>& bias, const Tensor& x, int32_t zero,
            const Shape& shape) {
  Tensor y;
  if (op.conv) {
    Conv2dOptions options = *op.conv;
    const Tensor image = padded(x.without_quant(), options.padding, zero);
    options.padding = {0, 0, 0, 0};
    y = integer_conv2d(Var(image), w, {}, options).value().without_quant();
  } else {
    y = integer_linear(Var(x.without_quant()), w).value().without_quant().reshape(shape);
  }
  for_rows(y, [&](int64_t i) {
    int32_t* const row = row_of<int32_t>(y, i);
    for (int64_t j = 0; j < y.cols(); ++j) row[j] += bias[static_cast<size_t>(j)];
  });
  return y;
}

// One rule each, so that no element looks for it.
template <typename T, OutputRounding kRule>
void requantize_rows(const Requantize& op, const Tensor& x, const Tensor& y) {
  const size_t last = (kRule == OutputRounding::kFloat ? op.factor.size() : op.multiplier.size()) - 1;
  for_rows(y, [&](int64_t i) {
    const T* const from = row_of<T>(x, i);
    int8_t* const to = row_of<int8_t>(y, i);
    for (size_t j = 0; j < static_cast<size_t>(y.cols()); ++j) {
      const size_t c = std::min(j, last);
      const int32_t acc = from[j] - op.zero_in;
      int64_t code = op.zero;
      if constexpr (kRule == OutputRounding::kFloat)
        code += requantize_float(acc, op.factor[c]);
      else
        code += requantize(acc, op.multiplier[c], kRule);
      to[j] = static_cast<int8_t>(std::clamp(code, op.lo, op.hi));
    }
  });
}
template <typename T>
void requantize_rows(const Requantize& op, const Tensor& x, const Tensor& y) {
  using R = OutputRounding;
  constexpr void (*kRows[])(const Requantize&, const Tensor&, const Tensor&) = {
      requantize_rows<T, R::kDouble>, requantize_rows<T, R::kSingle>, requantize_rows<T, R::kFloat>,
      requantize_rows<T, R::kRuy>};
  kRows[static_cast<size_t>(op.rule)](op, x, y);
}

// Codes of one or two inputs, from the code of each pair.
template <typename Op>
void pair_rows(const Op& op, const Tensor& a, const Tensor& b, const Tensor& y) {
  for_rows(y, [&](int64_t i) {
    const int8_t* const x0 = row_of<int8_t>(a, i);
    const int8_t* const x1 = row_of<int8_t>(b, i);
    int8_t* const to = row_of<int8_t>(y, i);
    for (int64_t j = 0; j < y.cols(); ++j) to[j] = static_cast<int8_t>(code_of(op, x0[j], x1[j]));
  });
}

void table_rows(const Table& op, const Tensor& x, const Tensor& y) {
  for_rows(y, [&](int64_t i) {
    const int8_t* const from = row_of<int8_t>(x, i);
    int8_t* const to = row_of<int8_t>(y, i);
    for (int64_t j = 0; j < y.cols(); ++j) to[j] = op.codes[static_cast<size_t>(from[j] + 128)];
  });
}

void averages(const IntegerAvgPool& op, const Tensor& x, const Tensor& y) {
  const int64_t h = x.shape()[1], w = x.shape()[2], c = x.cols();
  const int64_t oh = op.whole_image ? 1 : y.shape()[1], ow = op.whole_image ? 1 : y.shape()[2];
  const PoolOptions& o = op.options;
  for_rows(y, [&](int64_t i) {
    const int64_t sample = i / (oh * ow), oy = i / ow % oh, ox = i % ow;
    int64_t y0 = 0, y1 = h, x0 = 0, x1 = w;
    if (!op.whole_image) {
      y0 = oy * o.stride[0] - o.padding[0], x0 = ox * o.stride[1] - o.padding[1];
      y1 = std::min(y0 + o.size[0], h), x1 = std::min(x0 + o.size[1], w);
      y0 = std::max<int64_t>(y0, 0), x0 = std::max<int64_t>(x0, 0);
    }
    const int64_t count = (y1 - y0) * (x1 - x0);
    int8_t* const to = row_of<int8_t>(y, i);
    for (int64_t j = 0; j < c; ++j) {
      int32_t sum = 0;
      for (int64_t py = y0; py < y1; ++py)
        for (int64_t px = x0; px < x1; ++px) sum += row_of<int8_t>(x, (sample * h + py) * w + px)[j];
      to[j] = static_cast<int8_t>(code_of(op, sum, static_cast<int32_t>(count)));
    }
  });
}

void concatenated(const std::vector<Tensor>& parts, const Tensor& y) {
  for_rows(y, [&](int64_t i) {
    int8_t* to = row_of<int8_t>(y, i);
    for (const Tensor& part : parts) {
      std::memcpy(to, row_of<int8_t>(part, i), static_cast<size_t>(part.cols()));
      to += part.cols();
    }
  });
}

Shape batch_shape(int64_t n, const Shape& sample) {
  std::vector<int64_t> dims{n};
  dims.insert(dims.end(), sample.dims().begin(), sample.dims().end());
  return Shape(std::move(dims));
}

// The operations whose result is new int8 codes. Returns false for others.
bool write_codes(const Node& node, const std::vector<Tensor>& in, const Tensor& y) {
  const Operation& operation = node.operation;
  if (const auto* const scaled = std::get_if<Requantize>(&operation)) {
    if (in[0].dtype() == dtypes::int32)
      requantize_rows<int32_t>(*scaled, in[0], y);
    else
      requantize_rows<int8_t>(*scaled, in[0], y);
  } else if (const auto* const sum = std::get_if<IntegerAdd>(&operation)) {
    pair_rows(*sum, in[0], in[1], y);
  } else if (const auto* const product = std::get_if<IntegerMultiply>(&operation)) {
    pair_rows(*product, in[0], in[1], y);
  } else if (const auto* const mean = std::get_if<IntegerAvgPool>(&operation)) {
    averages(*mean, in[0], y);
  } else if (const auto* const table = std::get_if<Table>(&operation)) {
    table_rows(*table, in[0], y);
  } else if (std::holds_alternative<Join>(operation)) {
    concatenated(in, y);
  } else {
    return false;
  }
  return true;
}

}  // namespace

IntegerNetwork::IntegerNetwork(Graph graph)
    : graph_(std::move(graph)), weights_(graph_.nodes().size()), biases_(graph_.nodes().size()) {
  for (size_t v = 0; v < biases_.size(); ++v) {
    const Node& node = graph_.nodes()[v];
    const auto* const product = std::get_if<Product>(&node.operation);
    if (product == nullptr) continue;
    weights_[v] = planned_weight(*product, graph_[node.inputs[0]].form);
    const int64_t zero = code_scale(graph_[node.inputs[0]]).zero, k = product->weight.cols();
    const std::vector<double> codes = product->weight.elements(), bias = product->bias.elements();
    for (int64_t o = 0; o < product->weight.rows(); ++o) {
      int64_t sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += static_cast<int64_t>(codes[static_cast<size_t>(o * k + i)]);
      biases_[v].push_back(static_cast<int32_t>(static_cast<int64_t>(bias[static_cast<size_t>(o)]) - zero * sum));
    }
  }
}

Tensor IntegerNetwork::run_node(const Node& node, const std::vector<Tensor>& values, const Tensor& x) const {
  const int64_t n = x.shape()[0];
  const Shape shape = batch_shape(n, node.form.sample);
  std::vector<Tensor> in;
  for (const Value v : node.inputs) in.push_back(values[static_cast<size_t>(v)]);
  const Operation& operation = node.operation;
  if (std::holds_alternative<Input>(operation)) return x.reshape(shape);
  if (const auto* const q = std::get_if<Quantize>(&operation)) return quantized(*q, node, in[0]);
  if (const auto* const product = std::get_if<Product>(&operation)) {
    const size_t at = static_cast<size_t>(&node - graph_.nodes().data());
    const int32_t zero = code_scale(graph_[node.inputs[0]]).zero;
    return sums(*product, Var(weights_[at]), biases_[at], in[0], zero, shape).with_quant(node.params);
  }
  if (std::holds_alternative<Dequantize>(operation)) return dequantize(Var(in[0])).value();
  if (std::holds_alternative<Reshape>(operation)) return reshaped(in[0], shape).with_quant(node.params);
  if (const auto* const pool = std::get_if<MaxPool>(&operation)) return max_pool(Var(in[0]), pool->options).value();
  const Tensor y = Tensor::zeros(shape, dtypes::int8);
  ensure(write_codes(node, in, y), "integer", "'", node.layer, "' is not an operation of integers");
  return y.with_quant(node.params);
}

Tensor IntegerNetwork::run(const Tensor& x, std::vector<Tensor>* values) const {
  require(current_device().is_cpu() && x.device().is_cpu(), "integer",
          "compute: integer is evaluated on the CPU alone. Set device.kind: cpu");
  require(x.dtype() == dtypes::fp32 && x.contiguous() && x.shape().rank() >= 1, "integer", "got ", x,
          ", expected values [n, sample...] of fp32");
  const NoGrad off;
  const int64_t n = x.shape()[0], piece = values != nullptr ? n : kSamplesAtOnce;
  const Node& last = graph_[graph_.output()];
  const Tensor y = Tensor::empty(batch_shape(n, last.form.sample), dtypes::fp32);
  const int64_t each = last.form.sample.numel();
  for (int64_t first = 0; first < n; first += piece) {
    const Tensor part = x.row_slice(first, std::min(n, first + piece));
    std::vector<Tensor> now;
    for (const Node& node : graph_.nodes()) now.push_back(run_node(node, now, part));
    std::memcpy(y.as<float>() + first * each, now.back().as<float>(), size_t(now.back().numel()) * sizeof(float));
    if (values != nullptr) *values = std::move(now);
  }
  return y;
}

}  // namespace bitgrad::inference
