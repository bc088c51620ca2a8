#include "bitgrad/base/key.h"

#include <algorithm>
#include <charconv>
#include <ostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad {

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

constexpr std::string_view kForms[] = {
#define BITGRAD_KEY_TYPE(symbol, form, ...) form,
#include "bitgrad/base/key_types.inc"
#undef BITGRAD_KEY_TYPE
};

bool is_choice(const Key& key, const std::string& text) {
  return std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end();
}

// Whether the value has the key's type and range. Keys of the other types are the configuration's own.
bool fits(const Key& key, const Attribute& attribute) {
  const Attribute::Value& value = attribute.value();
  const auto in_range = [&](double x) { return parse_number_range(key.range).contains(x); };
  const auto* const text = std::get_if<std::string>(&value);
  const auto* const whole = std::get_if<int64_t>(&value);
  const auto* const wholes = std::get_if<std::vector<int64_t>>(&value);
  const auto* const numbers = std::get_if<std::vector<double>>(&value);
  switch (key.type) {
    case Type::kBool:
      return std::holds_alternative<bool>(value);
    case Type::kText:
    case Type::kTexts:
      return text != nullptr;
    case Type::kChoice:
      return text != nullptr && is_choice(key, *text);
    case Type::kNumbers:
      return numbers != nullptr && !numbers->empty() && std::all_of(numbers->begin(), numbers->end(), in_range);
    case Type::kInts:
      if (text != nullptr) return is_choice(key, *text);
      if (wholes != nullptr)
        return std::ssize(*wholes) == key.count && std::all_of(wholes->begin(), wholes->end(), in_range);
      [[fallthrough]];
    case Type::kInt:
      return whole != nullptr && in_range(static_cast<double>(*whole));
    case Type::kNumber:
      if (whole != nullptr) return in_range(static_cast<double>(*whole));
      return std::holds_alternative<double>(value) && in_range(std::get<double>(value));
    default:
      return false;
  }
}

// Parses the text of a default value.
Attribute read_standard(const Key& key) {
  if (key.type == Type::kBool) return key.standard == "true";
  const bool whole = key.type == Type::kInt || key.type == Type::kInts;
  if ((!whole && key.type != Type::kNumber) || is_choice(key, key.standard)) return key.standard;
  int64_t integer = 0;
  double number = 0;
  const NumberResult read = whole ? parse_whole(key.standard, integer) : parse_decimal(key.standard, number);
  require(read == NumberResult::kOk, "keys", "key '", key.name, "': the default '", key.standard, "' is not a ",
          whole ? "whole number" : "number");
  return whole ? Attribute(integer) : Attribute(number);
}

bool is_identifier(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  }) && (name[0] < '0' || name[0] > '9');
}

}  // namespace

std::string detail::filled(std::string_view form, const std::function<std::string(std::string_view)>& text_of) {
  std::string text(form);
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    const size_t size = text.find('>', at) - at + 1;
    const std::string word = text_of(std::string_view(text).substr(at + 1, size - 2));
    text.replace(at, size, word);
    at += word.size();
  }
  return text;
}

std::string detail::word_of(std::string_view word, const Key& key) {
  if (word == "detail") return key.range;
  if (word == "count") return concat(key.count);
  return concat(word == "words" && !key.choices.empty() ? ", or " : "", joined(key.choices));
}

std::string expects(const Key& key) {
  return detail::filled(kForms[static_cast<size_t>(key.type)],
                        [&](std::string_view word) { return detail::word_of(word, key); });
}

void check_kind_name(std::string_view where, const std::string& name) {
  require(is_identifier(name), where, "the name: got '", name,
          "', expected at most 64 lower-case letters, digits and '_', not beginning with a digit");
}

void check_keys(std::string_view where, const std::string& owner, const std::vector<Key>& keys) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const Key& key = keys[i];
    require(is_identifier(key.name), where, owner, ": got a key named '", key.name,
            "', expected lower-case letters, digits and '_'");
    require(key.type <= Type::kNumbers, where, owner, ": the key '", key.name,
            "' has a type of the configuration's own, expected kBool, kInt, kNumber, kText, kTexts, kChoice, kInts or "
            "kNumbers");
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

NumberRange parse_number_range(std::string_view text) {
  const size_t comma = text.find(", ");
  require(text.size() >= 6 && comma != std::string_view::npos && (text.front() == '(' || text.front() == '[') &&
              (text.back() == ')' || text.back() == ']'),
          "range", "got '", text, "', expected two numbers such as [1, 64] or (0, 1]");
  NumberRange range{0, 0, text.front() == '(', text.back() == ')'};
  const auto read = [&](std::string_view part, double& to) {
    const auto result = std::from_chars(part.data(), part.data() + part.size(), to);
    require(result.ec == std::errc() && result.ptr == part.data() + part.size(), "range", "got '", text,
            "', expected two numbers such as [1, 64] or (0, 1]");
  };
  read(text.substr(1, comma - 1), range.lo);
  read(text.substr(comma + 2, text.size() - comma - 3), range.hi);
  return range;
}

}  // namespace bitgrad
