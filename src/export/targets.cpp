#include "export/targets.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/quant/fixed_softmax.h"
#include "bitgrad/run/trainer.h"
#include "interop/decoder_files.h"
#include "nn/activation_quantizer.h"

namespace bitgrad {

namespace {

constexpr std::string_view kExportChoice = "export";

std::string known_targets() {
  return joined(export_targets(), ", ", [](const ExportTarget& t) {
    return concat(t.name, " (", t.ending.empty() ? "a folder" : t.ending, ')');
  });
}

bool has_known_ending(const std::string& path) {
  for (const ExportTarget& t : export_targets())
    if (!t.ending.empty() && path.ends_with(t.ending)) return true;
  return false;
}

bool fits(const ExportTarget& target, const std::string& path) {
  return target.ending.empty() ? !has_known_ending(path) : path.ends_with(target.ending);
}

// Options that the target would ignore.
void check_options(const ExportTarget& target, const ExportSpec& spec) {
  const auto check = [&](std::string_view option, const auto& member, const char*) {
    if (member == std::decay_t<decltype(member)>() || interop::has_word(target.options, option)) return;
    std::string targets;
    for (const ExportTarget& t : export_targets())
      if (interop::has_word(t.options, option)) targets += concat(' ', t.name);
    fail(kExportChoice, option, ": format ", target.name, " has no use for it. It is an option of", targets,
         ": leave it out");
  };
  visit_export_options(check, spec);
}

template <typename T>
std::string value_text(const T& x) {
  if constexpr (NamedEnum<T>)
    return std::string(enum_name(x));
  else if constexpr (std::is_same_v<T, bool>)
    return x ? "true" : "false";
  else
    return concat(x);
}
template <typename T>
std::string value_text(const std::optional<T>& x) {
  return x ? value_text(*x) : "none";
}

// The options of quantization of a weight or an input that the target's files say nothing of, a line each.
std::string not_carried(const ExportTarget& target, const std::string& where, const QuantSpec& spec) {
  std::string out;
  const QuantSpec plain;
  const auto check = [&](std::string_view option, const auto& value, const auto& otherwise) {
    if (!(value == otherwise) && !interop::has_word(target.carries, option))
      out += concat("\n  ", where, ": ", option, ": ", value_text(value));
  };
#define BITGRAD_QUANT_OPTION(member, ...) check(#member, spec.member, plain.member);
#include "bitgrad/quant/scheme_fields.inc"
  return out;
}

std::string not_carried(const ExportTarget& target, Module& module) {
  std::string out;
  if (const auto* const inputs = dynamic_cast<ActivationQuantizer*>(&module))
    out += not_carried(target, inputs->path(), inputs->quant().spec);
  for (Module* const child : module.children()) out += not_carried(target, *child);
  return out;
}

void check_carried(const ExportTarget& target, Module& model) {
  std::string wrong = not_carried(target, model);
  for (const Module::QuantizableAt& at : model.quantizables_at(kModelRoot)) {
    const LayerQuant& quant = at.slot->quant();
    // A new member does not compile here: see that `carries` can speak of it, or that it is one of training alone.
    [[maybe_unused]] const auto& [recipe, weight, input, observer, compute, rounding, master, grad, clamp, input_grad,
                                  learned] = quant;
    if (target.holds == ExportTarget::Holds::kGraph && compute == Compute::kInteger &&
        !interop::has_word(target.carries, enum_name(compute)))
      wrong += concat("\n  ", at.layer, ": compute: ", enum_name(compute));
    if (quant.weight) wrong += not_carried(target, concat(at.layer, '.', at.slot->name()), *quant.weight);
  }
  require(wrong.empty(), kExportChoice, "format ", target.name,
          " does not carry these options of quantization:", wrong);
}

}  // namespace

ExportReport export_target_gguf(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  return export_gguf(*source.model, *source.spec, source.tokenizer, path, spec);
}
ExportReport export_target_hugging_face(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  return export_hugging_face(*source.model, *source.spec, source.tokenizer, path, spec);
}

const std::vector<ExportTarget>& export_targets() {
  static const std::vector<ExportTarget> targets{
#define BITGRAD_EXPORT(name, ending, companion, holds, options, carries, function, doc) \
  {name, ending, companion, ExportTarget::Holds::holds, options, carries, doc, function},
#include "export/targets.inc"
#undef BITGRAD_EXPORT
  };
  return targets;
}

ExportReport ExportTarget::write(const ExportSource& source, const std::string& path, const ExportSpec& spec) const {
  check_options(*this, spec);
  check_carried(*this, *source.model);
  const DeviceGuard host(Device::cpu());
  return function(source, path, spec);
}

const ExportTarget& choose_export_target(const std::string& path, const std::string& format) {
  for (const ExportTarget& t : export_targets()) {
    if (format.empty() ? fits(t, path) : t.name == format) {
      require(fits(t, path), kExportChoice, "--format ", t.name, ": got -o ", path, ", expected a ",
              t.ending.empty() ? "folder: a name without the ending of another format"
                               : concat("name that ends in ", t.ending));
      const size_t slash = path.find_last_of('/'), dot = path.find_last_of('.');
      const bool other = format.empty() && t.ending.empty() && dot != std::string::npos &&
                         (slash == std::string::npos || dot > slash + 1) && dot + 1 < path.size();
      require(!other, kExportChoice, "-o ", path, ": no format has this ending. Known: ", known_targets(),
              ". A folder with such a name needs --format hf");
      return t;
    }
  }
  fail(kExportChoice, "--format: got '", format, "', expected one of: ", known_targets());
}

ExportReport export_file(const OpenedFile& file, Learner& learner, const ExportTarget& target, const std::string& path,
                         const ExportSpec& spec) {
  const std::optional<ModelRecord> record = model_record(learner);
  require(record.has_value(), kExportChoice, file.path,
          ": its layers are not described: only the program that made them can export them");
  const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(file.header, file.path);
  ExportSpec full = spec;
  full.origin = file.header.origin;
  ExportSource source{&learner.model(), &record->model, tokenizer.get(), file.config.run.name};
  const DataSection& data = file.config.data;
  source.affine = data.affine;
  source.normalize = data.normalize;
  source.class_names = data.class_names;
  source.table = table_of(file.header, file.path);
  return target.write(source, path, full);
}

namespace {

std::string listed(const std::vector<float>& x) { return concat('[', joined(x), ']'); }

std::string layout_of(const Form& input) {
  const Shape& sample = input.sample;
  const std::string shape = concat("[N,", concat(sample).substr(1));
  if (sample.rank() == 3) return shape + ": samples, rows, columns, channels";
  if (sample.rank() == 2) return shape + ": samples, rows, columns";
  if (input.dtype != dtypes::fp32) return shape + ": samples, positions";
  return shape + ": samples, features";
}

// data.affine and data.normalize apply to bytes divided by 255, and to numbers as they are.
std::string scaling_of(const ExportSource& source, const ExportSpec& spec, const Form& input) {
  if (input.dtype != dtypes::fp32) return concat("ids of tokens, 0 to ", input.ids - 1);
  const bool none = !source.normalize.given() && source.affine == std::array<float, 2>{1.0f, 0.0f};
  std::string formula = "x";
  if (source.normalize.given())
    formula = concat("(x - mean) / std of each channel, mean ", listed(source.normalize.mean), ", std ",
                     listed(source.normalize.std));
  else if (!none)
    formula = concat(source.affine[0], " * x ", source.affine[1] < 0 ? "- " : "+ ", std::abs(source.affine[1]));
  if (spec.with_normalization) return concat("bytes (UINT8); the file itself computes ", formula, ", x = byte / 255");
  const bool table = source.table != nullptr;
  return concat(
      formula, table ? ", x: the number of the table" : ", x = byte / 255 for bytes (pictures), else the number itself",
      none ? "" : ". The file does not do this (--with-normalization does, from bytes)");
}

// Of a table: its features in their order, what stands in place of missing values (of one-hot features: 0), and the
// names whose number is a feature. JSON by key.
std::vector<std::pair<std::string, std::string>> table_facts(const ExportSource& source,
                                                             const inference::Graph& graph) {
  if (source.table == nullptr || source.table->features() != graph[0].form.sample.numel()) return {};
  Json missing = Json::object(), names = Json::object();
  for (const TableColumn& column : source.table->columns) {
    if (column.use != TableColumn::Use::kFeature || column.one_hot) continue;
    if (column.fill) missing[column.name] = *column.fill;
    if (!column.categories.empty()) names[column.name] = column.categories;
  }
  std::vector<std::pair<std::string, std::string>> out{{"features", Json(feature_names(*source.table)).dump()}};
  if (missing.size() > 0) out.emplace_back("missing", missing.dump());
  if (names.size() > 0) out.emplace_back("names", names.dump());
  return out;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> input_metadata(const ExportSource& source, const ExportSpec& spec,
                                                                const inference::Graph& graph) {
  std::vector<std::pair<std::string, std::string>> out{
      {"bitgrad.input.layout", layout_of(graph[0].form)},
      {"bitgrad.input.scaling", scaling_of(source, spec, graph[0].form)}};
  for (const auto& [key, text] : table_facts(source, graph)) out.emplace_back("bitgrad.input." + key, text);
  if (!source.class_names.empty()) out.emplace_back("bitgrad.class_names", Json(source.class_names).dump());
  return out;
}

void note_inputs(ExportReport& report, const ExportSource& source, const ExportSpec& spec,
                 const inference::Graph& graph) {
  report.facts.emplace_back("input", concat(layout_of(graph[0].form), "; ", scaling_of(source, spec, graph[0].form)));
  for (const auto& [key, text] : table_facts(source, graph)) report.facts.emplace_back(key, printable(text));
  if (!source.class_names.empty()) report.facts.emplace_back("classes", printable(Json(source.class_names).dump()));
}

void note_codes(ExportReport& report, const inference::Graph& graph, const ExportSpec& spec) {
  const auto text = [](const inference::CodeScale& c) { return concat(c.scale, " * (code - ", c.zero, ")"); };
  const std::string where = spec.with_normalization ? spec.float_io ? "inside; " : "int8 out; "
                            : spec.float_io         ? "inside, made of floats in, and floats out are made of them; "
                                                    : "int8 in and out; ";
  report.facts.emplace_back(
      "codes", concat(where, "x = ", text(inference::code_scale(graph[1])), ", y = ", text(output_scale(graph, spec))));
}

inference::CodeScale output_scale(const inference::Graph& graph, const ExportSpec& spec) {
  const inference::Node& last = graph[graph[graph.output()].inputs[0]];
  if (!spec.softmax) return inference::code_scale(last);
  const int64_t n = last.form.features();
  require(n >= 2 && n <= kMostSoftmaxCodes, last.layer, "--softmax: got ", n, " outputs a row, expected 2 to ",
          kMostSoftmaxCodes, ", as many as its sums hold. Leave it out: the largest code is that of the class");
  const float scale = inference::code_scale(last).scale;
  require(scale > 0x1p-26f && scale < 16, last.layer, "--softmax: got outputs of scale ", scale,
          " per code, expected more than 2^-26 and below 16. Leave it out");
  return {kSoftmaxScale, kSoftmaxZero};
}

std::vector<int64_t> codes_of(const Tensor& weight) {
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(weight.numel()));
  std::vector<uint8_t> raw(static_cast<size_t>(weight.cols()));
  const bool levels = weight.dtype().kind() == DTypeKind::kCodebook;
  for (int64_t r = 0; r < weight.rows(); ++r) {
    unpack_row_raw(weight.dtype(), static_cast<const uint8_t*>(weight.data()) + r * weight.stride(), 0, weight.cols(),
                   raw.data());
    for (const uint8_t code : raw) out.push_back(levels ? code : decode_int(weight.dtype().info(), code));
  }
  return out;
}

Blocks blocks_of(const Tensor& w) {
  const ScaleMap map = w.scale_map();
  Blocks b;
  const bool by_row = map.row_step != 0, by_col = map.col_step != 0;
  require(map.row_group == 1 || !by_row, "onnx", "groups of rows");
  b.rows = by_row ? w.rows() : 1;
  b.block = by_col ? std::min(map.col_group, w.cols()) : w.cols();
  b.cols = (w.cols() + b.block - 1) / b.block;
  for (int64_t r = 0; r < b.rows; ++r)
    for (int64_t c = 0; c < b.cols; ++c) {
      const auto i = static_cast<size_t>(map.index(r, c * b.block));
      b.scale.push_back(map.scale ? map.scale[i] : 1.0f);
      if (map.zero) b.zero.push_back(map.zero[i]);
      if (map.offset) b.offset.push_back(map.offset[i]);
    }
  return b;
}

bool are_integers(DType d) {
  return d.is_code() && (d.kind() == DTypeKind::kInt || d.kind() == DTypeKind::kUint || d.kind() == DTypeKind::kSign);
}

}  // namespace bitgrad
