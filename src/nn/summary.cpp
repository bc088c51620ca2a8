// Prints the quantization of a model, one layer per line.
#include <algorithm>
#include <ostream>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/prepare.h"
#include "nn/activation_quantizer.h"
#include "nn/summary.h"

namespace bitgrad {
namespace {

std::string describe(const QuantSpec& spec) {
  return concat(spec.dtype, ' ', spec.scheme, spec.alpha ? " alpha" : "", ' ', spec.granularity);
}

std::string describe(const ActivationQuantizer& input) {
  std::string text = describe(input.quant().spec);
  if (input.observer() != nullptr) text += concat(' ', input.observer()->name());
  if (input.quant_mode().quantization == QuantSwitch::kOff) text += " (off)";
  return text;
}

// Codes and scales, e.g. "[-8, 7] x 0.0021 .. 0.0113".
std::string range_of(const Parameter& weight) {
  if (!weight.low_bit()) return "";
  const DTypeInfo& info = weight.spec().dtype().info();
  double lo = static_cast<double>(info.qmin), hi = static_cast<double>(info.qmax);
  if (!info.levels.empty()) {
    const auto [min, max] = std::minmax_element(info.levels.begin(), info.levels.end());
    lo = static_cast<double>(*min);
    hi = static_cast<double>(*max);
  } else if (weight.spec().quant) {
    const CodeRange codes = find_quantizer(weight.spec().quant->scheme).code_range(*weight.spec().quant);
    lo = static_cast<double>(codes.lo);
    hi = static_cast<double>(codes.hi);
  }
  TextWriter out;
  out.precision(3);
  out << '[' << lo << ", " << hi << ']';
  const auto& params = weight.value().quant();
  if (!params || !params->scale || params->scale->numel() == 0) return out.str();
  const Tensor scale = params->scale->on_host();
  const float* s = scale.as<float>();
  const auto [min, max] = std::minmax_element(s, s + params->scale->numel());
  out << " x " << *min;
  if (*max != *min) out << " .. " << *max;
  return out.str();
}

int64_t memory_bytes(const Parameter& weight) {
  const Tensor& value = weight.value();
  if (!value.defined()) return 0;
  int64_t bytes = value.bytes() + (value.quant() ? value.quant()->bytes() : 0);
  for (const Tensor& derived : value.attached_layouts()) bytes += derived.bytes();
  if (weight.low_bit() && weight.has_master()) bytes += weight.master().bytes();
  return bytes;
}

LayerSummary summarize_slot(const std::string& layer, const Quantizable& slot) {
  const Parameter& weight = slot.weight();
  LayerSummary row;
  row.layer = layer;
  row.kind = std::string(slot.owner().kind());
  row.recipe = slot.quant().recipe;
  row.shape = weight.shape();
  row.weight = detail::weight_text(slot);
  row.input = detail::input_text(slot);
  row.range = range_of(weight);
  row.compute = std::string(enum_name(slot.on() ? slot.quant().compute : Compute::kPacked));
  row.bytes = slot.weight_owner() == nullptr ? detail::file_bytes(weight) : 0;
  row.resident_bytes = slot.weight_owner() == nullptr ? memory_bytes(weight) : 0;
  return row;
}

using Line = std::vector<std::string>;

// Adds the lines of a module and its descendants: one per weight, taken from `next`, and one per quantize layer.
void add_lines(Module& module, const std::set<const Module*>& inputs, std::vector<LayerSummary>::const_iterator& next,
               std::vector<Line>& table) {
  for (const Quantizable* slot : module.quantizables()) {
    if (&slot->owner() != &module) break;  // own slots come first
    const LayerSummary& row = *next++;
    table.push_back({row.layer, row.kind, concat(row.shape), row.recipe, row.weight, row.input, row.compute, row.range,
                     concat(row.bytes)});
  }
  const auto* quantizer = dynamic_cast<const ActivationQuantizer*>(&module);
  if (quantizer != nullptr && !inputs.contains(quantizer))
    table.push_back({module.path(), "quantize", "", "", "", describe(*quantizer), "", "", ""});
  for (Module* child : module.children()) add_lines(*child, inputs, next, table);
}

}  // namespace

namespace detail {

std::string weight_text(const Quantizable& slot) {
  const Parameter& weight = slot.weight();
  std::string text = weight.low_bit() ? describe(*weight.spec().quant) : "fp32";
  if (!slot.on() && slot.quant().weight) text += " (off)";
  if (slot.on() && slot.mode().quantization == QuantSwitch::kFrozen && weight.low_bit()) text += " (frozen)";
  if (slot.adapter() != nullptr) text += concat(" + rank ", slot.adapter()->adapter_spec().rank);
  return text;
}

std::string input_text(const Quantizable& slot) {
  return slot.input_quantizer() != nullptr ? describe(*slot.input_quantizer()) : "as is";
}

int64_t file_bytes(const Parameter& weight) {
  const auto& quant = weight.value().quant();
  return weight.shape().rows() * row_bytes_file(weight.spec().dtype(), weight.shape().cols()) +
         (quant ? quant->bytes() : 0);
}

}  // namespace detail

std::vector<LayerSummary> summarize(Module& model) {
  std::vector<LayerSummary> rows;
  for (const Module::QuantizableAt& at : model.quantizables_at(kModelRoot))
    rows.push_back(summarize_slot(at.layer, *at.slot));
  return rows;
}

void print_quantization(std::ostream& out, Module& model) {
  std::vector<Line> table{
      {"layer", "kind", "shape", "recipe", "weight", "input", "compute", "codes x scales", "bytes"}};
  const std::vector<LayerSummary> rows = summarize(model);
  std::set<const Module*> inputs;
  int64_t bytes = 0;
  for (const Quantizable* slot : model.quantizables()) inputs.insert(slot->input_quantizer());
  for (const LayerSummary& row : rows) bytes += row.bytes;
  auto next = rows.begin();
  add_lines(model, inputs, next, table);
  out << text_table(table) << "weights: " << bytes << " bytes\n";
}

}  // namespace bitgrad
