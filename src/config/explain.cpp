// What is printed of the registry: the reference page, lists of keys, and one key with its place, values, default and
// an example.
#include <algorithm>
#include <functional>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "config/choices.h"
#include "config/schema.h"

namespace bitgrad {
namespace {

using config::KeySpec;
using config::Type;

struct PlacedKey {
  std::string path;  // "optim.lr", "model.layers.N.linear.out"
  const KeySpec* spec;
};

// Every key with the paths where it may occur; does not recurse into containers of layers.
std::vector<PlacedKey> placed_keys() {
  std::vector<PlacedKey> all;
  const std::function<void(std::string_view, const std::string&)> walk = [&](std::string_view group,
                                                                             const std::string& path) {
    for (const KeySpec* spec : config::keys_in(group)) {
      const std::string own = config::path_of(path, spec->name);
      all.push_back({own, spec});
      const bool list = spec->type == Type::kMaps || spec->type == Type::kLayers;
      if (spec->type == Type::kLayers && !group.empty() && group != "model") continue;
      if (spec->type == Type::kBlocks || spec->type == Type::kLayerLists) continue;
      if (!spec->inner().empty()) walk(spec->inner(), list ? own + ".N" : own);
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
  return joined(parts, ".");
}

std::string example_value(const KeySpec& spec) {
  if (spec.has_default() && spec.standard != "{}") return std::string(spec.standard);
  if (spec.type != Type::kMap) return config::filled(config::use_of(spec.type).example, spec);
  std::string text;
  for (const KeySpec* key : config::keys_in(spec.inner()))  // what is required, else the first key
    if (key->type != Type::kMap && (key->required() || text.empty()))
      text = concat(key->required() && !text.empty() ? concat(text, ", ") : "", key->name, ": ", example_value(*key));
  return text.empty() ? std::string(config::use_of(spec.type).example) : concat('{', text, '}');
}

// The names that a key accepts, if it accepts nothing else.
std::vector<std::string> names_of(const KeySpec& spec) {
  if (spec.type == Type::kBool) return {"true", "false"};
  return spec.names();
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

// The default, as a cell of the reference (`table`) or by itself.
std::string standard_text(const KeySpec& spec, bool table = false) {
  if (spec.required()) {
    const std::string other = spec.alternative();
    const std::string but = other.empty() ? ""
                            : table       ? concat(", or `", other, '`')
                                          : concat(", unless ", other, " is given");
    const bool at_times = table && !spec.optional.empty();
    return concat("required", but,
                  at_times ? concat("; optional with ", joined(config::split(spec.optional, ','))) : "");
  }
  if (spec.computed()) return std::string(spec.standard.substr(1));
  if (spec.standard.empty() || spec.standard == "{}") return table ? "-" : "none: optional";
  return table ? concat('`', spec.standard, '`') : std::string(spec.standard);
}

// Dtypes and recipes may be registered at run time, so the page names the kind of list instead.
std::string values_of(const KeySpec& spec) {
  if (spec.type == Type::kDType && spec.name == "dtype")
    return spec.group == "weights" ? "a packed dtype or fp32" : "a packed dtype";
  // List only schemes that some dtype of the role supports.
  if (spec.name == "scheme")
    for (const config::Role role : {config::Role::kWeights, config::Role::kActivations, config::Role::kGradients})
      if (spec.group == config::group_of(role)) return concat("one of ", joined(config::choices::schemes_of(role)));
  return config::use_of(spec.type).shown.empty() ? expects(spec)
                                                 : config::filled(config::use_of(spec.type).shown, spec);
}

std::string escaped(std::string text) {
  for (size_t i = text.find('|'); i != std::string::npos; i = text.find('|', i + 2)) text.insert(i, 1, '\\');
  return text;
}

void print_key(std::ostream& out, const PlacedKey& key, const std::vector<std::string>& others) {
  const KeySpec& spec = *key.spec;
  out << key.path << "\n  " << spec.doc << "\n  value    " << expects(spec) << "\n  default  " << standard_text(spec)
      << '\n';
  if (!spec.when.empty()) out << "  with     " << config::selector_of(spec.group, true) << ' ' << spec.with() << '\n';
  out << "  example  " << example(key) << '\n';
  for (const std::string& path : others) out << "  also     " << path << '\n';
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::string config_reference() {
  TextWriter out;
  std::set<std::string_view> groups;
  for (const KeySpec* first : config::all_keys()) {
    const std::string_view group = first->group;
    if (!groups.insert(group).second) continue;
    out << "### " << (group.empty() ? "top level" : concat('`', group, '`'))
        << "\n\n| key | value | default | with | meaning |\n|---|---|---|---|---|\n";
    for (const KeySpec* spec : config::keys_in(group))
      out << "| `" << spec->name << "` | " << escaped(values_of(*spec)) << " | " << standard_text(*spec, /*table=*/true)
          << " | " << (spec->when.empty() ? "" : concat(config::selector_of(group, true), ' ', spec->with(", ")))
          << " | " << escaped(std::string(spec->doc)) << " |\n";
    out << '\n';
  }
  return out.str();
}

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
                       {"value", expects(spec)},
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
      if (k.path.ends_with('.' + wanted) || concat(k.spec->group, '.', k.spec->name) == wanted) found.push_back(k);
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
