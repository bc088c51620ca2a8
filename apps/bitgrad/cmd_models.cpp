// bitgrad models [list | get NAME | card NAME | check NAME]: the models that ship with the program.
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/missing_data.h"
#include "card.h"
#include "changed_model.h"
#include "command.h"
#include "open_file.h"
#include "output.h"
#include "output_file.h"
#include "table.h"
#include "zoo.h"

namespace bitgrad::cli {
namespace {

struct ModelsOptions {
  std::string action = "list", name, out, data;
  bool force = false, json = false;
};

// A model whose files cannot be read does not hide the others: it has a line, and is named in the error at the end.
int list_models(bool json) {
  std::vector<std::vector<std::string>> table{{"model", "metric", "value", "bytes", "what"}};
  std::vector<std::string> sound, damaged;
  for (const std::string& name : shipped_names()) {
    const ShippedModel model = shipped_model(name);
    const std::string bytes = concat(file_bytes(model.file(kModelFile)));
    try {
      const ModelFacts f = read_facts(model);
      table.push_back({name, f.metric, f.value, bytes, f.summary});
      sound.push_back(name);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kData) throw;
      table.push_back({name, "-", "-", bytes, error.what()});
      damaged.push_back(name);
    }
  }
  if (table.size() == 1 && !json) {
    std::cout << "no models are installed at " << printable(models_folder()) << '\n';
    return 0;
  }
  print_texts(std::cout, table, json);
  if (!json && !sound.empty()) std::cout << "\nUse one as models/NAME: bitgrad eval models/" << sound[0] << '\n';
  if (!damaged.empty()) fail_with(ErrorCode::kData, "models", "the card cannot be read: ", joined(damaged));
  return 0;
}

// Copies all files of a folder. Links to folders may form a circle.
void copy_files(const std::string& from, const std::string& to, int depth) {
  constexpr int kDeepest = 16;
  require(depth <= kDeepest, "models", from, ": got folders more than ", kDeepest, " deep. Do links form a circle?");
  file_system().make_directories(to);
  for (const std::string& name : file_system().list(from)) {
    const std::string source = concat(from, '/', name), copy = concat(to, '/', name);
    if (file_system().is_directory(source)) {
      copy_files(source, copy, depth + 1);
      continue;
    }
    const std::vector<uint8_t> bytes = file_system().read(source);
    write_file_atomically(copy, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
}

bool is_inside(const std::string& path, const std::string& folder) {
  const std::filesystem::path inner = std::filesystem::weakly_canonical(path),
                              outer = std::filesystem::weakly_canonical(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

int get_model(const ModelsOptions& o) {
  const ShippedModel model = shipped_model(o.name);
  const std::string folder = o.out.empty() ? o.name : o.out;
  require_writable_folder(folder, kModelFile, o.force, {model.file(kModelFile)});
  require(!is_inside(folder, model.folder), "models", "get: '", folder, "' is inside ", model.folder,
          ", the folder to copy. Name another one");
  FileGroup together;
  copy_files(model.folder, folder, 0);
  together.commit();
  std::cout << "wrote " << printable(folder) << ": " << joined(file_system().list(folder)) << '\n';
  return 0;
}

// ---- check

constexpr int kNothingChecked = 77;  // exit code: all were skipped, as test programs say it

// What became of one model.
struct CheckedModel {
  std::string name, metric, card, measured;  // measured: with the digits of the card; empty: not measured
  std::string skipped, error;                // why it was not measured
  bool equal() const { return measured == card; }
};

std::string with_digits_of(const std::string& card, double value) {
  const size_t point = card.find('.');
  TextWriter out;
  out << std::fixed << std::setprecision(point == std::string::npos ? 0 : static_cast<int>(card.size() - point - 1))
      << value;
  return out.str();
}

// Whether a path that the data of an evaluation name does not exist. Data that exist and cannot be read are damaged.
bool data_are_absent(const RunConfig& config) {
  const DataSection& all = config.data;
  const DatasetConfig& section = all.test ? *all.test : all.valid ? *all.valid : all.train;
  const DatasetFormat& format = format_of(section);
  const auto is_path = [](const std::string& text, const std::vector<DatasetFormat::Word>& words) {
    return std::none_of(words.begin(), words.end(), [&](const auto& word) { return word.name == text; });
  };
  std::vector<std::string> paths{section.images, section.file, section.path};
  if (is_path(section.labels, format.label_words)) paths.push_back(section.labels);
  if (is_path(section.targets, format.target_words)) paths.push_back(section.targets);
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return !path.empty() && !file_system().exists(std::filesystem::path(all.root) / path);
  });
}

// Evaluates with the bits that all machines have. Throws Error for files that are damaged.
void check_model(const std::string& root, CheckedModel& out) {
  const ShippedModel model = shipped_model(out.name);
  const ModelFacts facts = read_facts(model);
  out.metric = facts.metric;
  out.card = facts.value;
  const ModelChoice choice{.target = model.file(kModelFile), .overrides = {"run.bits=strict"}, .data = root};
  const OpenedFile file = open_target(choice);
  apply_run_settings(file.config);
  const DeviceGuard guard(device_of(file.config));
  std::unique_ptr<Dataset> data;
  try {
    data = data_of(file, choice);
  } catch (const MissingData& error) {  // also one file of a folder that exists
    out.skipped = error.what();
    return;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kData || !data_are_absent(file.config)) throw;
    out.skipped = error.what();
    return;
  }
  if (const std::string record = to_string(samples_record(*data)); record != facts.data_record) {
    out.skipped =
        concat("these are other test data than the card's: got ", record, ", the card's are ", facts.data_record);
    return;
  }
  const Evaluation e = evaluate(*load_file(file, data.get()), *data, file.config.train.eval.batch);
  const std::optional<double> value = value_of(e.metrics, facts.metric);
  if (!value)
    fail_with(ErrorCode::kData, "models", model.file(kFactsFile), ": metric: got '", facts.metric,
              "', which this model does not have");
  out.measured = with_digits_of(facts.value, *value);
}

CheckedModel checked_model(const std::string& name, const std::string& root) {
  CheckedModel out{.name = name, .metric = {}, .card = {}, .measured = {}, .skipped = {}, .error = {}};
  try {
    check_model(root, out);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kData) throw;
    out.error = error.what();
  }
  return out;
}

std::string line_of(const CheckedModel& c) {
  if (!c.error.empty()) return concat(c.name, ": cannot be checked: ", c.error);
  if (!c.skipped.empty()) return concat(c.name, ": skipped: ", c.skipped);
  return concat(c.name, ": ", c.metric, ' ', c.measured, ", card ", c.card, ": ", c.equal() ? "equal" : "different");
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json json_of(const CheckedModel& c) {
  return {{"model", c.name},
          {"metric", text_or_null(c.metric)},
          {"card", text_or_null(c.card)},
          {"measured", text_or_null(c.measured)},
          {"skipped", text_or_null(c.skipped)},
          {"error", text_or_null(c.error)}};
}

int check_models(const ModelsOptions& o) {
  const std::vector<std::string> names = o.name == "all" ? shipped_names() : std::vector<std::string>{o.name};
  require(!names.empty(), "models", "no models are installed at ", models_folder());
  if (o.name != "all") shipped_model(o.name);
  Json all = Json::array();
  std::vector<std::string> different, damaged, skipped;
  for (const std::string& name : names) {
    const CheckedModel c = checked_model(name, o.data);
    text_output(o.json) << printable(line_of(c)) << std::endl;  // at once: each may take a minute
    all.push_back(json_of(c));
    if (!c.error.empty())
      damaged.push_back(name);
    else if (!c.skipped.empty())
      skipped.push_back(name);
    else if (!c.equal())
      different.push_back(name);
  }
  if (o.json) std::cout << all.dump(2) << '\n';
  const size_t bad = damaged.size() + different.size();
  text_output(o.json) << names.size() - bad - skipped.size() << " equal, " << different.size() << " different, "
                      << damaged.size() << " damaged, " << skipped.size() << " skipped\n";
  if (bad > 0)
    fail_with(ErrorCode::kData, "models",
              different.empty() ? "" : "the metric differs from the card's: ", joined(different),
              different.empty() || damaged.empty() ? "" : "; ",
              damaged.empty() ? "" : "the model or its data are damaged: ", joined(damaged));
  if (skipped.size() < names.size()) return 0;
  std::cerr << "warning: nothing was checked: all models were skipped (exit code " << kNothingChecked << ")\n";
  return kNothingChecked;
}

int run_models(const ModelsOptions& o) {
  const bool list = o.action == "list";
  require(list == o.name.empty(), "models", o.action,
          list ? concat(": got the name '", o.name, "', expected none")
               : concat(" needs a name. Known: ", joined(shipped_names())));
  require(o.out.empty() || o.action == "get", "models", "-o is of get only");
  require(o.data.empty() || o.action == "check", "models", "--data is of check only");
  require(!o.json || list || o.action == "check", "models", "--json is of list and check only");
  if (list) return list_models(o.json);
  if (o.action == "get") return get_model(o);
  if (o.action == "check") return check_models(o);
  std::cout << card_text(shipped_model(o.name));
  return 0;
}

}  // namespace

Run setup_models(Arguments& args) {
  auto o = std::make_shared<ModelsOptions>();
  args.option("action", o->action,
              "list (default): names, metrics and sizes; get: copy a model's folder; card: print its card; check: "
              "evaluate it and compare the metric with the card's")
      .one_of({"list", "get", "card", "check"});
  args.option("name", o->name, "name of a model; check: or all").suggest([] {
    std::vector<std::string> names = shipped_names();
    names.emplace_back("all");
    return names;
  });
  args.option("-o,--out", o->out, "get: the folder to write; default: NAME");
  args.option("--data", o->data, "check: data folder; else $BITGRAD_DATA");
  args.flag("--force", o->force, "get: overwrite an existing folder");
  args.flag("--json", o->json, "list, check: one JSON array on standard output");
  return [o] { return run_models(*o); };
}

}  // namespace bitgrad::cli
