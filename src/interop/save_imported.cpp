// Saves an imported model as a model file.
#include <map>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/layers.h"

namespace bitgrad {
namespace {

constexpr std::string_view kSaved = "import";

// A scheme that may produce codes like these. Their values do not depend on which one it is.
QuantSpec scheme_of_codes(const Tensor& codes) {
  const QuantParams& params = *codes.quant();
  QuantSpec spec;
  spec.dtype = codes.dtype();
  spec.granularity = params.granularity;
  if (spec.dtype == dtypes::ternary) {
    spec.scheme = "ternary";
  } else if (spec.dtype.kind() == DTypeKind::kSign) {
    spec.scheme = "binary";
    spec.alpha = true;
  } else {
    spec.scheme = params.offset != nullptr ? "minmax_offset" : params.zero != nullptr ? "affine" : "symmetric";
  }
  return spec;
}

// The same codes under the name of that scheme, with all parts that it requires.
Tensor as_scheme(const Tensor& codes, const QuantParams& like) {
  QuantParams params = *codes.quant();
  params.scheme = like.scheme;
  const Shape count{scale_count(params.granularity, codes.rows(), codes.cols())};
  const auto fill = [&](std::shared_ptr<const Tensor>& part, bool wanted, DType dtype, double number) {
    if (!wanted)
      part = nullptr;
    else if (part == nullptr)
      part = std::make_shared<const Tensor>(Tensor::full(count, dtype, number, MemoryKind::kQuantState));
  };
  fill(params.scale, like.scale != nullptr, dtypes::fp32, 1);
  fill(params.zero, like.zero != nullptr, dtypes::int32, 0);
  fill(params.offset, like.offset != nullptr, dtypes::fp32, 0);
  fill(params.statistic, like.statistic != nullptr, dtypes::fp32, 0);
  return codes.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

void quantize_slots(Sequential& model, const ImportedModel& imported, const std::map<std::string, Tensor>& values) {
  for (const Module::QuantizableAt& at : model.quantizables_at(kModelRoot)) {
    const auto found = values.find(concat(at.layer, ".weight"));
    if (at.slot->weight_owner() != nullptr || found == values.end() || found->second.quant() == nullptr) continue;
    LayerQuant quant;
    quant.recipe = "custom";
    quant.weight = scheme_of_codes(found->second);
    // BitNet quantizes the inputs of its ternary weights, so bitgrad does too.
    if (imported.family == "bitnet" && found->second.dtype() == dtypes::ternary &&
        at.slot->kind() == Quantizable::Kind::kLinear)
      quant.input = QuantSpec{.dtype = dtypes::int8, .scheme = "absmax", .granularity = Granularity::token()};
    at.slot->set(quant);
  }
}

void take_values(Module& model, const std::map<std::string, Tensor>& values) {
  for (Parameter* p : model.parameters()) {
    const auto found = values.find(p->path());
    require(found != values.end(), kSaved, "parameter '", p->path(), "' ", p->shape(), " has no values.");
    const Tensor& t = found->second;
    require(t.shape() == p->shape(), kSaved, "parameter '", p->path(), "': got values ", t, ", expected ", p->shape());
    if (p->low_bit())
      p->restore({{}, as_scheme(t, *params_form(*p->spec().quant))});
    else
      p->restore({t, {}});
  }
}

}  // namespace

void save_imported(const ImportedModel& imported, const std::string& path) {
  const DeviceGuard host(Device::cpu());
  std::map<std::string, Tensor> values(imported.parameters.begin(), imported.parameters.end());
  ModelSpec spec = imported.spec;
  spec.input.training = false;
  const std::shared_ptr<Sequential> model = make_model(spec);
  quantize_slots(*model, imported, values);
  Learner learner(
      model, find_loss("softmax_cross_entropy"), OptimizerSpec{}, RequantPolicy{}, [](int64_t) { return 0.0f; }, 0,
      LearnerUse::kPredict);
  PlanSpec plan;
  plan.input = imported.spec.input;
  plan.trains = false;
  learner.plan(plan);
  learner.convert();
  take_values(learner.model(), values);
  const std::optional<ModelRecord> record = model_record(learner);
  ensure(record.has_value(), kSaved, "the model has no record");
  CheckpointHeader header;
  header.model = to_text(*record);
  header.tokenizer = tokenizer_text(imported.tokenizer.get());
  header.origin = to_text(imported.origin);
  save_model(path, learner.model(), header);
}

}  // namespace bitgrad
