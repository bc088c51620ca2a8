// Which models are networks of integers, and whether training computes their codes.
#include "bitgrad/base/error.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/nn/module.h"

namespace bitgrad::inference {
namespace {

bool is_integer(const Quantizable& slot) { return slot.on() && slot.quant().compute == Compute::kInteger; }

}  // namespace

std::optional<OutputRounding> integer_rule(Module& model) {
  const std::vector<Module::QuantizableAt> slots = model.quantizables_at(kModelRoot);
  const Module::QuantizableAt* integer = nullptr;
  for (const Module::QuantizableAt& at : slots)
    if (integer == nullptr && is_integer(*at.slot)) integer = &at;
  if (integer == nullptr) return std::nullopt;
  const OutputRounding rule = integer->slot->quant().output_rounding;
  for (const Module::QuantizableAt& at : slots) {
    const OutputRounding own = at.slot->quant().output_rounding;
    if (!is_integer(*at.slot))
      throw LayerError(
          at.layer,
          concat("[compute: integer] a network of integers has no other layers: got ",
                 at.slot->kind() == Quantizable::Kind::kEmbedding
                     ? "an embedding, which reads ids"
                     : concat("recipe ", at.slot->quant().recipe, ", compute: ", enum_name(at.slot->quant().compute)),
                 ", while '", integer->layer, "' has compute: integer"),
          ErrorCode::kUsage);
    if (own != rule)
      throw LayerError(at.layer,
                       concat("[compute: integer] layers round alike: got output_rounding ", enum_name(own),
                              ", while '", integer->layer, "' has ", enum_name(rule)),
                       ErrorCode::kUsage);
  }
  return rule;
}

Graph deployed(Module& model, const Form& input) {
  const std::optional<OutputRounding> rule = integer_rule(model);
  Graph graph = lowered(model, input);
  return rule ? integer_graph(graph, *rule) : graph;
}

}  // namespace bitgrad::inference
