// Runs graphs of integers: products straight to codes where there is a kernel (nn/integer_steps.h), else by those of
// integer_linear and integer_conv2d; all else by loops over rows and by maps.
#include <algorithm>
#include <array>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/product.h"
#include "bitgrad/ops/spatial.h"
#include "kernels/codes.h"
#include "nn/integer_steps.h"
#include "nn/map/integer_codes.h"
#include "ops/common.h"

namespace bitgrad::inference {
namespace {

namespace codes = kernels::codes;

constexpr int64_t kGrain = int64_t{1} << 14;  // elements of a piece of work

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

template <typename T>
maps::codes::Rows<T> rows_of(const Tensor& t) {
  return {static_cast<T*>(t.data()), t.stride() / static_cast<int64_t>(sizeof(T))};
}

// Of rows of `cols` elements: the whole row on the CPU.
maps::codes::Runs runs_of(int64_t cols) {
  constexpr int64_t kDeviceRun = 4;
  return {cols, current_device().is_cpu() ? std::max<int64_t>(1, cols) : kDeviceRun};
}

// A map over the runs of rows.
template <typename Map>
void run_rows(const Map& map, int64_t rows) {
  run_map(map, rows * map.runs.runs(), rows_per_task(map.runs.run));
}

// The elements of x, in their order, to y, which begins at a column of rows.
void move_codes(const Tensor& x, maps::codes::Rows<int8_t> y, int64_t y_cols) {
  run_rows(maps::MovedCodes{runs_of(x.cols()), rows_of<const int8_t>(x), y_cols, y}, x.rows());
}

// Rows of codes begin at multiples of 8 bytes.
Tensor reshaped(const Tensor& x, const Shape& shape) {
  const Tensor y = Tensor::zeros(shape, dtypes::int8);
  move_codes(x, rows_of<int8_t>(y), y.cols());
  return y;
}

// Codes become others, one for each.
void table_rows(const std::array<int8_t, 256>& table, const Tensor& x, const Tensor& y) {
  maps::CodesByTable map{runs_of(y.cols()), {}, rows_of<const int8_t>(x), rows_of<int8_t>(y)};
  std::copy(table.begin(), table.end(), map.table);
  run_rows(map, y.rows());
}

// Of each code the code that f gives.
template <typename F>
std::array<int8_t, 256> table_of(F&& f) {
  std::array<int8_t, 256> table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int8_t>(f(static_cast<int32_t>(i) - 128));
  return table;
}

Tensor clamped(const Tensor& x, int64_t lo, int64_t hi) {
  table_rows(table_of([&](int64_t code) { return std::clamp(code, lo, hi); }), x, x);
  return x;
}

Tensor quantized(const Quantize& op, const integer::Step& step, const Tensor& x) {
  QuantizeOpOptions options;
  options.params = step.params;
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
  const maps::PaddedCodes map{
      runs_of(pw * c), h, w, c, top, left, ph, static_cast<int8_t>(zero), rows_of<const int8_t>(x), rows_of<int8_t>(y)};
  run_rows(map, n * ph);
  return y;
}

// bias[o] + sum over k of w[o, k] * (x - zero), as bias less zero * sum of w, plus sum of w * x.
Tensor sums(const Product& op, const Var& w, const Tensor& bias, const Tensor& x, int32_t zero, const Shape& shape) {
  Tensor y;
  if (op.conv) {
    Conv2dOptions options = *op.conv;
    const Tensor image = padded(x.without_quant(), options.padding, zero);
    options.padding = {0, 0, 0, 0};
    y = integer_conv2d(Var(image), w, {}, options).value().without_quant();
  } else {
    y = integer_linear(Var(x.without_quant()), w).value().without_quant().reshape(shape);
  }
  run_rows(maps::BiasedSums{runs_of(y.cols()), bias.as<int32_t>(), rows_of<int32_t>(y)}, y.rows());
  return y;
}

// Sums become codes.
void requantize_sums(const integer::StageNumbers& numbers, const Tensor& x, const Tensor& y) {
  if (!current_device().is_cpu())
    return run_rows(
        maps::RequantizedSums{runs_of(y.cols()), numbers.stage(), rows_of<const int32_t>(x), rows_of<int8_t>(y)},
        y.rows());
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, y.cols()));
  parallel_ranges(y.rows(), grain, [&](int64_t begin, int64_t end) {
    codes::requantize_rows({numbers.stage(), end - begin, y.cols(), row_of<int32_t>(x, begin),
                            x.stride() / static_cast<int64_t>(sizeof(int32_t)), row_of<int8_t>(y, begin), y.stride()});
  });
}

void rescaled_rows(const Requantize& op, const Tensor& x, const Tensor& y) {
  const size_t numbers = std::max(op.factor.size(), op.multiplier.size());
  ensure(numbers == 1, "integer", "codes have one scale, got ", numbers);
  table_rows(table_of([&](int32_t code) { return code_of(op, code, 0); }), x, y);
}

template <typename Map, typename Op>
void join_rows(const Op& op, const Tensor& a, const Tensor& b, const Tensor& y) {
  run_rows(Map{{runs_of(y.cols()), op, rows_of<const int8_t>(a), rows_of<const int8_t>(b), rows_of<int8_t>(y)}},
           y.rows());
}

void add_rows(const IntegerAdd& op, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (!current_device().is_cpu()) return join_rows<maps::AddedCodes>(op, a, b, y);
  codes::Sum sum;
  sum.rule = integer::kernel_rule(op.rule);
  for (size_t i = 0; i < 2; ++i) {
    sum.zero_in[i] = op.zero_in[i];
    sum.in[i] = {op.in[i].m, op.in[i].e};
    sum.factor[i] = op.factor[i];
  }
  sum.out = {op.out.m, op.out.e};
  sum.shift = op.shift;
  sum.zero = op.zero;
  sum.lo = static_cast<int32_t>(op.lo);
  sum.hi = static_cast<int32_t>(op.hi);
  const int64_t n = y.cols();
  const bool dense = a.stride() == n && b.stride() == n && y.stride() == n;
  parallel_ranges(y.rows(), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += dense ? end - begin : 1)
      codes::add_codes(
          {sum, dense ? (end - begin) * n : n, row_of<int8_t>(a, i), row_of<int8_t>(b, i), row_of<int8_t>(y, i)});
  });
}

void averages(const IntegerAvgPool& op, const Tensor& x, const Tensor& y) {
  const PoolOptions& o = op.options;
  kernels::WindowGeometry g;
  g.h = g.kh = x.shape()[1];
  g.w = g.kw = x.shape()[2];
  g.oh = g.ow = 1;
  if (!op.whole_image) {
    g.oh = y.shape()[1];
    g.ow = y.shape()[2];
    g.kh = o.size[0];
    g.kw = o.size[1];
    g.stride_y = o.stride[0];
    g.stride_x = o.stride[1];
    g.top = o.padding[0];
    g.left = o.padding[1];
  }
  const maps::AveragedCodes map{runs_of(y.cols()),           g,
                                static_cast<int32_t>(op.lo), static_cast<int32_t>(op.hi),
                                rows_of<const int8_t>(x),    rows_of<int8_t>(y)};
  if (!current_device().is_cpu()) return run_rows(map, y.rows());
  for_rows(y, [&](int64_t i) {
    std::vector<int32_t> sums(static_cast<size_t>(y.cols()));
    const int32_t count =
        map.each(i, [&](int64_t pixel) { codes::add_to_sums(y.cols(), map.x.row(pixel), sums.data()); });
    for (int64_t j = 0; j < y.cols(); ++j)
      map.y.row(i)[j] = static_cast<int8_t>(code_of(op, sums[static_cast<size_t>(j)], count));
  });
}

void concatenated(const std::vector<Tensor>& parts, const Tensor& y) {
  maps::codes::Rows<int8_t> to = rows_of<int8_t>(y);
  for (const Tensor& part : parts) {
    move_codes(part, to, part.cols());
    to.data += part.cols();
  }
}

Shape batch_shape(int64_t n, const Shape& sample) {
  std::vector<int64_t> dims{n};
  dims.insert(dims.end(), sample.dims().begin(), sample.dims().end());
  return Shape(std::move(dims));
}

// The operations whose result is new int8 codes. Returns false for others.
bool write_codes(const Node& node, const integer::Step& step, const std::vector<Tensor>& in, const Tensor& y) {
  const Operation& operation = node.operation;
  if (const auto* const scaled = std::get_if<Requantize>(&operation)) {
    if (in[0].dtype() == dtypes::int32)
      requantize_sums(step.stage, in[0], y);
    else
      rescaled_rows(*scaled, in[0], y);
  } else if (const auto* const sum = std::get_if<IntegerAdd>(&operation)) {
    add_rows(*sum, in[0], in[1], y);
  } else if (const auto* const product = std::get_if<IntegerMultiply>(&operation)) {
    join_rows<maps::MultipliedCodes>(*product, in[0], in[1], y);
  } else if (const auto* const mean = std::get_if<IntegerAvgPool>(&operation)) {
    averages(*mean, in[0], y);
  } else if (const auto* const table = std::get_if<Table>(&operation)) {
    table_rows(table->codes, in[0], y);
  } else if (std::holds_alternative<Join>(operation)) {
    concatenated(in, y);
  } else {
    return false;
  }
  return true;
}

}  // namespace

IntegerNetwork::IntegerNetwork(Graph graph)
    : graph_(std::move(graph)), steps_(std::make_shared<const std::vector<integer::Step>>(integer::steps_of(graph_))) {}

Tensor IntegerNetwork::run_node(Value at, const std::vector<Tensor>& values, const Tensor& x, bool direct) const {
  const Node& node = graph_[at];
  const integer::Step& step = (*steps_)[static_cast<size_t>(at)];
  const Shape shape = batch_shape(x.shape()[0], node.form.sample);
  const Operation& operation = node.operation;
  const auto result = [&] {  // bytes behind the codes of a row are 0
    const Tensor y = Tensor::empty(shape, dtypes::int8);
    return y.stride() == y.cols() ? y : Tensor::zeros(shape, dtypes::int8);
  };
  if (direct && step.direct) {
    const Tensor y = result();
    step.direct->run(values[static_cast<size_t>(graph_[node.inputs[0]].inputs[0])], y);
    return y.with_quant(step.params);
  }
  std::vector<Tensor> in;
  for (const Value v : node.inputs) in.push_back(values[static_cast<size_t>(v)]);
  if (std::holds_alternative<Input>(operation)) return x.reshape(shape);
  if (const auto* const q = std::get_if<Quantize>(&operation)) return quantized(*q, step, in[0]);
  if (const auto* const product = std::get_if<Product>(&operation)) {
    if (direct && goes_direct(at)) return {};
    const int32_t zero = code_scale(graph_[node.inputs[0]]).zero;
    return sums(*product, Var(step.weight), step.bias, in[0], zero, shape).with_quant(step.params);
  }
  if (std::holds_alternative<Dequantize>(operation)) return dequantize(Var(in[0])).value();
  if (std::holds_alternative<Reshape>(operation)) return reshaped(in[0], shape).with_quant(step.params);
  if (const auto* const pool = std::get_if<MaxPool>(&operation)) return max_pool(Var(in[0]), pool->options).value();
  const Tensor y = result();
  ensure(write_codes(node, step, in, y), "integer", "'", node.layer, "' is not an operation of integers");
  return y.with_quant(step.params);
}

// Whether the only reader of a product computes it as well.
bool IntegerNetwork::goes_direct(Value product) const {
  return (*steps_)[static_cast<size_t>((*steps_)[static_cast<size_t>(product)].last_reader)].direct != nullptr;
}

Tensor IntegerNetwork::run(const Tensor& x, std::vector<Tensor>* values) const {
  require_here("integer", "x", x);
  require(x.dtype() == dtypes::fp32 && x.contiguous() && x.shape().rank() >= 1, "integer", "got ", x,
          ", expected values [n, sample...] of fp32");
  const NoGrad off;
  const bool at_once = values != nullptr || !current_device().is_cpu();
  const int64_t n = x.shape()[0], piece = at_once ? n : integer::kSamplesAtOnce;
  const Node& last = graph_[graph_.output()];
  Tensor y = Tensor::empty(batch_shape(n, last.form.sample), dtypes::fp32);
  const int64_t each = last.form.sample.numel();
  const bool direct = values == nullptr && kernels::codes::has_product();
  for (int64_t first = 0; first < n; first += piece) {
    const Tensor part = x.row_slice(first, std::min(n, first + piece));
    std::vector<Tensor> now;
    for (Value v = 0; v <= graph_.output(); ++v) {
      now.push_back(run_node(v, now, part, direct));
      if (values != nullptr) continue;
      for (size_t read = 0; read < now.size(); ++read)
        if ((*steps_)[read].last_reader == v) now[read] = Tensor();
    }
    const Tensor outputs = now.back();
    if (piece == n)
      y = outputs;
    else
      std::memcpy(y.as<float>() + first * each, outputs.as<float>(), size_t(outputs.numel()) * sizeof(float));
    if (values != nullptr) *values = std::move(now);
  }
  return y;
}

}  // namespace bitgrad::inference
