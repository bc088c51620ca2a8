// bitgrad models [list | get NAME | card NAME | check NAME]: the models that ship with the program.
#include <algorithm>
#include <iomanip>
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
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

void list_models(bool json) {
  std::vector<std::vector<std::string>> table{{"model", "metric", "value", "bytes", "what"}};
  for (const std::string& name : shipped_names()) {
    const ShippedModel model = shipped_model(name);
    const ModelFacts f = read_facts(model);
    table.push_back({name, f.metric, f.value, concat(file_bytes(model.file(kModelFile))), f.summary});
  }
  if (table.size() == 1 && !json) {
    std::cout << "no models are installed at " << printable(models_folder()) << '\n';
    return;
  }
  print_texts(std::cout, table, json);
  if (!json) std::cout << "\nUse one as models/NAME: bitgrad eval models/" << table[1][0] << '\n';
}

void get_model(const ModelsOptions& o) {
  const ShippedModel model = shipped_model(o.name);
  const std::string folder = o.out.empty() ? o.name : o.out;
  require_writable_folder(folder, kModelFile, o.force, {model.file(kModelFile)});
  file_system().make_directories(folder);
  FileGroup together;
  for (const std::string& file : file_system().list(model.folder)) {
    const std::vector<uint8_t> bytes = file_system().read(model.file(file));
    write_file_atomically(concat(folder, '/', file),
                          std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  together.commit();
  std::cout << "wrote " << printable(folder) << ": " << joined(file_system().list(folder)) << '\n';
}

// ---- check

// What became of one model.
struct CheckedModel {
  std::string name, metric, card, measured;  // measured: with the digits of the card; empty: skipped
  std::string why;                           // skipped, or nothing
  bool equal() const { return measured == card; }
};

std::string with_digits_of(const std::string& card, double value) {
  const size_t point = card.find('.');
  TextWriter out;
  out << std::fixed << std::setprecision(point == std::string::npos ? 0 : static_cast<int>(card.size() - point - 1))
      << value;
  return out.str();
}

// Evaluates with the bits that all machines have.
CheckedModel check_model(const std::string& name, const std::string& root) {
  const ShippedModel model = shipped_model(name);
  const ModelFacts facts = read_facts(model);
  CheckedModel out{name, facts.metric, facts.value, "", ""};
  const ModelChoice choice{.target = model.file(kModelFile), .overrides = {"run.bits=strict"}, .data = root};
  const OpenedFile file = open_target(choice);
  apply_run_settings(file.config);
  const DeviceGuard guard(device_of(file.config));
  std::unique_ptr<Dataset> data;
  try {
    data = data_of(file, choice);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kData) throw;
    out.why = error.what();
    return out;
  }
  if (const std::string record = to_string(samples_record(*data)); record != facts.data_record) {
    out.why = concat("these are other test data than the card's: got ", record, ", the card's are ", facts.data_record);
    return out;
  }
  const Evaluation e = evaluate(*load_file(file, data.get()), *data, file.config.train.eval.batch);
  const std::optional<double> value = value_of(e.metrics, facts.metric);
  if (!value)
    fail_with(ErrorCode::kData, "models", model.file(kFactsFile), ": metric: got '", facts.metric,
              "', which this model does not have");
  out.measured = with_digits_of(facts.value, *value);
  return out;
}

std::string line_of(const CheckedModel& c) {
  if (c.measured.empty()) return concat(c.name, ": skipped: ", c.why);
  return concat(c.name, ": ", c.metric, ' ', c.measured, ", card ", c.card, ": ", c.equal() ? "equal" : "different");
}

int check_models(const ModelsOptions& o) {
  const std::vector<std::string> names = o.name == "all" ? shipped_names() : std::vector<std::string>{o.name};
  require(!names.empty(), "models", "no models are installed at ", models_folder());
  Json all = Json::array();
  std::vector<std::string> different;
  for (const std::string& name : names) {
    const CheckedModel c = check_model(name, o.data);
    text_output(o.json) << printable(line_of(c)) << std::endl;  // at once: each may take a minute
    all.push_back({{"model", c.name},
                   {"metric", c.metric},
                   {"card", c.card},
                   {"measured", c.measured.empty() ? Json(nullptr) : Json(c.measured)},
                   {"skipped", c.why.empty() ? Json(nullptr) : Json(c.why)}});
    if (!c.measured.empty() && !c.equal()) different.push_back(c.name);
  }
  if (o.json) std::cout << all.dump(2) << '\n';
  if (!different.empty())
    fail_with(ErrorCode::kData, "models", "the metric differs from the card's: ", joined(different));
  return 0;
}

int run_models(const ModelsOptions& o) {
  const bool list = o.action == "list";
  require(list == o.name.empty(), "models", o.action,
          list ? concat(": got the name '", o.name, "', expected none")
               : concat(" needs a name. Known: ", joined(shipped_names())));
  require(o.out.empty() || o.action == "get", "models", "-o is of get only");
  require(o.data.empty() || o.action == "check", "models", "--data is of check only");
  require(!o.json || list || o.action == "check", "models", "--json is of list and check only");
  if (list)
    list_models(o.json);
  else if (o.action == "get")
    get_model(o);
  else if (o.action == "card")
    std::cout << card_text(shipped_model(o.name));
  else
    return check_models(o);
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
