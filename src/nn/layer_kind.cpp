#include "bitgrad/nn/layer_kind.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <mutex>
#include <ostream>

#include "bitgrad/base/number_range.h"
#include "bitgrad/base/text.h"

namespace bitgrad {

#define BITGRAD_LAYER(function) LayerKind function();
#include "nn/layers/layers.inc"
#undef BITGRAD_LAYER
std::vector<LayerKind> unary_kinds();

std::ostream& operator<<(std::ostream& out, const Attribute& attribute) {
  std::visit(
      [&](const auto& x) {
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, bool>)
          out << (x ? "true" : "false");
        else
          out << x;
      },
      attribute.value());
  return out;
}

const Attribute& Attributes::at(std::string_view key) const {
  const auto found = values_.find(key);
  require(found != values_.end(), "layer", "has no attribute '", key, '\'');
  return found->second;
}

namespace {

template <typename T>
const T& value_of(std::string_view key, const Attribute& attribute, std::string_view expected) {
  const T* const value = std::get_if<T>(&attribute.value());
  require(value != nullptr, "layer", "attribute '", key, "': got ", attribute, ", expected ", expected);
  return *value;
}

}  // namespace

bool Attributes::flag(std::string_view key) const { return value_of<bool>(key, at(key), "true or false"); }
int64_t Attributes::integer(std::string_view key) const { return value_of<int64_t>(key, at(key), "a whole number"); }
double Attributes::number(std::string_view key) const {
  const Attribute& attribute = at(key);
  if (const auto* whole = std::get_if<int64_t>(&attribute.value())) return static_cast<double>(*whole);
  return value_of<double>(key, attribute, "a number");
}
const std::string& Attributes::text(std::string_view key) const {
  return value_of<std::string>(key, at(key), "a text");
}

namespace {

using Type = LayerKey::Type;

// What is expected of a key's value.
std::string expects(const LayerKey& key) {
  switch (key.type) {
    case Type::kBool:
      return "true or false";
    case Type::kInt:
      return "a whole number in " + key.range;
    case Type::kNumber:
      return "a number in " + key.range;
    case Type::kText:
      return "a text";
    case Type::kChoice:
      break;
  }
  std::string names;
  for (const std::string& choice : key.choices) names += (names.empty() ? "" : ", ") + choice;
  return "one of " + names;
}

bool fits(const LayerKey& key, const Attribute& attribute) {
  const Attribute::Value& value = attribute.value();
  const auto* const text = std::get_if<std::string>(&value);
  switch (key.type) {
    case Type::kBool:
      return std::holds_alternative<bool>(value);
    case Type::kText:
      return text != nullptr;
    case Type::kChoice:
      return text != nullptr && std::find(key.choices.begin(), key.choices.end(), *text) != key.choices.end();
    case Type::kInt:
    case Type::kNumber:
      break;
  }
  const NumberRange range = parse_number_range(key.range);
  if (const auto* whole = std::get_if<int64_t>(&value)) return range.contains(static_cast<double>(*whole));
  const auto* const number = std::get_if<double>(&value);
  return key.type == Type::kNumber && number != nullptr && range.contains(*number);
}

// A default, as its text says it.
Attribute read_standard(const LayerKey& key) {
  const char *begin = key.standard.data(), *end = begin + key.standard.size();
  if (key.type == Type::kBool) return key.standard == "true" ? Attribute(true) : Attribute(false);
  if (key.type == Type::kText || key.type == Type::kChoice) return key.standard;
  if (key.type == Type::kInt) {
    int64_t whole = 0;
    const auto read = std::from_chars(begin, end, whole);
    require(read.ec == std::errc() && read.ptr == end, "layer kind", "key '", key.name, "': the default '",
            key.standard, "' is no whole number");
    return whole;
  }
  double number = 0;
  const auto read = std::from_chars(begin, end, number);
  require(read.ec == std::errc() && read.ptr == end, "layer kind", "key '", key.name, "': the default '", key.standard,
          "' is no number");
  return number;
}

bool is_identifier(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  }) && (name[0] < '0' || name[0] > '9');
}

void check_kind(const LayerKind& kind) {
  constexpr std::string_view kShared[] = {"weights", "compute", "backward", "layers"};
  require(is_identifier(kind.name), "register_layer", "the name: got '", kind.name,
          "', expected at most 64 lower-case letters, digits and '_', not beginning with a digit");
  require(kind.make != nullptr, "register_layer", "kind '", kind.name, "' has no function that makes it");
  std::vector<std::string> names;
  for (const LayerKey& key : kind.keys) {
    require(is_identifier(key.name), "register_layer", "kind '", kind.name, "': got a key named '", key.name,
            "', expected lower-case letters, digits and '_'");
    require(std::find(names.begin(), names.end(), key.name) == names.end() &&
                std::find(std::begin(kShared), std::end(kShared), key.name) == std::end(kShared),
            "register_layer", "kind '", kind.name, "': the key '", key.name,
            "' exists already (weights, compute, backward and layers are shared by all kinds)");
    names.push_back(key.name);
    if (!key.standard.empty() && key.standard != "!")
      require(fits(key, read_standard(key)), "register_layer", "kind '", kind.name, "': the default of '", key.name,
              "': got ", key.standard, ", expected ", expects(key));
  }
}

struct Registry {
  std::deque<LayerKind> kinds;
  std::mutex mutex;
  Registry() {
#define BITGRAD_LAYER(function) kinds.push_back(function());
#include "nn/layers/layers.inc"
#undef BITGRAD_LAYER
    for (LayerKind& kind : unary_kinds()) kinds.push_back(std::move(kind));
    for (const LayerKind& kind : kinds) check_kind(kind);
  }
};
Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void register_layer(LayerKind kind) {
  check_kind(kind);
  require(find_layer_kind(kind.name) == nullptr, "register_layer", "a layer kind '", kind.name, "' exists already");
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.kinds.push_back(std::move(kind));
}

const LayerKind* find_layer_kind(std::string_view name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const LayerKind& kind : all.kinds)
    if (kind.name == name) return &kind;
  return nullptr;
}

std::vector<const LayerKind*> layer_kinds() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<const LayerKind*> kinds;
  for (const LayerKind& kind : all.kinds) kinds.push_back(&kind);
  return kinds;
}

std::vector<std::string> layer_names() {
  std::vector<std::string> names;
  for (const LayerKind* kind : layer_kinds()) names.push_back(kind->name);
  std::sort(names.begin(), names.end());
  return names;
}

const LayerKind& kind_of(const LayerSpec& spec) {
  const LayerKind* const kind = find_layer_kind(spec.kind);
  if (kind == nullptr) fail("layer", unknown_name("layer", spec.kind, layer_names()));
  return *kind;
}

LayerSpec completed(const LayerSpec& spec) {
  const LayerKind& kind = kind_of(spec);
  LayerSpec out = spec;
  for (const auto& [name, value] : spec.attributes.values()) {
    const auto key =
        std::find_if(kind.keys.begin(), kind.keys.end(), [&](const LayerKey& k) { return k.name == name; });
    if (key == kind.keys.end()) {
      std::vector<std::string> names;
      for (const LayerKey& k : kind.keys) names.push_back(k.name);
      fail(kind.name, unknown_name("attribute", name, names));
    }
    require(fits(*key, value), kind.name, name, ": got ", value, ", expected ", expects(*key));
  }
  for (const LayerKey& key : kind.keys) {
    if (spec.attributes.contains(key.name)) continue;
    require(key.standard != "!", kind.name, "attribute '", key.name, "' is missing: ", expects(key));
    if (!key.standard.empty()) out.attributes[key.name] = read_standard(key);
  }
  return out;
}

}  // namespace bitgrad
