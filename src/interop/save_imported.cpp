// Saves an imported model as a model file.
#include <map>
#include <optional>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/product.h"
#include "interop/decoder_files.h"

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

// Precisions of all slots of a model, by the values that it gets.
class Slots {
 public:
  Slots(const ImportedModel& imported, const std::map<std::string, Tensor>& values, ImportInputs inputs)
      : imported_(imported), values_(values), inputs_(inputs) {}

  std::vector<ImportedLayer> set(Sequential& model) {
    std::map<const Quantizable*, std::string> parameters;
    for (const Module::QuantizableAt& at : model.quantizables_at(kModelRoot)) {
      const Quantizable* const owner = at.slot->weight_owner();
      parameters[at.slot] = owner == nullptr ? concat(at.layer, ".weight") : parameters.at(owner);
      set(at, parameters[at.slot]);
    }
    const bool wanted = inputs_ == ImportInputs::kInt8 || inputs_ == ImportInputs::kInt8Block;
    require(wrong_.empty(), kSaved, "inputs ", enum_name(inputs_), ": got weights that do not fit:", wrong_,
            "\nUse inputs int8, one scale for each token, or float.");
    require(rounded_ || !wanted, kSaved, "inputs ", enum_name(inputs_),
            ": got no weights of integer codes, expected some: inputs of weights that are floats are not rounded. "
            "Quantize the model, or use inputs float.");
    return std::move(layers_);
  }

 private:
  void set(const Module::QuantizableAt& at, const std::string& parameter) {
    const auto found = values_.find(parameter);
    if (found == values_.end()) return;  // take_values says it
    const Tensor& weight = found->second;
    const bool codes = weight.quant() != nullptr, ids = at.slot->kind() == Quantizable::Kind::kEmbedding;
    const auto type = imported_.types.find(parameter);
    ImportedLayer& layer = layers_.emplace_back();
    layer.layer = at.layer;
    if (type != imported_.types.end()) layer.type = type->second;
    layer.weights = codes ? text_of(scheme_of_codes(weight)) : concat(weight.dtype());
    if (!ids) layer.inputs = "fp32";
    if (!codes) return;
    LayerQuant quant;
    quant.recipe = "custom";
    quant.weight = scheme_of_codes(weight);
    if (!ids) quant.input = input_of(layer, weight);
    if (quant.input) layer.inputs = text_of(*quant.input);
    if (at.slot->weight_owner() == nullptr || quant.input) at.slot->set(quant);
  }
  static std::string text_of(const QuantSpec& spec) { return concat(spec.dtype, " per ", spec.granularity); }

  // nullopt: floats.
  std::optional<QuantSpec> input_of(const ImportedLayer& layer, const Tensor& weight) {
    QuantSpec spec{.dtype = dtypes::int8, .scheme = "absmax", .granularity = Granularity::token()};
    switch (inputs_) {
      case ImportInputs::kAsTrained:
        // BitNet quantizes the inputs of its ternary weights, so bitgrad does too.
        if (imported_.family != "bitnet" || weight.dtype() != dtypes::ternary) return std::nullopt;
        return spec;
      case ImportInputs::kFloat:
        return std::nullopt;
      case ImportInputs::kInt8:
        break;
      case ImportInputs::kInt8Block:
        spec.granularity = Granularity::groups(block_of(layer, weight));
    }
    rounded_ = true;
    return spec;
  }
  // Inputs that share a scale.
  int64_t block_of(const ImportedLayer& layer, const Tensor& weight) {
    constexpr int64_t kBlock = 32, kSuperBlock = 256;
    const bool super =
        layer.type == "TQ1_0" || layer.type == "TQ2_0" || layer.type == "TQ1_0 TQ2_0" || layer.type == "TQ2_0 TQ1_0";
    const int64_t block = super ? kSuperBlock : kBlock, group = interop::group_of(weight);
    const std::string what =
        concat("\n  ", layer.layer, ".weight", layer.type.empty() ? "" : concat(" (", layer.type, ')'), ": ");
    if (!is_integer(weight.dtype()))
      wrong_ += concat(what, "codes of ", weight.dtype(), " are not integers");
    else if (group != 0 && group % block != 0 && block % group != 0)
      wrong_ +=
          concat(what, "scales per ", weight.quant()->granularity, " and blocks of ", block, " inputs cut each other");
    return block;
  }

  const ImportedModel& imported_;
  const std::map<std::string, Tensor>& values_;
  const ImportInputs inputs_;
  std::vector<ImportedLayer> layers_;
  std::string wrong_;     // a line for each weight that does not fit
  bool rounded_ = false;  // some input
};

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

std::vector<ImportedLayer> save_imported(const ImportedModel& imported, const std::string& path, ImportInputs inputs) {
  const DeviceGuard host(Device::cpu());
  std::map<std::string, Tensor> values(imported.parameters.begin(), imported.parameters.end());
  ModelSpec spec = imported.spec;
  spec.input.training = false;
  const std::shared_ptr<Sequential> model = make_model(spec);
  std::vector<ImportedLayer> layers = Slots(imported, values, inputs).set(*model);
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
  return layers;
}

}  // namespace bitgrad
