// JSON values (RFC 8259) for reports, metrics and checkpoint records. Objects keep their members in insertion order.
// nlohmann-json parses and prints the text; only src/base/json.cpp includes it (and the reader of safetensors headers,
// which builds no tree), because it adds seconds to every file that does.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bitgrad/base/key.h"

namespace bitgrad {

// Malformed JSON, a value of an unexpected type, or a missing member.
struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Limits that parse() enforces.
struct JsonLimits {
  int depth = 200;             // maximum nesting of arrays and objects
  bool unique_names = false;   // duplicate member names are an error; otherwise the last one wins
  int64_t values = INT64_MAX;  // maximum number of values, which take about 20 times the memory of their text
};

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json(std::nullptr_t = nullptr) {}
  Json(const Json& other) : value_(detail::copy_of(other.value_)) {}
  Json(Json&&) noexcept = default;
  Json& operator=(Json other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Json() = default;
  template <std::same_as<bool> T>
  Json(T x) : value_(x) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T x) {
    if constexpr (std::is_signed_v<T>)
      value_ = static_cast<int64_t>(x);
    else
      value_ = static_cast<uint64_t>(x);
  }
  template <std::floating_point T>
  Json(T x) : value_(static_cast<double>(x)) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  template <typename T>
  Json(const std::vector<T>& items) : value_(Array(items.begin(), items.end())) {}
  // {{"name", value}, ...} is an object; any other list is an array.
  Json(std::initializer_list<Json> items);
  static Json array(Array items = {});
  static Json object();

  // Throws JsonError naming the position of a syntax error, or the limit that was exceeded.
  static Json parse(std::string_view text, const JsonLimits& limits = {});
  // indent < 0: a single line. NaN and Inf are written as null. Throws JsonError for text that is not UTF-8.
  std::string dump(int indent = -1) const;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_);
  }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // Number of elements or members; 0 for null, 1 for any other value.
  size_t size() const;
  bool empty() const { return size() == 0; }
  bool contains(std::string_view name) const;
  // Throws JsonError if the element or member does not exist.
  const Json& at(std::string_view name) const;
  const Json& at(size_t index) const;
  Json& at(std::string_view name) { return const_cast<Json&>(std::as_const(*this).at(name)); }
  const Json& operator[](std::string_view name) const { return at(name); }
  template <std::integral T>
  const Json& operator[](T index) const {
    return at(static_cast<size_t>(index));
  }
  template <std::integral T>
  Json& operator[](T index) {
    return const_cast<Json&>(at(static_cast<size_t>(index)));
  }
  Json& operator[](std::string_view name);  // inserts null if absent; a null value becomes an object
  void push_back(Json item);                // a null value becomes an array
  void erase(std::string_view name);        // no effect if absent
  void update(const Json& other);           // inserts or overwrites the members of another object

  // Elements of an array, members of an object. Throws JsonError for any other type.
  const Array& items() const;
  const Object& members() const;
  Array& items() { return const_cast<Array&>(std::as_const(*this).items()); }
  Array::iterator begin() { return items().begin(); }
  Array::iterator end() { return items().end(); }
  Array::const_iterator begin() const { return items().begin(); }
  Array::const_iterator end() const { return items().end(); }

  // T: bool, an integer, a float, std::string, Json, or std::vector of these. Throws JsonError for a value of another
  // type, and for an integer out of range of an integral T; 2.0 is not an integer. Floats are rounded to T.
  template <typename T>
  T get() const {
    if constexpr (std::same_as<T, Json>) {
      return *this;
    } else if constexpr (std::same_as<T, bool>) {
      return boolean();
    } else if constexpr (std::integral<T>) {
      const auto [bits, negative] =
          integer(std::numeric_limits<T>::min() < T{}, static_cast<uint64_t>(std::numeric_limits<T>::max()));
      return static_cast<T>(negative ? ~bits + 1 : bits);
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(number());
    } else if constexpr (std::same_as<T, std::string>) {
      return text();
    } else {
      T out;
      for (const Json& item : items()) out.push_back(item.get<typename T::value_type>());
      return out;
    }
  }
  // Throws JsonError unless the value is a string.
  const std::string& text() const;
  // The member, or `otherwise` if there is none. Throws JsonError if it has another type.
  template <typename T>
  T value(std::string_view name, T otherwise) const {
    return contains(name) ? at(name).get<T>() : otherwise;
  }
  std::string value(std::string_view name, const char* otherwise) const {
    return contains(name) ? at(name).text() : otherwise;
  }

  // Numbers compare by value; objects compare regardless of member order.
  bool operator==(const Json& other) const;
  template <typename T>
  requires(std::integral<T> || std::floating_point<T>) friend bool operator==(const Json& json, T x) {
    return json == Json(x);
  }
  friend bool operator==(const Json& json, const char* x) { return json == Json(x); }
  friend bool operator==(const Json& json, const std::string& x) { return json == Json(x); }
  template <typename T>
  requires(std::integral<T> || std::floating_point<T>) friend auto operator<=>(const Json& json, T x) {
    return json.number() <=> static_cast<double>(x);  // in double; use get<T>() for integers beyond 2^53
  }
  friend auto operator<=>(const Json& a, const Json& b) { return a.number() <=> b.number(); }

 private:
  bool boolean() const;
  double number() const;
  // Magnitude and sign of an integer. Throws JsonError outside [-(largest + 1), largest], or [0, largest] if not
  // is_signed.
  std::pair<uint64_t, bool> integer(bool is_signed, uint64_t largest) const;

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

std::ostream& operator<<(std::ostream& out, const Json& json);

}  // namespace bitgrad
