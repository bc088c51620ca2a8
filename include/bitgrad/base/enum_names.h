// The names of an enumeration's values, listed once: configurations, files and messages use them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/error.h"

namespace bitgrad {

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

}  // namespace bitgrad
