// Describes one key of the registry as text: its place, values, default, and an example.
#include <algorithm>
#include <functional>
#include <set>

#include "bitgrad/base/json.h"
#include "bitgrad/base/number_range.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/text_stream.h"
#include "config/choices.h"
#include "config/schema.h"

namespace bitgrad {
namespace {

using config::KeySpec;

struct PlacedKey {
  std::string path;  // "optim.lr", "model.layers.N.linear.out"
  const KeySpec* spec;
};

// Every key with the paths where it may occur; does not recurse into containers of layers.
std::vector<PlacedKey> placed_keys() {
  std::vector<PlacedKey> all;
  const std::function<void(std::string_view, const std::string&)> walk = [&](std::string_view group,
                                                                             const std::string& path) {
    for (const KeySpec* spec : config::all_keys()) {
      if (spec->group != group) continue;
      const std::string own = config::path_of(path, spec->key);
      all.push_back({own, spec});
      const bool list = spec->type == &config::kMaps || spec->type == &config::kLayers;
      if (spec->type == &config::kLayers && !group.empty() && group != "model") continue;
      if (spec->type == &config::kBlocks || spec->type == &config::kLayerLists) continue;
      if (!spec->detail.empty() && !config::keys_of(spec->detail).empty()) walk(spec->detail, list ? own + ".N" : own);
    }
  };
  walk("", "");
  return all;
}

// Replaces whole numbers by N, as in the paths of placed_keys.
std::string general(const std::string& key) {
  std::vector<std::string> parts = config::split(key, '.');
  for (std::string& part : parts)
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) part = "N";
  return config::join(parts, ".");
}

std::string example_value(const KeySpec& spec) {
  using namespace config;
  if (spec.has_default() && spec.standard != "{}") return std::string(spec.standard);
  const ValueType* const type = spec.type;
  if (type == &kMap && !spec.detail.empty()) {
    std::string text;
    for (const KeySpec* key : all_keys())  // what is required, else the first key
      if (key->group == spec.detail && key->type != &kMap && (key->required() || text.empty()))
        text = concat(key->required() && !text.empty() ? concat(text, ", ") : "", key->key, ": ", example_value(*key));
    if (!text.empty()) return concat('{', text, '}');
  }
  if (type == &kMap || type == &kBlockKeys || type == &kMetrics) return "{...}";
  if (type == &kMaps || type == &kLayers || type == &kLayerLists) return "[...]";
  if (type == &kBlocks) return "{unit: {layers: [...]}}";
  if (type == &kNameMap) return "{layers.0: fc1}";
  if (type == &kTextList) return "[a, b]";
  if (type == &kBudget || type == &kBytes) return "60 KB";
  if (type == &kBest) return "loss";
  if (type == &kGlob) return "\"layers.*\"";
  if (type == &kInit) return "glorot_uniform";
  if (type == &kQuantity || type == &kQuantityOrOff)
    return spec.detail.starts_with("steps, epochs") ? "10 epochs" : "100 steps";
  if (type == &kNumberList) return "[0.5]";
  if (type == &kQuantityList) return "[10 epochs, 20 epochs]";
  if (type == &kDType) return spec.group == "model" ? "bf16" : "int4";
  if (spec.choices)
    if (const std::vector<std::string> names = spec.choices(); !names.empty()) return names.front();
  if (type == &kInt || type == &kIntOrAuto || type == &kInts) {
    const NumberRange range = parse_number_range(spec.detail);
    for (const double x : {10.0, 1.0})
      if (range.contains(x)) return concat(static_cast<int64_t>(x));
    return concat(static_cast<int64_t>(range.lo));
  }
  if (type == &kNumber || type == &kNumberOrNone)
    return parse_number_range(spec.detail).contains(0.01) ? "0.01" : concat(parse_number_range(spec.detail).lo);
  return type == &kBool ? "true" : "NAME";
}

// The names that a key accepts, if it accepts nothing else.
std::vector<std::string> names_of(const KeySpec& spec) {
  if (spec.type == &config::kBool) return {"true", "false"};
  return spec.choices ? spec.choices() : std::vector<std::string>{};
}

// An example of the key in its place, e.g. optim: {lr: 0.01}
std::string example(const PlacedKey& key) {
  std::string text = example_value(*key.spec);
  const std::vector<std::string> parts = config::split(key.path, '.');
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i] == "N") {
      text = concat('[', text, ']');
      continue;
    }
    text = concat(parts[i], ": ", text);
    if (i > 0) text = concat('{', text, '}');
  }
  return text;
}

std::string standard_text(const KeySpec& spec) {
  if (spec.required()) {
    const std::string_view other = spec.alternative();
    return other.empty() ? "required" : concat("required, unless ", other, " is given");
  }
  if (spec.computed()) return std::string(spec.standard.substr(1));
  return spec.standard.empty() || spec.standard == "{}" ? "none: optional" : std::string(spec.standard);
}

void print_key(std::ostream& out, const PlacedKey& key, const std::vector<std::string>& others) {
  const KeySpec& spec = *key.spec;
  out << key.path << "\n  " << spec.doc << "\n  value    " << spec.type->expects(spec) << "\n  default  "
      << standard_text(spec) << '\n';
  if (!spec.when.empty())
    out << "  with     " << config::selector_of(spec.group, true) << ' '
        << config::join(config::split(spec.when, ','), " or ") << '\n';
  out << "  example  " << example(key) << '\n';
  for (const std::string& path : others) out << "  also     " << path << '\n';
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::vector<std::string> config_key_paths() {
  std::vector<std::string> paths;
  for (const PlacedKey& key : placed_keys()) paths.push_back(key.path);
  return paths;
}

std::vector<std::string> config_key_values(const std::string& path) {
  for (const PlacedKey& key : placed_keys())
    if (key.path == general(path)) return names_of(*key.spec);
  return {};
}

std::string config_keys_json() {
  Json all = Json::array();
  for (const PlacedKey& key : placed_keys()) {
    const KeySpec& spec = *key.spec;
    Json names = Json::array();
    for (const std::string& name : names_of(spec)) names.push_back(name);
    all.push_back(Json{{"path", key.path},
                       {"value", spec.type->expects(spec)},
                       {"default", standard_text(spec)},
                       {"text", spec.doc},
                       {"values", std::move(names)}});
  }
  return all.dump(2);
}

std::string explain_config_key(const std::string& key) {
  const std::vector<PlacedKey> all = placed_keys();
  const std::string wanted = general(key);
  std::vector<PlacedKey> found;
  for (const PlacedKey& k : all)
    if (k.path == wanted) found.push_back(k);
  for (const PlacedKey& k : all)
    if (found.empty() || found.front().path != wanted)
      if (k.path.ends_with('.' + wanted) || concat(k.spec->group, '.', k.spec->key) == wanted) found.push_back(k);
  std::stable_sort(found.begin(), found.end(), [](const PlacedKey& a, const PlacedKey& b) {
    return std::count(a.path.begin(), a.path.end(), '.') < std::count(b.path.begin(), b.path.end(), '.');
  });
  if (found.empty()) {
    std::vector<std::string> names;
    for (const PlacedKey& k : all) {
      names.push_back(k.path);
      names.push_back(last_part(k.path));
    }
    std::string near = config::nearest(wanted, names);
    if (near.empty()) near = config::nearest(last_part(wanted), names);
    fail("explain", "no configuration key is called '", key, "'.",
         near.empty() ? "" : concat(" Did you mean '", near, "'?"), " bitgrad keys lists all of them");
  }
  TextWriter out;
  std::set<const KeySpec*> printed;
  for (const PlacedKey& k : found) {
    if (!printed.insert(k.spec).second) continue;
    std::vector<std::string> others;
    for (const PlacedKey& other : found)
      if (other.spec == k.spec && other.path != k.path) others.push_back(other.path);
    if (printed.size() > 1) out << '\n';
    print_key(out, k, others);
  }
  return out.str();
}

}  // namespace bitgrad
