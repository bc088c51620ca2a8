#include "export/targets.h"

#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/run/trainer.h"

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

bool has_option(const ExportTarget& target, std::string_view option) {
  return concat(target.options, ' ').find(concat(option, ' ')) != std::string::npos;
}

// Options that the target would ignore.
void check_options(const ExportTarget& target, const ExportSpec& spec) {
  const std::pair<std::string_view, bool> given[] = {{"--family", !spec.family.empty()},
                                                     {"--form", !spec.form.empty()},
                                                     {"--opset", spec.opset != 0},
                                                     {"--dequantize", spec.dequantize},
                                                     {"--with-normalization", spec.with_normalization}};
  for (const auto& [option, is_given] : given) {
    if (!is_given || has_option(target, option)) continue;
    std::string targets;
    for (const ExportTarget& t : export_targets())
      if (has_option(t, option)) targets += concat(' ', t.name);
    fail(kExportChoice, option, ": format ", target.name, " has no use for it. It is an option of", targets,
         ": leave it out");
  }
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
#define BITGRAD_EXPORT(name, ending, companion, options, function, doc) \
  {name, ending, companion, options, doc, function},
#include "export/targets.inc"
#undef BITGRAD_EXPORT
  };
  return targets;
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
  check_options(target, spec);
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

}  // namespace bitgrad
