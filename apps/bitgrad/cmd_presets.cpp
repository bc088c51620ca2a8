// bitgrad presets [NAME]: lists the shipped networks (model.preset), or prints the file of one to copy and modify.
#include <algorithm>
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/config/presets.h"
#include "command.h"
#include "output.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

void list_presets(bool json) {
  std::vector<std::vector<std::string>> table{{"preset", "network"}};
  if (json) table[0].emplace_back("keys");
  for (const ModelPreset& preset : model_presets()) {
    const std::string keys =
        joined(preset.keys, ", ", [](const auto& key) { return concat(key.first, ": ", key.second); });
    if (json)
      table.push_back({preset.name, preset.summary, keys});
    else
      table.push_back({preset.name, concat(preset.summary, keys.empty() ? "" : concat(". Keys: ", keys))});
  }
  print_texts(std::cout, table, json);
  text_output(json) << wrap_lines(
      "\nmodel: {preset: NAME, keys: {...}} in a configuration; bitgrad presets NAME prints the file of one, and "
      "model: {preset: ./my_net.yaml} uses a copy of it (docs/models.md)\n");
}

void print_preset(const std::string& name) {
  const std::vector<ModelPreset>& all = model_presets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ModelPreset& p) { return p.name == name; });
  std::vector<std::string> names;
  for (const ModelPreset& preset : all) names.push_back(preset.name);
  if (found == all.end()) {
    const std::string near = nearest_name(name, names);
    fail("presets", "no preset is called '", name, "'. ", near.empty() ? "" : concat("Did you mean '", near, "'? "),
         "Known: ", joined(names));
  }
  std::cout << found->text;
}

}  // namespace

Run setup_presets(Arguments& args) {
  struct Options {
    std::string name;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  const Argument name = args.option("name", options->name, "preset to print; default: list all").suggest([] {
    std::vector<std::string> names;
    for (const ModelPreset& preset : model_presets()) names.push_back(preset.name);
    return names;
  });
  args.flag("--json", options->json, "one JSON array on standard output").excludes(name);
  return [options] {
    if (options->name.empty())
      list_presets(options->json);
    else
      print_preset(options->name);
    return 0;
  };
}

}  // namespace bitgrad::cli
