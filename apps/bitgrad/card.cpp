#include "card.h"

#include <algorithm>
#include <map>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/export/export.h"
#include "bitgrad/io/sha256.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/run/trainer.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

constexpr int64_t kLongestYaml = int64_t{1} << 20;  // of train.yaml

// "59,008".
std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

// ---- texts of card.json in YAML and markdown

// A quoted scalar of the front matter; JSON's texts are YAML's.
std::string yaml_quoted(const std::string& text) { return Json(text).dump(); }

// A scalar of the front matter, quoted unless it is a word that YAML reads as a text in any place.
std::string yaml_scalar(const std::string& text) {
  constexpr std::string_view kOthers[] = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"};
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto inside = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  std::string low = text;
  for (char& c : low)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const bool plain = !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), inside) &&
                     std::find(std::begin(kOthers), std::end(kOthers), low) == std::end(kOthers);
  return plain ? text : yaml_quoted(text);
}

// The text as one line: markdown that it holds stays, but it opens no list, heading, quotation or HTML.
std::string markdown_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else
      out += c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  }
  const size_t first = out.find_first_not_of(' '), digits = out.find_first_not_of("0123456789", first);
  if (first == std::string::npos) return out;
  const bool numbered = digits != first && digits != std::string::npos && (out[digits] == '.' || out[digits] == ')');
  const std::string_view begins = "#>-+*=|~_`";
  // A code span may begin a line, a fence may not.
  const bool opens = begins.find(out[first]) != std::string_view::npos && (out[first] != '`' || out.starts_with("```"));
  if (numbered)
    out.insert(digits, "\\");
  else if (opens)
    out.insert(first, "\\");
  return out;
}

// The text in a cell of a table.
std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : markdown_line(text)) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

// The longest run of backticks.
size_t longest_backticks(const std::string& text) {
  size_t most = 0, run = 0;
  for (const char c : text) most = std::max(most, run = c == '`' ? run + 1 : 0);
  return most;
}

// Lines as a block of shell commands; its fence is longer than any in them.
std::string shell_block(const std::vector<std::string>& lines) {
  std::string fence = "```", out;
  for (const std::string& line : lines)
    if (const size_t run = longest_backticks(line); run >= fence.size()) fence.assign(run + 1, '`');
  for (const std::string& line : lines) out += concat(line, '\n');
  return concat(fence, "sh\n", out, fence, '\n');
}

std::string front_matter(const ShippedModel& model, const ModelFacts& f, const std::string& seed) {
  TextWriter out;
  out << "---\nlicense: apache-2.0\nlibrary_name: bitgrad\npipeline_tag: " << yaml_scalar(f.task) << "\ndatasets: ["
      << yaml_scalar(f.data_id) << "]\nmetrics: [" << yaml_scalar(f.metric)
      << "]\ntags: [bitgrad, quantization, low-bit]\nmodel-index:\n  - name: " << yaml_scalar(printable(model.name))
      << "\n    results:\n      - task: {type: " << yaml_scalar(f.task)
      << "}\n        dataset: {name: " << yaml_quoted(f.data_name) << ", type: " << yaml_scalar(f.data_id)
      << ", split: test}\n        metrics: [{type: " << yaml_scalar(f.metric) << ", value: " << f.value
      << "}]\nseed: " << seed << "\n---\n";
  return out.str();
}

// "59,008 of bint1, 9,216 of int8": the weights of layers, by dtype.
std::string bits_of(const std::vector<LayerSummary>& rows) {
  std::map<std::string, int64_t> counts;
  for (const LayerSummary& row : rows)
    if (!row.weight.empty()) counts[row.weight.substr(0, row.weight.find(' '))] += row.shape.numel();
  return joined(counts, ", ", [](const auto& c) { return concat(grouped(c.second), " of ", c.first); });
}

// The inputs that layers quantize themselves, by dtype: "int8, uint4"; empty: none.
std::string inputs_of(const std::vector<LayerSummary>& rows) {
  std::map<std::string, int64_t> kinds;
  for (const LayerSummary& row : rows)
    if (!row.input.empty() && row.input != "as is") ++kinds[row.input.substr(0, row.input.find(' '))];
  return joined(kinds, ", ", [](const auto& k) { return k.first; });
}

std::string c_file_of(const OpenedFile& file, Learner& learner, const std::string& name) {
  try {
    ExportSpec spec;
    spec.dry_run = true;
    const std::string path = name + ".c";
    const ExportReport report = export_file(file, learner, choose_export_target(path, "c"), path, spec);
    if (report.refused() || report.ram_bytes < 0) return "none: `bitgrad export` says which layers C cannot hold";
    return concat("RAM ", grouped(report.ram_bytes), " bytes of buffers, flash ", grouped(report.flash_bytes),
                  " bytes of constants (`bitgrad export models/", name, " -o ", path, "`)");
  } catch (const Error&) {
    return "none: `bitgrad export` says which layers C cannot hold";
  }
}

}  // namespace

std::string card_text(const ShippedModel& model) {
  const ModelFacts f = read_facts(model);
  const OpenedFile file = open_file(model.file(kModelFile));
  const std::unique_ptr<Learner> learner = load_file(file, nullptr);
  const std::vector<LayerSummary> rows = summarize(learner->model());
  int64_t fp32 = 0, bytes = 0;
  for (const LayerSummary& row : rows) fp32 += 4 * row.shape.numel(), bytes += row.bytes;
  const std::vector<uint8_t> yaml = read_file(model.file(kTrainFile), kLongestYaml);
  TextWriter out;
  out << front_matter(model, f, concat(file.header.seed)) << "\n# " << markdown_line(printable(model.name)) << "\n\n"
      << markdown_line(f.summary) << "\n\n";
  const std::vector<std::pair<const char*, std::string>> lines{
      {"metric", concat(f.metric, ' ', f.value, is_percentage(f.metric) ? " %" : "",
                        " on data.test (`bitgrad models check ", model.name, "`)")},
      {"data", concat(f.data_name, "; license: ", f.data_license, "; from ", f.data_source)},
      {"test data", f.data_record},
      {"weights", bits_of(rows)},
      {"inputs of layers", inputs_of(rows)},
      {"bytes", concat("file ", grouped(file_bytes(model.file(kModelFile))), ", of weights and scales ", grouped(bytes),
                       " (in fp32 ", grouped(fp32), ")")},
      {"C file", c_file_of(file, *learner, model.name)},
      {"seed", concat(file.header.seed)},
      {"configuration", concat(kTrainFile, ", SHA-256 ", sha256_hex(yaml.data(), yaml.size()))},
      {"license of the model", "Apache-2.0, as bitgrad"}};
  out << "| | |\n|---|---|\n";
  for (const auto& [what, text] : lines)
    if (!text.empty()) out << "| " << what << " | " << markdown_cell(text) << " |\n";
  const std::string use = f.task == "text-generation" ? concat("generate models/", model.name, " --prompt \"ROMEO:\"")
                                                      : concat("predict models/", model.name, " FILE");
  out << "\n## Made by\n\n"
      << shell_block(f.commands) << "\n## Use\n\n"
      << shell_block({concat("bitgrad eval models/", model.name), concat("bitgrad ", use)}) << "\n## Limits\n\n";
  for (const std::string& limit : f.limits) out << "- " << markdown_line(limit) << '\n';
  out << "\nThis card is generated: `bitgrad models card " << model.name << "`.\n";
  return out.str();
}

}  // namespace bitgrad::cli
