#include "bitgrad/quant/rounding.h"

#include <span>

#include "bitgrad/base/error.h"

namespace bitgrad {
namespace {

template <typename T>
struct Named {
  T value;
  std::string_view name;
};
constexpr Named<Rounding> kRoundings[] = {{Rounding::kNearest, "nearest"}, {Rounding::kStochastic, "stochastic"}};
constexpr Named<SteRule> kRules[] = {{SteRule::kIdentity, "identity"},
                                     {SteRule::kClip, "clip"},
                                     {SteRule::kApproxSign, "approx_sign"},
                                     {SteRule::kTanh, "tanh"},
                                     {SteRule::kNone, "none"}};

template <typename T>
std::string_view name_of(std::span<const Named<T>> all, T value, std::string_view where) {
  for (const Named<T>& n : all)
    if (n.value == value) return n.name;
  fail_with(ErrorCode::kBug, where, "internal error: unknown value ", static_cast<int>(value));
}

template <typename T>
T parse(std::span<const Named<T>> all, std::string_view name, std::string_view where, std::string_view what) {
  std::string list;
  for (const Named<T>& n : all) {
    if (n.name == name) return n.value;
    list += concat(list.empty() ? "" : ", ", n.name);
  }
  fail(where, "unknown ", what, ": got \"", name, "\", expected one of ", list, '.');
}

template <typename T>
std::vector<std::string_view> names(std::span<const Named<T>> all) {
  std::vector<std::string_view> out;
  for (const Named<T>& n : all) out.push_back(n.name);
  return out;
}

}  // namespace

std::string_view rounding_name(Rounding rounding) { return name_of<Rounding>(kRoundings, rounding, "rounding_name"); }
Rounding parse_rounding(std::string_view name) {
  return parse<Rounding>(kRoundings, name, "parse_rounding", "rounding");
}
std::vector<std::string_view> rounding_names() { return names<Rounding>(kRoundings); }

std::string_view ste_name(SteRule rule) { return name_of<SteRule>(kRules, rule, "ste_name"); }
SteRule parse_ste(std::string_view name) { return parse<SteRule>(kRules, name, "parse_ste", "straight-through rule"); }
std::vector<std::string_view> ste_names() { return names<SteRule>(kRules); }

}  // namespace bitgrad
