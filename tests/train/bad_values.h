// YAML texts that each type of values must refuse.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "bitgrad/base/number_range.h"
#include "config/numbers.h"
#include "config/schema.h"

namespace bitgrad {

// Just outside of both ends. An end that the double cannot step over in whole numbers is left by a digit more.
inline std::vector<std::string> beyond_range(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.detail);
  if (spec.type == &config::kInt || spec.type == &config::kIntOrAuto)
    return {concat(static_cast<int64_t>(range.lo) - 1),
            range.hi > 9e18 ? "9223372036854775808" : concat(static_cast<int64_t>(range.hi) + 1)};
  return {config::number_text(range.open_lo ? range.lo : std::nextafter(range.lo, -INFINITY)),
          config::number_text(range.open_hi ? range.hi : std::nextafter(range.hi, INFINITY)), "1e999"};
}
inline std::vector<std::string> pair_beyond_range(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.detail);
  const std::string ok = config::number_text(range.lo);
  const std::string over = config::number_text(range.open_hi ? range.hi : std::nextafter(range.hi, INFINITY));
  return {concat('[', ok, ", ", over, ']'), concat('[', over, ", ", ok, ']'), concat('[', ok, ']'),
          concat('[', ok, ", ", ok, ", ", ok, ']')};
}
inline std::vector<std::string> bad_int_lists(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.detail);
  const int64_t lo = static_cast<int64_t>(range.lo), hi = static_cast<int64_t>(range.hi);
  return {"[]", concat('[', lo - 1, ']'), concat('[', lo, ", ", hi + 1, ']'), concat('[', lo, ", ", lo, ']'), "[x]"};
}
inline std::vector<std::string> bad_ints(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.detail);
  const int64_t lo = static_cast<int64_t>(range.lo), hi = static_cast<int64_t>(range.hi);
  const auto list = [&](int64_t count, int64_t last) {
    std::string items;
    for (int64_t i = 0; i < count; ++i) items += concat(i == 0 ? "" : ", ", i + 1 < count ? lo : last);
    return concat('[', items, ']');
  };
  return {concat(lo - 1),
          concat(hi + 1),
          list(0, lo),
          list(spec.count - 1, lo),
          list(spec.count + 1, lo),
          list(spec.count, hi + 1),
          list(spec.count, lo - 1),
          "1.5"};
}
inline std::vector<std::string> bad_number_lists(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.detail);
  const std::string ok = config::number_text(range.lo),
                    under = config::number_text(std::nextafter(range.lo, -INFINITY)),
                    over = config::number_text(std::nextafter(range.hi, INFINITY));
  return {"[]", concat('[', under, ']'), concat('[', ok, ", ", over, ']'), "[x]", "[[1]]"};
}
inline std::vector<std::string> bad_bytes(const config::KeySpec& spec) {
  const int64_t max = static_cast<int64_t>(parse_number_range(spec.detail).hi);
  return {"0", "-1", concat(max + 1), "1e3", "60 kb", "60  KB", "KB", "1.0001 KB", "9e999 KB", "99999999999999999 GB"};
}

// Values of the right type but out of range.
inline std::vector<std::string> out_of_range(const config::KeySpec& spec) {
  using namespace config;
  const ValueType* const type = spec.type;
  if (type == &kInt || type == &kNumber || type == &kNumberOrNone || type == &kIntOrAuto) return beyond_range(spec);
  if (type == &kPair) return pair_beyond_range(spec);
  if (type == &kIntList) return bad_int_lists(spec);
  if (type == &kInts) return bad_ints(spec);
  if (type == &kNumberList) return bad_number_lists(spec);
  if (type == &kBytes) return bad_bytes(spec);
  if (type == &kQuantity || type == &kQuantityOrOff)
    return {spec.detail.ends_with("from 0") ? "-1 steps" : "0 steps", concat(kMostOfAQuantity + 1, " steps")};
  if (type == &kQuantityList)
    return {"[]",
            spec.detail.ends_with("from 0") ? "[-1 steps]" : "[0 steps]",
            "[5 steps, 5 steps]",
            "[5 steps, 4 steps]",
            "[[1 steps]]",
            concat('[', kMostOfAQuantity + 1, " steps]")};
  static const std::map<const ValueType*, std::vector<std::string>> texts{
      {&kMap, {}},
      {&kLayers, {}},
      {&kLayerLists, {}},
      {&kBlocks, {}},
      {&kBlockKeys, {}},
      {&kMaps, {}},
      {&kMetrics, {}},
      {&kBool, {}},
      {&kBudget, {"0", "60 KQ", "\"60 KB\""}},  // what a size alone or the map would refuse
      {&kBest, {"zzz"}},                        // what a name alone or the map would refuse
      {&kLoss, {"zzz"}},
      {&kTextList, {"[[1]]", "[a, a]", "{a: 1}"}},
      {&kNameMap, {"{a: b c}", "{a: \"*\"}", "{a: [1]}", "[a]", "{a: b chw(1,2)}", "{}"}},
      {&kText, {"\"\""}},
      {&kTexts, {"\"\"", "[]", "[[a]]"}},
      {&kName, {"a/b", "..", std::string(65, 'a'), "\"\""}},
      {&kChoice, {"zzz"}},
      {&kRecipe, {"zzz"}},
      {&kGlob, {"\"\"", "\"layers.[1\"", "\"[]\"", "\"[!]\"", "\"[3-1]\"", "\"a]\""}},
      {&kDType, {"zzz"}},
      {&kGranularity,
       {"group", "group(0)", "group(2,32)", "group(1,2,3)", "group(1.5)", "group(32", "group:32", "channel(2)",
        "channel(-1)", "tensor(1)", "()", "zzz"}},
      {&kInit, {"uniform(1)", "constant(1,2)", "constant", "uniform(1,-1)", "normal(0,-1)", "zzz"}}};
  return texts.at(type);
}

inline std::string wrong_type(const config::KeySpec& spec) {
  using namespace config;
  const ValueType* const type = spec.type;
  if (type == &kBool) return "yes";
  for (const ValueType* number : {&kInt, &kNumber, &kNumberOrNone, &kIntOrAuto, &kInts, &kBytes})
    if (type == number) return "abc";
  for (const ValueType* word :
       {&kBudget, &kBest, &kLoss, &kText, &kName, &kChoice, &kRecipe, &kGlob, &kDType, &kGranularity, &kInit})
    if (type == word) return "[1]";
  return "7";
}

}  // namespace bitgrad
