// The fields that keys set, by the lines of keys.inc. A section is a struct whose fields are keys of one group.
#pragma once

#include <string_view>
#include <type_traits>

#include "bitgrad/config/config.h"

namespace bitgrad::config {

// Fields in another form than that of their key: [a, b], one word for true and another for false, none for 0.
template <typename T>
struct Pair {
  T &first, &second;
};
template <typename T>
struct Words {
  T& flag;
  const char *yes, *no;
};
template <typename T>
struct Limit {
  T& value;
};

// A map that may be absent.
template <typename T>
struct AtMostOne {
  T& list;
};

// Aggregates deduce their arguments by guides only before clang 17.
template <typename T>
Pair(T&, T&) -> Pair<T>;
template <typename T>
Words(T&, const char*, const char*) -> Words<T>;
template <typename T>
Limit(T&) -> Limit<T>;
template <typename T>
AtMostOne(T&) -> AtMostOne<T>;

// Calls v(key, field) for each field of a section, in the order of keys.inc.
template <typename V, typename C>
void visit(V&& v, C& c) {
#define BITGRAD_CONFIG_KEY(...)
#define BITGRAD_FIELD_AS(Struct, group, key, field, ...) \
  if constexpr (std::is_same_v<std::remove_const_t<C>, Struct>) v(std::string_view(#key), field);
#include "config/keys.inc"
}

// The group of a section's keys; without data: T is none.
template <typename T>
constexpr std::string_view section_group() {
#define BITGRAD_CONFIG_KEY(...)
#define BITGRAD_FIELD_AS(Struct, group, ...) \
  if constexpr (std::is_same_v<T, Struct>) return group;
#include "config/keys.inc"
  return {};
}
template <typename T>
concept Section = section_group<std::remove_const_t<T>>()
.data() != nullptr;

// What is quantized; this determines which keys a quantizer has.
enum class Role : uint8_t { kWeights, kActivations, kGradients };
constexpr std::string_view group_of(Role role) {
  return role == Role::kWeights ? "weights" : role == Role::kActivations ? "activations" : "quantize_gradient";
}

}  // namespace bitgrad::config
