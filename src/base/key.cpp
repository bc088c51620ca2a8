#include "bitgrad/base/key.h"

#include <algorithm>
#include <charconv>
#include <ostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/number_range.h"
#include "bitgrad/base/text.h"

namespace bitgrad {

namespace {}  // namespace

std::ostream& operator<<(std::ostream& out, const Attribute& attribute) {
  std::visit(
      [&](const auto& x) {
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, bool>)
          out << (x ? "true" : "false");
        else if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::vector<int64_t>> ||
                           std::is_same_v<std::decay_t<decltype(x)>, std::vector<double>>)
          out << '[' << joined(x) << ']';
        else
          out << x;
      },
      attribute.value());
  return out;
}

const Attribute& Attributes::at(std::string_view key) const {
  const auto found = values_.find(key);
  require(found != values_.end(), "attributes", "no such attribute: '", key, '\'');
  return found->second;
}

namespace {

template <typename T>
const T& value_of(std::string_view key, const Attribute& attribute, std::string_view expected) {
  const T* const value = std::get_if<T>(&attribute.value());
  require(value != nullptr, "attributes", "attribute '", key, "': got ", attribute, ", expected ", expected);
  return *value;
}

}  // namespace

bool Attributes::flag(std::string_view key) const { return value_of<bool>(key, at(key), "true or false"); }
int64_t Attributes::integer(std::string_view key) const { return value_of<int64_t>(key, at(key), "a whole number"); }
double Attributes::number(std::string_view key) const {
  const Attribute& attribute = at(key);
  if (const auto* full = std::get_if<int64_t>(&attribute.value())) return static_cast<double>(*full);
  return value_of<double>(key, attribute, "a number");
}
const std::string& Attributes::text(std::string_view key) const {
  return value_of<std::string>(key, at(key), "a text");
}
const std::string* Attributes::find_text(std::string_view key) const {
  return std::get_if<std::string>(&at(key).value());
}
const std::vector<double>& Attributes::numbers(std::string_view key) const {
  return value_of<std::vector<double>>(key, at(key), "a list of numbers");
}
std::vector<int64_t> Attributes::integers(std::string_view key, int64_t count) const {
  const Attribute& attribute = at(key);
  if (const auto* full = std::get_if<int64_t>(&attribute.value()))
    return std::vector<int64_t>(static_cast<size_t>(count), *full);
  const std::string expected = concat("a whole number or a list of ", count, " of them");
  const auto& list = value_of<std::vector<int64_t>>(key, attribute, expected);
  require(std::ssize(list) == count, "attributes", "attribute '", key, "': got ", attribute, ", expected ", expected);
  return list;
}

namespace {

using Type = Key::Type;

// Describes the values that a key accepts, for error messages.
std::string expects(const Key& key) {
  switch (key.type) {
    case Type::kBool:
      return "true or false";
    case Type::kInt:
      return "a whole number in " + key.range;
    case Type::kNumber:
      return "a number in " + key.range;
    case Type::kText:
      return "a text";
    case Type::kTexts:
      return "a text or a list of texts";
    case Type::kNumbers:
      return "a list of numbers in " + key.range;
    case Type::kChoice:
    case Type::kInts:
      break;
  }
  const std::string names = joined(key.choices);
  if (key.type == Type::kChoice) return "one of " + names;
  return concat("a whole number in ", key.range, " or a list of ", key.count, " of them", names.empty() ? "" : ", or ",
                names);
}

bool fits(const Key& key, const Attribute& attribute) {
  const Attribute::Value& value = attribute.value();
  const auto* const text = std::get_if<std::string>(&value);
  switch (key.type) {
    case Type::kBool:
      return std::holds_alternative<bool>(value);
    case Type::kText:
    case Type::kTexts:
      return text != nullptr;
    case Type::kChoice:
    case Type::kInts:
      if (key.type == Type::kInts && text == nullptr) break;
      return text != nullptr && std::find(key.choices.begin(), key.choices.end(), *text) != key.choices.end();
    case Type::kInt:
    case Type::kNumber:
    case Type::kNumbers:
      break;
  }
  const NumberRange range = parse_number_range(key.range);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
    return key.type == Type::kInts && std::ssize(*list) == key.count &&
           std::all_of(list->begin(), list->end(), [&](int64_t x) { return range.contains(static_cast<double>(x)); });
  if (const auto* list = std::get_if<std::vector<double>>(&value))
    return key.type == Type::kNumbers && !list->empty() &&
           std::all_of(list->begin(), list->end(), [&](double x) { return range.contains(x); });
  if (key.type == Type::kNumbers) return false;
  if (const auto* full = std::get_if<int64_t>(&value)) return range.contains(static_cast<double>(*full));
  const auto* const number = std::get_if<double>(&value);
  return key.type == Type::kNumber && number != nullptr && range.contains(*number);
}

// Parses the text of a default value.
Attribute read_standard(const Key& key) {
  const char *begin = key.standard.data(), *end = begin + key.standard.size();
  if (key.type == Type::kBool) return key.standard == "true" ? Attribute(true) : Attribute(false);
  if (key.type == Type::kText || key.type == Type::kTexts || key.type == Type::kChoice) return key.standard;
  if (std::find(key.choices.begin(), key.choices.end(), key.standard) != key.choices.end()) return key.standard;
  if (key.type == Type::kInt || key.type == Type::kInts) {
    int64_t full = 0;
    const auto read = std::from_chars(begin, end, full);
    require(read.ec == std::errc() && read.ptr == end, "keys", "key '", key.name, "': the default '", key.standard,
            "' is not a whole number");
    return full;
  }
  double number = 0;
  const auto read = std::from_chars(begin, end, number);
  require(read.ec == std::errc() && read.ptr == end, "keys", "key '", key.name, "': the default '", key.standard,
          "' is not a number");
  return number;
}

bool is_identifier(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  }) && (name[0] < '0' || name[0] > '9');
}

}  // namespace

void check_kind_name(std::string_view where, const std::string& name) {
  require(is_identifier(name), where, "the name: got '", name,
          "', expected at most 64 lower-case letters, digits and '_', not beginning with a digit");
}

void check_keys(std::string_view where, const std::string& owner, const std::vector<Key>& keys) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const Key& key = keys[i];
    require(is_identifier(key.name), where, owner, ": got a key named '", key.name,
            "', expected lower-case letters, digits and '_'");
    const auto same = [&](const Key& other) { return other.name == key.name; };
    require(std::none_of(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i), same), where, owner,
            ": the key '", key.name, "' exists already");
    if (!key.standard.empty() && key.standard != "!")
      require(fits(key, read_standard(key)), where, owner, ": the default of '", key.name, "': got ", key.standard,
              ", expected ", expects(key));
  }
}

Attributes completed(std::string_view where, const std::vector<Key>& keys, const Attributes& given) {
  for (const auto& [name, value] : given.values()) {
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == name; });
    if (key == keys.end()) {
      std::vector<std::string> names;
      for (const Key& k : keys) names.push_back(k.name);
      fail(where, unknown_name("attribute", name, names));
    }
    require(fits(*key, value), where, name, ": got ", value, ", expected ", expects(*key));
  }
  Attributes out = given;
  for (const Key& key : keys) {
    if (given.contains(key.name)) continue;
    require(key.standard != "!", where, "attribute '", key.name, "' is missing: ", expects(key));
    if (!key.standard.empty()) out[key.name] = read_standard(key);
  }
  return out;
}

}  // namespace bitgrad
