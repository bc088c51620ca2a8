#include "export/targets.h"

#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"

namespace bitgrad {
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

}  // namespace bitgrad
