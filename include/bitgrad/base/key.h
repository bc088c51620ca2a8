// Keys as data: descriptions of the settings of layer kinds, losses, metrics, data sets and quantization schemes.
// Configuration parsing, its reference page and error positions are derived from these descriptions. Beside them what
// keys are made of: names of enumerations and ranges of numbers.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bitgrad/base/error.h"

namespace bitgrad {

// The names of an enumeration's values, listed once: configurations, files and messages use them.

// Specialized beside an enumeration whose values count up from 0, with the member
//   static constexpr std::string_view all[] = {"nearest", "stochastic"};
template <typename E>
struct EnumNames;
template <typename E>
concept NamedEnum = requires {
  EnumNames<E>::all;
};

template <NamedEnum E>
constexpr std::string_view enum_name(E value) {
  return EnumNames<E>::all[static_cast<size_t>(value)];
}
template <NamedEnum E>
std::vector<std::string> enum_names() {
  return {std::begin(EnumNames<E>::all), std::end(EnumNames<E>::all)};
}
// nullopt: no value has this name.
template <NamedEnum E>
std::optional<E> find_enum(std::string_view name) {
  for (size_t i = 0; i < std::size(EnumNames<E>::all); ++i)
    if (EnumNames<E>::all[i] == name) return static_cast<E>(i);
  return std::nullopt;
}
// Throws Error("[where] unknown WHAT: got ...") that lists the names.
template <NamedEnum E>
E parse_enum(std::string_view name, std::string_view where, std::string_view what) {
  if (const std::optional<E> found = find_enum<E>(name)) return *found;
  std::string list;
  for (const std::string_view known : EnumNames<E>::all) list += concat(list.empty() ? "" : ", ", known);
  fail(where, "unknown ", what, ": got \"", name, "\", expected one of ", list, '.');
}

// Ranges of numbers, as configurations and layer keys write them: "[1, 64]", "(0, 1]".
struct NumberRange {
  double lo = 0, hi = 0;
  bool open_lo = false, open_hi = false;
  bool contains(double x) const { return (open_lo ? x > lo : x >= lo) && (open_hi ? x < hi : x <= hi); }
};
// Throws Error if `text` is not a range.
NumberRange parse_number_range(std::string_view text);

// One setting. The types that plugins use are the first eight of key_types.inc.
struct Key {
  enum class Type : uint8_t {
#define BITGRAD_KEY_TYPE(symbol, ...) symbol,
#include "bitgrad/base/key_types.inc"
#undef BITGRAD_KEY_TYPE
  };
  std::string name = {};
  Type type = Type::kInt;
  std::string range = {};     // of numbers, "[1, 64]"; parentheses exclude an endpoint
  std::string standard = {};  // default as text (not a list for kInts); "!": required; "": optional
  std::string doc = {};
  std::vector<std::string> choices = {};
  int64_t count = 0;  // for kInts: length of the list
  friend bool operator==(const Key&, const Key&) = default;
};

namespace detail {

// libstdc++ 12 treats a variant of strings, vectors and trivial types as never valueless. If the copy constructor of an
// alternative throws, it then destroys an object that was never constructed. Constructing from the alternative is safe.
template <typename Variant>
Variant copy_of(const Variant& variant) {
  return std::visit(
      [](const auto& value) { return Variant(std::in_place_type<std::remove_cvref_t<decltype(value)>>, value); },
      variant);
}

}  // namespace detail

// The value of one key.
class Attribute {
 public:
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;
  Attribute() = default;  // false
  Attribute(const Attribute& other) : value_(detail::copy_of(other.value_)) {}
  Attribute(Attribute&&) noexcept = default;
  Attribute& operator=(Attribute other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Attribute() = default;
  Attribute(bool x) : value_(x) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Attribute(T x) : value_(static_cast<int64_t>(x)) {}
  template <std::floating_point T>
  Attribute(T x) : value_(static_cast<double>(x)) {}
  Attribute(std::string x) : value_(std::move(x)) {}
  Attribute(const char* x) : value_(std::string(x)) {}
  Attribute(std::vector<int64_t> x) : value_(std::move(x)) {}
  Attribute(std::vector<double> x) : value_(std::move(x)) {}

  const Value& value() const { return value_; }
  friend bool operator==(const Attribute&, const Attribute&) = default;

 private:
  Value value_;
};
std::ostream& operator<<(std::ostream& out, const Attribute& attribute);  // true, 5, 0.1, text, [1, 2]

// Values by key. Getters throw Error if the key is absent or has another type; number() also accepts an integer.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> values) : values_(values) {}
  Attribute& operator[](const std::string& key) { return values_[key]; }
  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }
  bool flag(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  // Returns nullptr if the value is not text.
  const std::string* find_text(std::string_view key) const;
  // For kNumbers.
  const std::vector<double>& numbers(std::string_view key) const;
  // For kInts: exactly `count` integers; a single integer is repeated.
  std::vector<int64_t> integers(std::string_view key, int64_t count) const;
  const std::map<std::string, Attribute, std::less<>>& values() const { return values_; }
  friend bool operator==(const Attributes&, const Attributes&) = default;

 private:
  const Attribute& at(std::string_view key) const;
  std::map<std::string, Attribute, std::less<>> values_;
};

// Throws Error unless `name` consists of lower-case letters, digits and '_', has at most 64 characters and does not
// begin with a digit.
void check_kind_name(std::string_view where, const std::string& name);
// Throws Error naming `owner`, such as "kind 'relu'", for an invalid or duplicate key name, or a default out of range.
void check_keys(std::string_view where, const std::string& owner, const std::vector<Key>& keys);
// Describes the values that a key accepts, for messages: "a whole number in [1, 64]".
std::string expects(const Key& key);
// Returns `given` completed with defaults. Throws Error("[where] ...") for an unknown key, an invalid value or a
// missing required key.
Attributes completed(std::string_view where, const std::vector<Key>& keys, const Attributes& given);

namespace detail {
// `form` with each <word> replaced by its text: those of a key are detail (its range), choices, words and count.
std::string filled(std::string_view form, const std::function<std::string(std::string_view)>& text_of);
std::string word_of(std::string_view word, const Key& key);
}  // namespace detail

}  // namespace bitgrad
