#include "bitgrad/nn/adapter.h"

#include <cmath>

#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/slot_product.h"

namespace bitgrad {
namespace {

constexpr int64_t kMostRank = 65536;

ParameterSpec starts_at(Init init) {
  ParameterSpec spec;
  spec.init = std::move(init);
  return spec;
}

// he_uniform draws from +-sqrt(6 / fan_in), so this fan_in gives +-1 / sqrt(inputs), the usual initialization of LoRA's
// A (Kaiming uniform with a = sqrt 5).
Fans fans_of(int64_t inputs) { return {.in = 6 * inputs, .out = 0}; }

}  // namespace

LowRankAdapter::LowRankAdapter(const AdapterSpec& spec, const Parameter& weight)
    : spec_(spec),
      weight_(weight),
      a_(add_parameter("a", starts_at({"he_uniform"}))),
      b_(add_parameter("b", starts_at({"zeros"}))) {
  require(spec.rank >= 1 && spec.rank <= kMostRank, "adapters", "rank: got ", spec.rank, ", expected 1 .. ", kMostRank);
  require(std::isfinite(spec.alpha) && spec.alpha > 0, "adapters", "alpha: got ", spec.alpha, ", expected above 0");
  require(spec.dropout >= 0 && spec.dropout < 1, "adapters", "dropout: got ", spec.dropout, ", expected [0, 1)");
  if (weight.described()) describe(weight.shape().cols());
  if (spec.dropout > 0) {
    LayerSpec dropout;
    dropout.kind = "dropout";
    dropout.attributes = {{"p", spec.dropout}};
    dropout_ = make_layer(dropout);
    add_child("dropout", dropout_);
  }
}

void LowRankAdapter::describe(int64_t inputs) {
  const Shape a{spec_.rank, inputs};
  a_.describe(a, a, fans_of(inputs));
  b_.describe({weight_.shape().rows(), spec_.rank});
}

void LowRankAdapter::allocate() {
  const double scale = spec_.alpha / static_cast<double>(spec_.rank);
  if (scale != 1) scale_ = Tensor::full({1}, dtypes::fp32, scale, MemoryKind::kBuffer);
}

Var LowRankAdapter::forward(const Var& x) {
  const Var in = dropout_ ? (*dropout_)(x) : x;
  ProductModes modes;
  modes.row_alone = causal_ && initialized() && !state().training;
  const Var h = linear(in, a_.read(), {}, modes);
  return linear(scale_.defined() ? mul(h, Var(scale_)) : h, b_.read(), {}, modes);
}

Form LowRankAdapter::plan(const Form& in, PlanRequests& requests) {
  static const ProductModes kPlain;
  describe(in.features());
  causal_ = in.causal;
  Form x = in;
  x.inner = true;
  PlanRequests unserved;
  if (dropout_) x = dropout_->planned(x, unserved);
  Form h = detail::plan_slot_product({a_, Compute::kPacked, kPlain, false, nullptr}, x, dropout_ ? unserved : requests);
  h.dtype = dtypes::fp32;
  Form y = detail::plan_slot_product({b_, Compute::kPacked, kPlain, false, nullptr}, h, unserved);
  y.dtype = dtypes::fp32;
  return y;
}

int64_t LowRankAdapter::macs(const Form&, const Form& out) const {
  return out.sample_rows() * (a_.shape().numel() + b_.shape().numel());
}

void LowRankAdapter::add_to(const Tensor& w) const {
  const Tensor host_a = a_.value().on_host(), host_b = b_.value().on_host();
  const float* const a = host_a.as<float>();
  const float* const b = host_b.as<float>();
  float* const out = w.as<float>();
  const int64_t rank = spec_.rank, cols = w.cols();
  const double scale = spec_.alpha / static_cast<double>(rank);
  parallel_ranges(w.rows(), 16, [&](int64_t begin, int64_t end) {
    std::vector<double> row(static_cast<size_t>(cols));
    for (int64_t o = begin; o < end; ++o) {
      std::fill(row.begin(), row.end(), 0.0);
      for (int64_t r = 0; r < rank; ++r)
        for (int64_t i = 0; i < cols; ++i)
          row[static_cast<size_t>(i)] += static_cast<double>(b[o * rank + r]) * static_cast<double>(a[r * cols + i]);
      for (int64_t i = 0; i < cols; ++i)
        out[o * cols + i] =
            static_cast<float>(static_cast<double>(out[o * cols + i]) + scale * row[static_cast<size_t>(i)]);
    }
  });
}

}  // namespace bitgrad
