// The registry of keys as a JSON Schema (draft 7), for editors to check a configuration while it is written.
//
// Editors differ in how they read plain YAML words: some read 1e-4 as text, others off as false. Numbers may therefore
// be text that looks like a number, and words may be booleans. Dependencies between keys, other than on the selector of
// a map (format, name), are left to `bitgrad check`.
#include <algorithm>
#include <set>

#include "bitgrad/base/json.h"
#include "bitgrad/base/key.h"
#include "bitgrad/task/metric.h"
#include "config/choices.h"
#include "config/schema.h"

namespace bitgrad {
namespace {

using config::KeySpec;
using config::Type;

constexpr std::string_view kNumberText = R"(^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$)";
constexpr std::string_view kWholeText = "^[-+]?[0-9]+$";

Json pattern(std::string_view regex) { return Json{{"type", "string"}, {"pattern", regex}}; }
Json any_of(std::vector<Json> forms) {
  return forms.size() == 1 ? forms[0] : Json{{"anyOf", Json::array({forms.begin(), forms.end()})}};
}
Json list_of(Json item) { return Json{{"type", "array"}, {"items", std::move(item)}}; }

Json words(const std::vector<std::string>& names) {
  Json values = Json::array();
  std::set<std::string> seen(names.begin(), names.end());
  for (const std::string& name : names) values.push_back(name);
  if (seen.contains("true") || seen.contains("on")) values.push_back(true);
  if (seen.contains("false") || seen.contains("off")) values.push_back(false);
  return Json{{"enum", std::move(values)}};
}

Json number(std::string_view range, bool whole) {
  const NumberRange r = parse_number_range(range);
  Json out{{"type", whole ? "integer" : "number"}};
  out[r.open_lo ? "exclusiveMinimum" : "minimum"] = r.lo;
  out[r.open_hi ? "exclusiveMaximum" : "maximum"] = r.hi;
  return any_of({out, pattern(whole ? kWholeText : kNumberText)});
}

// One variant of the schema: in blocks and presets a value may be $key, and a layer may be a block.
class Writer {
 public:
  explicit Writer(bool blocks) : blocks_(blocks), suffix_(blocks ? "+blocks" : "") {}

  void add_groups(Json& definitions) const {
    std::set<std::string_view> groups;
    for (const KeySpec* spec : config::all_keys())
      if (groups.insert(spec->group).second && !spec->group.empty())
        definitions[name_of(spec->group)] = group(spec->group);
  }
  Json group(std::string_view name) const {
    Json properties = Json::object();
    Json required = Json::array(), conditions = Json::array();
    const std::string_view selector = config::selector_of(name);
    for (const KeySpec* spec : config::keys_in(name)) {
      properties[spec->name] = described(*spec);
      if (needed(*spec) && spec->when.empty()) require(*spec, required, conditions);
      if (!selector.empty() && !spec->when.empty()) add_conditions(*spec, selector, conditions);
    }
    Json out{{"type", Json::array({"object", "null"})}, {"properties", std::move(properties)}};
    const bool calls_blocks = blocks_ && name == "layer";
    out["additionalProperties"] = calls_blocks ? Json{{"type", Json::array({"object", "null"})}} : Json(false);
    if (!required.empty()) out["required"] = std::move(required);
    if (!conditions.empty()) out["allOf"] = std::move(conditions);
    if (name == "layer") out["minProperties"] = 1, out["maxProperties"] = 1;
    return out;
  }
  Json reference(std::string_view group) const { return Json{{"$ref", concat("#/definitions/", name_of(group))}}; }

 private:
  std::string name_of(std::string_view group) const { return concat(group, suffix_); }

  // An optional map is required if one of its keys is.
  static bool needed(const KeySpec& spec) {
    if (spec.required()) return true;
    if (spec.type != Type::kMap || spec.standard != "{}") return false;
    const std::vector<const KeySpec*> keys = config::keys_in(spec.inner());
    return std::any_of(keys.begin(), keys.end(), [](const KeySpec* key) { return key->when.empty() && needed(*key); });
  }
  static void require(const KeySpec& spec, Json& required, Json& conditions) {
    if (spec.alternative().empty()) return required.push_back(spec.name);
    Json either = Json::array();
    for (const std::string& key : {spec.name, spec.alternative()})
      either.push_back(Json{{"required", Json::array({key})}});
    conditions.push_back(Json{{"anyOf", std::move(either)}});
  }

  static Json is_one_of(std::string_view key, const std::vector<std::string>& values) {
    Json properties = Json::object();
    properties[key] = words(values);
    return Json{{"properties", std::move(properties)}, {"required", Json::array({key})}};
  }
  // A key that exists for some values of the selector, and is required for some of these.
  static void add_conditions(const KeySpec& spec, std::string_view selector, Json& conditions) {
    const KeySpec& chooses = *config::find_key(spec.group, selector);
    const std::vector<std::string> values = config::split(spec.when, ',');
    Json allowed = is_one_of(selector, values);
    if (chooses.has_default() && std::find(values.begin(), values.end(), chooses.standard) != values.end())
      allowed.erase("required");
    conditions.push_back(Json{{"if", Json{{"required", Json::array({spec.name})}}}, {"then", std::move(allowed)}});
    std::vector<std::string> with;
    for (const std::string& value : values)
      if (spec.required_with(value)) with.push_back(value);
    if (with.empty()) return;
    Json required = Json::array(), inner = Json::array();
    require(spec, required, inner);
    Json then = Json::object();
    if (!required.empty()) then["required"] = std::move(required);
    if (!inner.empty()) then["allOf"] = std::move(inner);
    conditions.push_back(Json{{"if", is_one_of(selector, with)}, {"then", std::move(then)}});
  }

  Json described(const KeySpec& spec) const {
    Json out = value(spec);
    if (blocks_ && !out.contains("$ref") && spec.group != "model") out = any_of({std::move(out), pattern("\\$[a-z]")});
    std::string text(spec.doc);
    if (spec.has_default() && spec.standard != "{}") text += concat(". Default: ", spec.standard, '.');
    if (spec.computed()) text += concat(". Default: ", spec.standard.substr(1), '.');
    // Draft 7 ignores members next to $ref.
    if (out.contains("$ref")) out = Json{{"allOf", Json::array({std::move(out)})}};
    if (!text.empty()) out["description"] = text;
    return out;
  }

  Json value(const KeySpec& spec) const {
    const Type type = spec.type;
    using namespace config;
    if (type == Type::kMap && keys_of(spec.inner()).empty()) return group(spec.inner());
    if (type == Type::kMap) return reference(spec.inner());
    if (type == Type::kLayers) return layers(spec);
    if (type == Type::kLayerLists) return list_of(list_of(reference("layer")));
    if (type == Type::kBlocks) return blocks();
    if (type == Type::kBlockKeys) return Json{{"type", Json::array({"object", "null"})}};
    if (type == Type::kMaps) {
      Json list = list_of(reference(spec.inner()));
      list["minItems"] = 1;
      return list;
    }
    if (type == Type::kMetrics) return keys_of(spec.inner()).empty() ? group(spec.inner()) : reference(spec.inner());
    if (type == Type::kLoss)
      return any_of({words(spec.names()), Json{{"type", "object"}, {"minProperties", 1}, {"maxProperties", 1}}});
    if (type == Type::kBest) return any_of({words(metric_names()), reference(spec.inner())});
    if (type == Type::kChat) return any_of({words(chat_names()), reference(spec.inner())});
    if (type == Type::kBudget) return any_of({bytes(), reference(spec.inner())});
    if (type == Type::kNameMap)
      return Json{{"type", "object"}, {"minProperties", 1}, {"additionalProperties", Json{{"type", "string"}}}};
    return scalar(spec);
  }
  // The layers of a model; with blocks of its own, model() selects the variant that allows other layers.
  Json layers(const KeySpec& spec) const {
    Json list = list_of(reference("layer"));
    if (spec.group == "model") list["minItems"] = 1;
    return list;
  }
  Json blocks() const {
    Json block = Writer(true).reference("block");
    return Json{{"type", "object"}, {"additionalProperties", std::move(block)}};
  }
  static Json bytes() {
    return any_of({Json{{"type", "integer"}, {"minimum", 1}}, pattern("^[0-9.]+ ?(B|KB|MB|GB|KiB|MiB|GiB)?$")});
  }

  static Json scalar(const KeySpec& spec) {
    const Type type = spec.type;
    using namespace config;
    const std::string_view range = spec.range;
    if (type == Type::kInt) return number(range, true);
    if (type == Type::kNumber) return number(range, false);
    if (type == Type::kNumberOrNone) return any_of({number(range, false), words({"none"})});
    if (type == Type::kIntOrAuto) return any_of({number(range, true), words({"auto"})});
    if (type == Type::kIntList) return list_of(number(range, true));
    if (type == Type::kNumbers) return list_of(number(range, false));
    if (type == Type::kInts) return ints(spec);
    if (type == Type::kPair) {
      Json pair = list_of(number(range, false));
      pair["minItems"] = 2, pair["maxItems"] = 2;
      return pair;
    }
    if (type == Type::kBytes) return bytes();
    if (type == Type::kBool) return Json{{"type", "boolean"}};
    if (type == Type::kTextList) return list_of(text());
    if (type == Type::kTexts) return any_of({text(), list_of(text()), Json{{"type", "object"}}});
    if (type == Type::kName) return any_of({pattern("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"), Json{{"type", "integer"}}});
    if (type == Type::kQuantity || type == Type::kQuantityOrOff) return quantity(spec);
    if (type == Type::kQuantityList) return list_of(quantity(spec));
    if (type == Type::kGranularity)
      return pattern("^(tensor|token|channel|channel\\([01]\\)|group\\(([01], ?)?[0-9]+\\))$");
    if (type == Type::kInit) return init();
    if (type == Type::kChoice || type == Type::kRecipe || type == Type::kDType) return choice(spec);
    return text();  // kText, kGlob, and types added later
  }
  static Json text() { return Json{{"type", Json::array({"string", "number", "boolean"})}}; }
  static Json choice(const KeySpec& spec) {
    const std::vector<std::string> names = spec.names();
    if (names.empty()) return text();
    return words(names);
  }
  static Json ints(const KeySpec& spec) {
    Json list = list_of(number(spec.range, true));
    list["minItems"] = spec.count, list["maxItems"] = spec.count;
    std::vector<Json> forms{number(spec.range, true), std::move(list)};
    if (const std::vector<std::string> names = spec.names(); !names.empty()) forms.push_back(words(names));
    return any_of(std::move(forms));
  }
  static Json quantity(const KeySpec& spec) {
    const bool epochs = spec.range.starts_with("steps, epochs");
    Json length = pattern(concat(spec.range.ends_with("from 0") ? "^[0-9]+" : "^[1-9][0-9]*",
                                 epochs ? " (steps?|epochs?)$" : " steps?$"));
    return spec.type != Type::kQuantityOrOff ? length : any_of({std::move(length), words({"off"})});
  }
  static Json init() {
    std::string kinds;
    for (const auto& kind : config::choices::init_kinds())
      kinds += concat(kinds.empty() ? "" : "|", kind.name,
                      kind.numbers == 2   ? "\\([^,()]+,[^,()]+\\)"
                      : kind.numbers == 1 ? "\\([^,()]+\\)"
                                          : "");
    return pattern(concat("^(", kinds, ")$"));
  }

  const bool blocks_;
  const std::string_view suffix_;
};

}  // namespace

std::string config_schema() {
  Json definitions = Json::object();
  for (const bool blocks : {false, true}) Writer(blocks).add_groups(definitions);
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "bitgrad configuration"}};
  schema.update(Writer(false).group(""));
  schema["type"] = "object";
  // If a model has blocks, its layers may be blocks, including those in containers.
  Json with_blocks{{"required", Json::array({"blocks"})}};
  schema["properties"]["model"] = Json{{"if", std::move(with_blocks)},
                                       {"then", Writer(true).reference("model")},
                                       {"else", Writer(false).reference("model")}};
  schema["definitions"] = std::move(definitions);
  return schema.dump(1) + '\n';
}

}  // namespace bitgrad
