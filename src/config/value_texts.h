// Values as the writer of configurations shows them.
#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/key.h"
#include "config/choices.h"
#include "config/fields.h"
#include "config/texts.h"

namespace bitgrad::config {

inline bool plain_word(std::string_view s) {
  constexpr std::string_view kSafe = "_./+-";
  const auto ok = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kSafe.find(c) != std::string_view::npos;
  };
  if (s.empty() || s == "-" || s == "---" || s == "..." || s == "null" || s == "Null" || s == "NULL") return false;
  for (char c : s)
    if (!ok(c)) return false;
  return true;
}

inline std::string yaml_text(const std::string& s) {
  if (plain_word(s)) return s;
  std::string out = "\"";
  for (char c : s) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < 0x20 || byte == 0x7F)
      out += concat("\\x", "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]);  // else folded into a blank
    else
      out += c;
  }
  return out + '"';
}
template <std::integral T>
std::string yaml_text(T x) {
  if constexpr (std::is_same_v<T, bool>) return x ? "true" : "false";
  return concat(x);
}
template <std::floating_point T>
std::string yaml_text(T x) {
  return number_text(x);
}
inline std::string yaml_text(DType dtype) { return yaml_text(dtype.name()); }
inline std::string yaml_text(const Quantity& quantity) { return concat(quantity); }
template <NamedEnum E>
std::string yaml_text(E value) {
  return yaml_text(std::string(enum_name(value)));
}
// "uniform(a,b)", "normal(mean,sd)", "constant(a)", or a name without numbers; the default has the name that it stands
// for.
inline std::string yaml_text(const Init& init) {
  std::string out = init.name.empty() ? "glorot_uniform" : init.name;
  for (const choices::InitKind& kind : choices::init_kinds())
    if (kind.name == init.name && kind.numbers > 0)
      out += concat('(', number_text(init.a), kind.numbers == 2 ? "," + number_text(init.b) : "", ')');
  return yaml_text(out);
}
inline std::string yaml_text(const Granularity& granularity) { return concat(granularity); }
template <typename T>
std::string yaml_text(const Pair<T>& pair) {
  const auto text = [](const auto& x) {
    if constexpr (requires { x.has_value(); })
      return number_text(x.value_or(0));
    else
      return number_text(x);
  };
  return concat('[', text(pair.first), ", ", text(pair.second), ']');
}
inline std::string yaml_text(const std::array<float, 2>& pair) { return yaml_text(Pair{pair[0], pair[1]}); }
template <typename T>
std::string yaml_text(const Words<T>& word) {
  return yaml_text(std::string(word.flag ? word.yes : word.no));
}
template <typename T>
std::string yaml_text(const Limit<T>& limit) {
  return limit.value > 0 ? number_text(limit.value) : "none";
}
template <Section C>
std::string yaml_text(const C& c);  // in write.cpp
template <typename T>
std::string yaml_text(const std::optional<T>& x) {
  constexpr std::string_view none = std::is_same_v<T, Quantity> ? "off" : std::integral<T> ? "auto" : "none";
  return x ? yaml_text(*x) : std::string(none);
}
std::string yaml_text(const std::optional<ObserverSpec>& c);  // in write.cpp, as the next one
std::string yaml_text(const TransformConfig& transform);

// [a, b], from the text of each item.
template <typename Items, typename Text>
std::string list_of(const Items& items, Text text_of) {
  std::string out;
  for (const auto& item : items) out += concat(out.empty() ? "" : ", ", text_of(item));
  return concat('[', out, ']');
}
template <typename T>
std::string yaml_text(const std::vector<T>& items) {
  return list_of(items, [](const T& item) { return yaml_text(item); });
}
inline std::string yaml_text(const std::vector<WeightName>& names) {
  std::string out;
  for (const WeightName& n : names)
    out += concat(out.empty() ? "" : ", ", yaml_text(n.parameter), ": ", yaml_text(value_text(n)));
  return concat('{', out, '}');
}
inline std::string yaml_text(const Attribute& attribute) {
  return std::visit([](const auto& x) { return yaml_text(x); }, attribute.value());
}

}  // namespace bitgrad::config
