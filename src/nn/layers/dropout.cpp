// Dropout on values and on codes, drawn by (seed, path, microbatch, element). Identity in evaluation.
#include <algorithm>

#include "bitgrad/base/step_scalars.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/layers/dropout.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

class Dropout final : public detail::ValuesLayer {
 public:
  explicit Dropout(double p) { options_.p = p; }

  Var forward(const Var& in) override {
    Var x = detail::pass_through(in, y_);
    if (!state().training || options_.p == 0) return x;
    options_.stream = live_by_microbatch(
        {state().seed, Purpose::kDropout, site_id(path()), static_cast<uint32_t>(state().microbatch)});
    return dropout(x, options_);
  }

  Form plan(const Form& in, PlanRequests&) override {
    require(detail::is_values(in.dtype) || in.dtype.is_code(), "dropout", "needs fp32 input or codes, got ", in.dtype,
            ". Put dequantize before it, or put dropout after a quantizer");
    Form out = in;
    out.dtype = y_ = detail::passed_dtype(in);
    if (options_.p == 0 || in.dtype.is_float() || !in.training) return out;
    const std::vector<float>& levels = in.dtype.info().levels;
    const ScaleForm scales = in.scales.value_or(ScaleForm{});
    require(!scales.offset && (levels.empty() || std::find(levels.begin(), levels.end(), 0.0f) != levels.end()),
            "dropout", in.dtype, scales.offset ? " with a real offset" : "",
            " has no exact code for value 0. Put dropout before the quantizer");
    const Granularity& g = scales.granularity;
    const bool by_row = g.kind == Granularity::kTensor || g.kind == Granularity::kToken;
    require(!scales.zero_point || by_row, "dropout", in.dtype, " with zero points per ", g,
            ": expected per tensor or token. Put dropout before the quantizer, or quantize symmetrically");
    if (in.dtype.kind() == DTypeKind::kSign) out.dtype = dtypes::ternary;
    out.scales = scales;
    return out;
  }

  PlanRequests serve(const PlanRequests& requests) override { return options_.p == 0 ? requests : requests.parts(); }
  inference::Value lower(inference::Graph&, inference::Value x) override { return x; }
  std::string_view kind() const override { return "dropout"; }

 private:
  DropoutOptions options_;
};

}  // namespace

bool detail::draws_in_training(const Module& layer) { return dynamic_cast<const Dropout*>(&layer) != nullptr; }

LayerKind dropout_kind() {
  return {.name = "dropout",
          .doc = "sets random elements to 0 in training",
          .keys = {{"p", Key::Type::kNumber, "[0, 1)", "!", "probability of a zero"}},
          .bf16 = true,
          .output = LayerKind::Output::kNone,
          .make = [](const LayerSpec& spec) { return std::make_shared<Dropout>(spec.attributes.number("p")); }};
}

}  // namespace bitgrad
