// Copies of std::variant that survive a copy which throws.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

namespace bitgrad::detail {

// libstdc++ 12 takes a variant of strings, vectors and plain types as never valueless, and so destroys what was not made
// yet when the copy constructor of an alternative throws. The constructor from an alternative is sound.
template <typename Variant>
Variant copy_of(const Variant& variant) {
  return std::visit(
      [](const auto& value) { return Variant(std::in_place_type<std::remove_cvref_t<decltype(value)>>, value); },
      variant);
}

}  // namespace bitgrad::detail
