// Layers between bf16 values, for the tests of single layers and of networks.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/kernels/unary_op.h"
#include "bitgrad/ops/ops.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/strict_bits.h"

namespace bitgrad::test {

// Of bf16, which has 8 significant bits: the largest relative error of one rounding.
inline constexpr double kHalfUnit = 0x1p-8;

inline LayerSpec layer(const std::string& kind, Attributes attributes = {}) {
  LayerSpec spec;
  spec.kind = kind;
  spec.attributes = std::move(attributes);
  return spec;
}

inline LayerSpec with_weight(LayerSpec spec, const std::optional<QuantSpec>& quant) {
  spec.weight.quant = quant;
  spec.weight.init = {"uniform", -1, 1};
  return spec;
}

inline LayerSpec quantizer(const std::string& kind, const QuantSpec& quant) {
  LayerSpec spec = layer(kind);
  spec.activation = ActivationQuant{quant};
  return spec;
}

inline QuantSpec per_channel(QuantSpec spec) {
  spec.granularity = Granularity::channel(0);
  return spec;
}

inline Tensor rounded(const Tensor& x) { return cast(Var(x), dtypes::bf16).value(); }
inline Tensor wide(const Tensor& x) { return x.dtype() == dtypes::bf16 ? cast(Var(x), dtypes::fp32).value() : x; }

struct Result {
  Tensor y, gx;
  std::vector<Tensor> grads;  // of the parameters
};

// The layer between two others, on samples x: trained on gy where y is of floats.
inline Result run(const LayerSpec& spec, const Tensor& x, DType values, bool training) {
  const auto module = make_layer(spec);
  Form in;
  in.sample = Shape(std::vector<int64_t>(x.shape().dims().begin() + 1, x.shape().dims().end()));
  in.dtype = x.dtype();
  in.values = values;
  in.inner = in.grad = true;
  in.training = training;
  module->plan(in);
  StepState state;
  state.seed = 9;
  state.training = training;
  module->initialize("layers.0", state);
  in.samples = x.shape()[0];
  const Form out = module->plan(in);
  AccumulateSink sink;
  Result result;
  Tape tape;
  const DType edge = x.dtype() == dtypes::bf16 ? dtypes::bf16 : dtypes::fp32;
  const bool floats = x.dtype().is_float();
  const Var y = (*module)(floats ? tape.leaf(x.clone(MemoryKind::kActivation), &sink, edge) : Var(x));
  REQUIRE(y.dtype() == out.dtype);
  result.y = y.value();
  if (!y.tracked()) return result;
  if (y.dtype().is_float()) CHECK(y.grad_dtype() == y.dtype());
  const Tensor gy = random_tensor(y.shape(), dtypes::bf16, 3);
  tape.backward({y}, {y.grad_dtype() == dtypes::bf16 ? gy : wide(gy)});
  if (sink.filled()) result.gx = sink.grad();
  for (Parameter* p : module->parameters()) result.grads.push_back(p->grad_sink().filled() ? p->grad() : Tensor());
  return result;
}

// From values to values without float values between: codes, a product of them, and what it gives dequantized.
inline LayerSpec codes_into(const LayerSpec& product) {
  LayerSpec spec = layer("sequence");
  spec.lists = {LayerList("layers", {quantizer("quantize", quant_spec(dtypes::int8, "absmax")), product})};
  if (product.product.compute == Compute::kIntegerOut) spec.lists[0].layers.push_back(layer("dequantize"));
  return spec;
}

inline const std::vector<std::pair<std::string, LayerSpec>>& layers_of_values() {
  static const std::vector<std::pair<std::string, LayerSpec>> all = [] {
    const auto linear = [](bool bias) { return layer("linear", {{"out", 9}, {"bias", bias}}); };
    std::vector<std::pair<std::string, LayerSpec>> list = {
        {"linear", with_weight(linear(true), {})},
        {"linear bint1", with_weight(linear(false), quant_spec(dtypes::bint1, "binary"))},
        {"linear ternary", with_weight(linear(true), quant_spec(dtypes::ternary, "ternary"))},
        {"linear int4", with_weight(linear(true), per_channel(quant_spec(dtypes::int4, "symmetric")))},
        {"linear int8 affine", with_weight(linear(true), quant_spec(dtypes::int8, "affine"))},
        {"batch_norm", layer("batch_norm")},
        {"tensor_norm", layer("tensor_norm")},
        {"layer_norm", layer("layer_norm")},
        {"rms_norm", layer("rms_norm")},
        {"dropout", layer("dropout", {{"p", 0.4}})},
        {"quantize bint1", quantizer("quantize", quant_spec(dtypes::bint1, "binary"))},
        {"quantize int8", quantizer("quantize", quant_spec(dtypes::int8, "affine"))},
        {"quantize lsq", quantizer("quantize", quant_spec(dtypes::int4, "lsq"))},
        {"quantize_gradient", quantizer("quantize_gradient", quant_spec(dtypes::int8, "absmax"))},
        {"dequantize", layer("dequantize")},
    };
    for (const Compute compute : {Compute::kSimulated, Compute::kIntegerOut}) {
      LayerSpec product = with_weight(linear(false), quant_spec(dtypes::int4, "symmetric"));
      product.product.compute = compute;
      list.emplace_back(concat("codes, compute ", enum_name(compute)), codes_into(product));
    }
    LayerSpec int8 = with_weight(linear(true), per_channel(quant_spec(dtypes::int8, "absmax")));
    int8.product.gx = int8.product.gw = ProductMode::kInt8;
    list.emplace_back("codes, int8 backward", codes_into(int8));
    for (int op = 0; op < static_cast<int>(UnaryOp::kCount); ++op)
      list.emplace_back(unary_name(static_cast<UnaryOp>(op)), layer(std::string(unary_name(static_cast<UnaryOp>(op)))));
    return list;
  }();
  return all;
}

inline Tensor as_double(const Tensor& x) { return Tensor::from_elements(x.shape(), dtypes::fp64, x.values()); }

// "" where each element of `got` is `expected` with one rounding to bf16 (of an fp32 `got`: none) and fp32 arithmetic
// whose error is at most `sums` times the largest element; else the first that is not.
inline std::string off(const Tensor& got, const Tensor& expected, double sums) {
  const std::vector<double> a = got.elements(), b = expected.elements();
  if (a.size() != b.size()) return "sizes";
  double largest = 0;
  for (const double v : b) largest = std::max(largest, std::fabs(v));
  const double relative = got.dtype() == dtypes::bf16 ? kHalfUnit : 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::fabs(a[i] - b[i]) <= relative * std::fabs(b[i]) + sums * (1 + relative) * largest))
      return concat("element ", i, ": ", a[i], ", expected ", b[i]);
  return "";
}

// What a sink has, or nothing.
inline const Tensor& grad_of(const AccumulateSink& sink) { return sink.grad(); }

}  // namespace bitgrad::test
