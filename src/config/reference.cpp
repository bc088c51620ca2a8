// The reference page of keys, generated from the registry.
#include <algorithm>

#include "bitgrad/base/text_stream.h"
#include "config/choices.h"
#include "config/schema.h"

namespace bitgrad {
namespace {

using config::KeySpec;

// Dtypes and recipes may be registered at run time, so the page names the kind of list instead.
std::string values_of(const KeySpec& spec) {
  if (spec.type == &config::kMap) return concat("map: see `", spec.detail, '`');
  if (spec.type == &config::kLayers) return "list of layers: see `layer`";
  if (spec.type == &config::kLayerLists) return "list of lists of layers: see `layer`";
  if (spec.type == &config::kBlocks) return concat("map of blocks: see `", spec.detail, '`');
  if (spec.type == &config::kMaps) return concat("list of maps: see `", spec.detail, '`');
  if (spec.type == &config::kBudget) return concat("a size such as '60 KB', or a map: see `", spec.detail, '`');
  if (spec.type == &config::kBest) return concat("the name of a metric, or a map: see `", spec.detail, '`');
  if (spec.type == &config::kRecipe) return "a recipe: see docs/quantization.md";
  if (spec.type == &config::kDType && spec.key == "dtype")
    return spec.group == "weights" ? "a packed dtype or fp32" : "a packed dtype";
  // List only schemes that some dtype of the role supports.
  if (spec.key == "scheme")
    for (const config::Role role : {config::Role::kWeights, config::Role::kActivations, config::Role::kGradients})
      if (spec.group == config::group_of(role))
        return concat("one of ", config::join(config::choices::schemes_of(role)));
  return spec.type->expects(spec);
}

std::string standard_of(const KeySpec& spec) {
  if (spec.required()) {
    const std::string but =
        spec.optional.empty() ? "" : concat("; optional with ", config::join(config::split(spec.optional, ',')));
    return spec.alternative().empty() ? concat("required", but)
                                      : concat("required, or `", spec.alternative(), '`', but);
  }
  if (spec.standard.empty() || spec.standard == "{}") return "-";
  if (spec.computed()) return std::string(spec.standard.substr(1));
  return concat('`', spec.standard, '`');
}

std::string escaped(std::string text) {
  for (size_t i = text.find('|'); i != std::string::npos; i = text.find('|', i + 2)) text.insert(i, 1, '\\');
  return text;
}

}  // namespace

std::string config_reference() {
  TextWriter out;
  std::vector<std::string> groups;
  for (const KeySpec* spec : config::all_keys())
    if (std::find(groups.begin(), groups.end(), spec->group) == groups.end()) groups.emplace_back(spec->group);
  for (const std::string& group : groups) {
    out << "### " << (group.empty() ? "top level" : "`" + group + "`")
        << "\n\n| key | value | default | with | meaning |\n|---|---|---|---|---|\n";
    for (const KeySpec* key : config::all_keys()) {
      const KeySpec& spec = *key;
      if (spec.group != group) continue;
      const std::string with = spec.when.empty() ? ""
                                                 : concat(config::selector_of(group, true), ' ',
                                                          config::join(config::split(spec.when, ',')));
      out << "| `" << spec.key << "` | " << escaped(values_of(spec)) << " | " << standard_of(spec) << " | " << with
          << " | " << escaped(std::string(spec.doc)) << " |\n";
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace bitgrad
