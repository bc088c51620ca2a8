// Dropout on numbers and on codes; drawn by (seed, path, microbatch, element). Identity in evaluation.
#include <algorithm>

#include "bitgrad/base/live_step.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad {
namespace {

class Dropout final : public Module {
 public:
  explicit Dropout(double p) { options_.p = p; }

  Var forward(const Var& x) override {
    if (!state().training || options_.p == 0) return x;
    options_.stream = live_by_microbatch(
        {state().seed, Purpose::kDropout, site_id(path()), static_cast<uint32_t>(state().microbatch)});
    return dropout(x, options_);
  }

  TensorMeta plan(const TensorMeta& in) override {
    require(in.dtype == dtypes::fp32 || in.dtype.is_code(), "dropout", "needs fp32 input or codes, got ", in.dtype,
            ". Put dequantize before it, or dropout behind a quantizer");
    if (options_.p == 0 || in.dtype.is_float() || !in.training) return in;
    const std::vector<float>& levels = in.dtype.info().levels;
    require(!in.offset && (levels.empty() || std::find(levels.begin(), levels.end(), 0.0f) != levels.end()), "dropout",
            in.dtype, in.offset ? " with a real offset" : "",
            " has no exact code for value 0. Put dropout before the quantizer");
    const bool by_row =
        !in.granularity || in.granularity->kind == Granularity::kTensor || in.granularity->kind == Granularity::kToken;
    require(!in.zero_point || by_row, "dropout", in.dtype, " with zero points per ", *in.granularity,
            ": expected per tensor or token. Put dropout before the quantizer, or quantize symmetrically");
    TensorMeta out = in;
    out.turned = nullptr;
    if (in.dtype.kind() == DTypeKind::kSign) out.dtype = dtypes::ternary;
    if (!out.granularity) out.granularity = Granularity::tensor();
    return out;
  }

  std::string_view kind() const override { return "dropout"; }

 private:
  DropoutOptions options_;
};

}  // namespace

std::shared_ptr<Module> make_dropout_layer(const LayerSpec& spec, int64_t) {
  require(spec.p >= 0 && spec.p < 1, "dropout", "p must be in [0, 1): got ", spec.p);
  return std::make_shared<Dropout>(spec.p);
}

}  // namespace bitgrad
