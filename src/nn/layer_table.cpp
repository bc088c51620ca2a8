#include "bitgrad/nn/layer_table.h"

#include <algorithm>
#include <ostream>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "nn/activation_quantizer.h"
#include "tensor/narrow.h"

namespace bitgrad {

// ---- print_quantization: the quantization of a model, one layer per line

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

// What the values of weights that are floats are held in.
DType float_dtype(const Parameter& weight) {
  const Tensor narrow = weight.value().defined() ? detail::narrow_of(weight.value()) : Tensor();
  return narrow.defined() ? narrow.dtype() : weight.spec().dtype();
}

// E.g. "int4 symmetric group(32)", "fp32", "bint1 binary tensor (off)".
std::string weight_text(const Quantizable& slot) {
  const Parameter& weight = slot.weight();
  std::string text = weight.low_bit() ? describe(*weight.spec().quant) : concat(float_dtype(weight));
  if (!slot.on() && slot.quant().weight) text += " (off)";
  if (slot.on() && slot.mode().quantization == QuantSwitch::kFrozen && weight.low_bit()) text += " (frozen)";
  if (slot.adapter() != nullptr) text += concat(" + rank ", slot.adapter()->adapter_spec().rank);
  return text;
}

// E.g. "int8 affine token", "as is".
std::string input_text(const Quantizable& slot) {
  return slot.input_quantizer() != nullptr ? describe(*slot.input_quantizer()) : "as is";
}

// Bytes of codes and scales, or of float values, as in a file.
int64_t file_bytes(const Parameter& weight) {
  const auto& quant = weight.value().quant();
  return weight.shape().rows() * row_bytes_file(float_dtype(weight), weight.shape().cols()) +
         (quant ? quant->bytes() : 0);
}

int64_t memory_bytes(const Parameter& weight) {
  const Tensor& value = weight.value();
  if (!value.defined()) return 0;
  int64_t bytes = (value.present() ? value.bytes() : 0) + (value.quant() ? value.quant()->bytes() : 0);
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
  row.weight = weight_text(slot);
  row.input = input_text(slot);
  row.range = range_of(weight);
  row.compute = std::string(enum_name(slot.on() ? slot.quant().compute : Compute::kPacked));
  row.bytes = slot.weight_owner() == nullptr ? file_bytes(weight) : 0;
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

// ---- layer_table

std::string grouped_digits(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3 && text[at - 4] != '-';) text.insert(at -= 3, 1, ',');
  return text;
}
namespace {

struct TableLine {
  LayerRow row;
  int64_t times = 1;  // consecutive equal layers
  int64_t more = 0;   // further layers merged into this line
};
using TableLines = std::vector<TableLine>;

bool is_input_of(const Module& child, const std::vector<Quantizable*>& slots) {
  return std::any_of(slots.begin(), slots.end(), [&](const Quantizable* s) { return s->input_quantizer() == &child; });
}

// Parameters of the module, excluding those of `inner`, which have lines of their own.
std::vector<Parameter*> parameters_without(Module& module, const std::vector<Module*>& inner) {
  std::set<const Parameter*> theirs;
  for (Module* child : inner)
    for (const Parameter* p : child->parameters()) theirs.insert(p);
  std::vector<Parameter*> own = module.parameters();
  std::erase_if(own, [&](const Parameter* p) { return theirs.contains(p); });
  return own;
}

LayerRow row_of(const Module& module, const std::vector<Quantizable*>& slots, const std::vector<Parameter*>& own) {
  LayerRow row;
  row.layer = module.path();
  row.kind = std::string(module.kind());
  for (const Quantizable* slot : slots) {
    const std::string weight = weight_text(*slot);
    if (row.weight.find(weight) == std::string::npos) row.weight += (row.weight.empty() ? "" : ", ") + weight;
    if (row.input.empty()) row.input = input_text(*slot);
  }
  if (module.output_form()) {
    row.output = module.output_form()->sample;
    row.dtype = module.output_form()->dtype;
    row.macs = module.macs(*module.input_form(), *module.output_form());
  }
  for (const Parameter* p : own) {
    row.parameters += p->shape().numel();
    if (p->value().defined()) row.bytes += file_bytes(*p);
  }
  return row;
}

// Lines of consecutive children that are equal except for their paths.
struct Group {
  TableLines lines;
  std::string path, last;  // path of the first child; name of the last one
  int64_t times = 0;

  size_t name_at() const { return path.rfind('.') + 1; }
  std::string below(const TableLine& line) const { return line.row.layer.substr(path.size()); }
  bool equals(const Group& other) const {
    return !lines.empty() && std::equal(lines.begin(), lines.end(), other.lines.begin(), other.lines.end(),
                                        [&](const TableLine& a, const TableLine& b) {
                                          LayerRow row = b.row;
                                          row.layer = a.row.layer;
                                          return a.row == row && below(a) == other.below(b) && a.times == b.times;
                                        });
  }
  void move_to(TableLines& out) {
    for (TableLine& line : lines) {
      if (times > 1)
        line.row.layer = concat(path.substr(0, name_at()), '{', path.substr(name_at()), "..", last, '}', below(line));
      line.times *= times;
      out.push_back(std::move(line));
    }
  }
};

// `folds`: merge consecutive equal children into one group.
TableLines lines_of(Module& module, bool folds) {
  const auto* const list = dynamic_cast<const Sequential*>(&module);
  if (list != nullptr && list->size() == 0) return {};  // the identity, e.g. an empty branch
  std::vector<Quantizable*> slots;
  for (Quantizable* slot : module.quantizables())
    if (&slot->owner() == &module) slots.push_back(slot);
  std::vector<Module*> inner;
  for (Module* child : module.children())
    if (!is_input_of(*child, slots)) inner.push_back(child);
  const std::vector<Parameter*> own = parameters_without(module, inner);
  TableLines out;
  if (inner.empty() || !slots.empty() || !own.empty()) out.push_back({row_of(module, slots, own)});
  Group group;
  for (Module* child : inner) {
    const std::string& path = child->path();
    Group next{lines_of(*child, folds), path, path.substr(path.rfind('.') + 1), 1};
    if (folds && group.equals(next)) {
      ++group.times;
      group.last = next.last;
      continue;
    }
    group.move_to(out);
    group = std::move(next);
  }
  group.move_to(out);
  return out;
}

// Merges layers without products that keep the shape into the line above.
TableLines shortened(const TableLines& lines) {
  TableLines out;
  for (const TableLine& line : lines) {
    const LayerRow& row = line.row;
    const bool joins = !out.empty() && row.macs == 0 && row.weight.empty() && row.output == out.back().row.output &&
                       line.times == out.back().times;
    if (!joins) {
      out.push_back(line);
      continue;
    }
    TableLine& above = out.back();
    above.row.dtype = row.dtype;
    above.row.parameters += row.parameters;
    above.row.bytes += row.bytes;
    above.more += 1;
  }
  return out;
}

using TableCells = std::vector<std::string>;

TableCells cells_of(const TableLine& line, bool counted) {
  const LayerRow& row = line.row;
  std::string dims;
  for (const int64_t size : row.output.dims()) dims += concat(dims.empty() ? "" : ",", size);
  TableCells cells{row.layer,
                   concat(row.kind, line.more > 0 ? concat(" +", line.more) : ""),
                   concat('[', dims, "] ", row.dtype),
                   row.weight,
                   row.input,
                   grouped_digits(row.parameters),
                   grouped_digits(row.bytes),
                   grouped_digits(row.macs)};
  if (counted) cells.insert(cells.begin() + 1, line.times > 1 ? concat("x ", line.times) : "");
  return cells;
}

}  // namespace

LayerTable layer_table(Module& model) {
  LayerTable table;
  for (TableLine& line : lines_of(model, /*folds=*/false)) {
    table.parameters += line.row.parameters;
    table.bytes += line.row.bytes;
    table.macs += line.row.macs;
    table.rows.push_back(std::move(line.row));
  }
  return table;
}

std::string to_json(const LayerTable& table) {
  Json j{{"parameters", table.parameters}, {"bytes", table.bytes}, {"macs", table.macs}, {"rows", Json::array()}};
  for (const LayerRow& row : table.rows)
    j["rows"].push_back(Json{{"layer", row.layer},
                             {"kind", row.kind},
                             {"output", row.output.dims()},
                             {"dtype", std::string(row.dtype.name())},
                             {"weight", row.weight},
                             {"input", row.input},
                             {"parameters", row.parameters},
                             {"bytes", row.bytes},
                             {"macs", row.macs}});
  return j.dump();
}

void print_layer_table(std::ostream& out, Module& model, int64_t max_lines) {
  TableLines lines = lines_of(model, /*folds=*/true);
  const auto too_long = [&] { return static_cast<int64_t>(lines.size()) > max_lines; };
  if (too_long()) lines = shortened(lines);
  const auto any = [&](auto has) { return std::any_of(lines.begin(), lines.end(), has); };
  const bool counted = any([](const TableLine& line) { return line.times > 1; });
  const bool joined = any([](const TableLine& line) { return line.more > 0; });
  TableCells head{"layer", "kind", "output of a sample", "weights", "input", "parameters", "bytes", "MACs"};
  if (counted) head.insert(head.begin() + 1, "times");
  std::vector<TableCells> cells{head};
  const size_t size = lines.size(), most = static_cast<size_t>(std::max<int64_t>(max_lines, 3));
  const size_t left_out = size > most ? size - most + 1 : 0, first = left_out > 0 ? most / 2 : size;
  for (size_t i = 0; i < size; ++i) {
    if (i == first) cells.push_back({concat("... ", left_out, " lines")});
    if (i < first || i >= first + left_out) cells.push_back(cells_of(lines[i], counted));
  }
  out << text_table(cells);
  if (counted) out << "x N: N equal layers in a row, each with these numbers\n";
  if (joined) out << "+N: with the N layers that follow, which multiply nothing and keep the shape\n";
  const LayerTable all = layer_table(model);
  out << "total: " << grouped_digits(all.parameters) << " parameters, " << grouped_digits(all.bytes) << " bytes, "
      << grouped_digits(all.macs) << " MACs per sample\n";
}

}  // namespace bitgrad
