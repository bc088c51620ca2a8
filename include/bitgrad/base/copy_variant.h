// Copies a std::variant safely when copying an alternative throws.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

namespace bitgrad::detail {

// libstdc++ 12 treats a variant of strings, vectors and trivial types as never valueless. If the copy constructor of an
// alternative throws, it then destroys an object that was never constructed. Constructing from the alternative is safe.
template <typename Variant>
Variant copy_of(const Variant& variant) {
  return std::visit(
      [](const auto& value) { return Variant(std::in_place_type<std::remove_cvref_t<decltype(value)>>, value); },
      variant);
}

}  // namespace bitgrad::detail
