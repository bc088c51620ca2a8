// bitgrad export RUN_OR_FILE -o OUT.gguf|FOLDER [--format gguf|hf --family F --best --dry-run --force --json]: a
// language model as llama.cpp and Hugging Face's programs open it, and what becomes of each of its tensors.
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/train/interop.h"
#include "bitgrad/train/model_record.h"
#include "command.h"
#include "open_file.h"
#include "output_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kExport = "export";
constexpr std::string_view kGgufEnd = ".gguf";

enum class Format { kByEnding, kGguf, kHuggingFace };
struct ExportOptions {
  std::vector<std::string> plugins;
  std::string target, out;
  Format format = Format::kByEnding;
  ExportSpec spec;
  bool best = false, force = false, json = false;
};

std::string_view fate_name(ExportedTensor::Fate fate) {
  switch (fate) {
    case ExportedTensor::Fate::kExact:
      return "exact";
    case ExportedTensor::Fate::kRounded:
      return "rounded";
    case ExportedTensor::Fate::kZeros:
      return "zeros";
    case ExportedTensor::Fate::kRefused:
      return "refused";
  }
  return "?";
}

bool writes_gguf(const ExportOptions& o) {
  const bool named = o.out.ends_with(kGgufEnd);
  require(o.format != Format::kHuggingFace || !named, kExport, "--format hf: got -o ", o.out,
          ", expected a folder: a name that does not end in .gguf");
  require(o.format != Format::kGguf || named, kExport, "--format gguf: got -o ", o.out,
          ", expected a name that ends in .gguf");
  return named;
}

std::string row_note(const ExportedTensor& t) {
  if (t.fate != ExportedTensor::Fate::kRounded) return t.reason;
  return concat(t.reason, ", off by at most ", short_number(t.error), " of the largest value");
}

void print_report(const ExportReport& report) {
  std::vector<std::vector<std::string>> lines{{"tensor", "shape", "type", "fate", "from", "note"}};
  for (const ExportedTensor& t : report.tensors)
    lines.push_back({t.name, concat(t.shape), t.type.empty() ? "-" : t.type, std::string(fate_name(t.fate)),
                     t.parameter.empty() ? "-" : t.parameter, row_note(t)});
  print_table(std::cout, lines);
}

Json json_of(const ExportReport& report, const ExportOptions& o, bool gguf) {
  Json tensors = Json::array();
  for (const ExportedTensor& t : report.tensors)
    tensors.push_back({{"name", t.name},
                       {"parameter", t.parameter.empty() ? Json(nullptr) : Json(t.parameter)},
                       {"shape", t.shape.dims()},
                       {"type", t.type},
                       {"fate", std::string(fate_name(t.fate))},
                       {"error", t.error},
                       {"reason", t.reason}});
  return {{"format", gguf ? "gguf" : "hf"},
          {"family", report.family},
          {"out", o.spec.dry_run ? Json(nullptr) : Json(o.out)},
          {"tensors", tensors}};
}

void print_counts(const ExportReport& report, const OpenedFile& file, const ExportOptions& o) {
  int64_t counts[4] = {};
  for (const ExportedTensor& t : report.tensors) ++counts[static_cast<size_t>(t.fate)];
  std::cout << '\n'
            << file.path << " as " << report.family << ": " << counts[0] << " tensors exact, " << counts[1]
            << " rounded, " << counts[2] << " zeros, " << counts[3] << " refused";
  if (o.spec.dry_run)
    std::cout << "; nothing was written\n";
  else
    std::cout << " -> " << o.out << '\n';
}

int run_export(const ExportOptions& o) {
  const bool gguf = writes_gguf(o);
  load_named_plugins(o.plugins);
  require(!o.best || file_system().is_directory(o.target), kExport,
          "--best selects a checkpoint of a run folder: got '", o.target, "', which is not one");
  const OpenedFile file = open_file(o.best ? o.target + "/best.safetensors" : o.target);
  if (gguf && !o.spec.dry_run) require_writable(o.out, o.force, {file.path});
  const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(file.header, file.path);
  const std::unique_ptr<Learner> learner = load_file(file, nullptr);
  if (file.kind == "checkpoint") learner->convert();
  const std::optional<ModelRecord> record = model_record(*learner);
  require(record.has_value(), kExport, file.path,
          ": its layers are not described: only the program that made them "
          "can export them");
  const ExportReport report =
      (gguf ? export_gguf : export_hugging_face)(learner->model(), record->model, tokenizer.get(), o.out, o.spec);
  if (o.json) {
    std::cout << json_of(report, o, gguf).dump() << '\n';
    return 0;
  }
  print_report(report);
  print_counts(report, file, o);
  return 0;
}

}  // namespace

Run setup_export(Arguments& args) {
  auto o = std::make_shared<ExportOptions>();
  add_plugin_option(args, o->plugins);
  args.option("target", o->target, "run folder (its last checkpoint), checkpoint or converted model").required();
  args.option("-o,--out", o->out, "the file to write, NAME.gguf, or a folder for Hugging Face's programs").required();
  args.choice("--format", o->format, {{"gguf", Format::kGguf}, {"hf", Format::kHuggingFace}},
              "as the end of the name says, when it is left out");
  args.option("--family", o->spec.family, "gpt2, llama, qwen2 or bitnet; left out: the one that the layers ask for");
  args.flag("--best", o->best, "best.safetensors of the run folder");
  args.flag("--dry-run", o->spec.dry_run, "what becomes of each tensor; write nothing");
  args.flag("--force", o->force, "overwrite an existing file");
  args.flag("--json", o->json, "one JSON object on standard output");
  return [o] { return run_export(*o); };
}

}  // namespace bitgrad::cli
