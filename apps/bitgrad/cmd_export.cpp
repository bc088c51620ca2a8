// bitgrad export RUN_OR_FILE -o OUT [--format F --form F --opset N --family F --best --last --dry-run --force --json]:
// writes a model as a file of another program (export/export.h), and reports what becomes of each tensor and layer.
#include <iostream>
#include <type_traits>

#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/export/export.h"
#include "check_export.h"
#include "command.h"
#include "open_file.h"
#include "output_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kExport = "export";

struct ExportOptions {
  std::string out, format;
  ExportSpec spec;
  ModelChoice choice;
  bool force = false, json = false, check = false;
  int64_t samples = 0;
};

std::string row_note(const ExportedTensor& t) {
  if (t.fate != ExportedTensor::Fate::kRounded) return t.reason;
  return concat(t.reason, ", off by at most ", short_number(t.error), " of the largest value");
}

std::string row_note(const ExportedLayer& l) {
  return l.fate == ExportedTensor::Fate::kRounded ? concat(l.reason, ": ", short_number(l.error)) : l.reason;
}

void print_report(const ExportReport& report) {
  std::vector<std::vector<std::string>> lines{{"tensor", "shape", "type", "fate", "from", "note"}};
  for (const ExportedTensor& t : report.tensors)
    lines.push_back({t.name, concat(t.shape), t.type.empty() ? "-" : t.type, std::string(enum_name(t.fate)),
                     t.parameter.empty() ? "-" : t.parameter, row_note(t)});
  if (!report.tensors.empty()) print_table(std::cout, lines);
  if (report.layers.empty()) return;
  if (!report.tensors.empty()) std::cout << '\n';
  lines = {{"layer", "operation", "fate", "note"}};
  for (const ExportedLayer& l : report.layers)
    lines.push_back({l.layer, l.operation, std::string(enum_name(l.fate)), row_note(l)});
  print_table(std::cout, lines);
}

Json json_of(const ExportReport& report, const ExportOptions& o, const ExportTarget& target) {
  Json tensors = Json::array();
  for (const ExportedTensor& t : report.tensors)
    tensors.push_back({{"name", t.name},
                       {"parameter", t.parameter.empty() ? Json(nullptr) : Json(t.parameter)},
                       {"shape", t.shape.dims()},
                       {"type", t.type},
                       {"fate", std::string(enum_name(t.fate))},
                       {"error", t.error},
                       {"reason", t.reason}});
  Json layers = Json::array();
  for (const ExportedLayer& l : report.layers)
    layers.push_back({{"layer", l.layer},
                      {"operation", l.operation},
                      {"fate", std::string(enum_name(l.fate))},
                      {"error", l.error},
                      {"reason", l.reason}});
  Json facts = Json::object();
  for (const auto& [name, text] : report.facts) facts[name] = text;
  return {{"format", std::string(target.name)},
          {"family", report.variant},
          {"out", o.spec.dry_run ? Json(nullptr) : Json(o.out)},
          {"facts", facts},
          {"flash_bytes", report.flash_bytes < 0 ? Json(nullptr) : Json(report.flash_bytes)},
          {"ram_bytes", report.ram_bytes < 0 ? Json(nullptr) : Json(report.ram_bytes)},
          {"tensors", tensors},
          {"layers", layers}};
}

template <typename Rows>
std::string counted(const Rows& rows, const char* what) {
  int64_t counts[4] = {};
  for (const auto& row : rows) ++counts[static_cast<size_t>(row.fate)];
  std::string out = concat(counts[0], ' ', what, " exact, ", counts[1], " rounded, ");
  if (counts[2] > 0) out += concat(counts[2], " zeros, ");
  return out + concat(counts[3], " refused");
}

void print_counts(const ExportReport& report, const OpenedFile& file, const ExportOptions& o) {
  std::cout << '\n' << printable(file.path) << " as " << report.variant << ": ";
  if (!report.tensors.empty()) std::cout << counted(report.tensors, "tensors");
  if (!report.layers.empty()) std::cout << (report.tensors.empty() ? "" : "; ") << counted(report.layers, "layers");
  if (o.spec.dry_run)
    std::cout << "; nothing was written\n";
  else
    std::cout << " -> " << printable(o.out) << '\n';
  for (const auto& [name, text] : report.facts) std::cout << name << ": " << printable(text) << '\n';
}

int run_export(const ExportOptions& o) {
  const ExportTarget& target = choose_export_target(o.out, o.format);
  const OpenedFile file = open_target(o.choice);
  if (target.ending.empty() && !o.spec.dry_run)
    require_writable_folder(o.out, "model.safetensors", o.force, {file.path});
  if (!target.ending.empty() && !o.spec.dry_run) {
    require_writable(o.out, o.force, {file.path});
    if (!target.companion.empty())
      require_writable(concat(o.out.substr(0, o.out.size() - target.ending.size()), target.companion), o.force);
  }
  require(!o.check || !o.spec.dry_run, kExport, "--check runs the file, which --dry-run does not write. Choose one");
  require(o.check || o.samples == 0, kExport, "--samples: it says how many samples --check draws. Add --check");
  require(o.samples >= 0, kExport, "--samples: got ", o.samples, ", expected at least 1");
  if (o.check) require_client(target);
  const std::unique_ptr<Learner> learner = load_file(file, nullptr);
  if (file.kind == SavedKind::kCheckpoint) learner->convert();
  const ExportReport report = export_file(file, *learner, target, o.out, o.spec);
  const std::string checked =
      o.check ? check_in_client(target, o.out, *learner, file, o.spec, o.samples == 0 ? 100 : o.samples)
              : std::string();
  if (o.json) {
    Json all = json_of(report, o, target);
    if (o.check) all["check"] = checked;
    std::cout << all.dump() << '\n';
    return 0;
  }
  print_report(report);
  print_counts(report, file, o);
  if (o.check) std::cout << checked << '\n';
  return 0;
}

}  // namespace

Run setup_export(Arguments& args) {
  auto o = std::make_shared<ExportOptions>();
  add_target(args, o->choice);
  args.option("-o,--out", o->out, "output file, whose extension selects the format; a folder for Hugging Face")
      .required();
  const std::string formats =
      joined(export_targets(), "; ", [](const ExportTarget& t) { return concat(t.name, ": ", t.doc); });
  args.option("--format", o->format, formats + ". Default: inferred from the extension");
  visit_export_options(
      [&](const char* name, auto& member, const char* text) {
        if constexpr (std::is_same_v<decltype(member), bool&>)
          args.flag(name, member, text);
        else
          args.option(name, member, text);
      },
      o->spec);
  add_choice_options(args, o->choice);
  args.flag("--dry-run", o->spec.dry_run, "show how each tensor would be written; write nothing");
  args.flag("--check", o->check,
            "run the exported file (ONNX Runtime, qonnx, LiteRT: Python of BITGRAD_PYTHON; C: CC) and compare");
  args.option("--samples", o->samples, "samples that --check draws; default: 100");
  args.flag("--force", o->force, "overwrite an existing file");
  args.flag("--json", o->json, "one JSON object on standard output");
  return [o] { return run_export(*o); };
}

}  // namespace bitgrad::cli
