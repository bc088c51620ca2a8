// YAML texts that each type of values must refuse.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "bitgrad/base/key.h"
#include "config/schema.h"
#include "config/texts.h"

namespace bitgrad {

// Just outside of both ends. An end that the double cannot step over in whole numbers is left by a digit more.
inline std::vector<std::string> beyond_range(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.range);
  if (spec.type == Key::Type::kInt || spec.type == Key::Type::kIntOrAuto)
    return {concat(static_cast<int64_t>(range.lo) - 1),
            range.hi > 9e18 ? "9223372036854775808" : concat(static_cast<int64_t>(range.hi) + 1)};
  return {number_text(range.open_lo ? range.lo : std::nextafter(range.lo, -INFINITY)),
          number_text(range.open_hi ? range.hi : std::nextafter(range.hi, INFINITY)), "1e999"};
}
inline std::vector<std::string> pair_beyond_range(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.range);
  const std::string ok = number_text(range.lo);
  const std::string over = number_text(range.open_hi ? range.hi : std::nextafter(range.hi, INFINITY));
  return {concat('[', ok, ", ", over, ']'), concat('[', over, ", ", ok, ']'), concat('[', ok, ']'),
          concat('[', ok, ", ", ok, ", ", ok, ']')};
}
inline std::vector<std::string> bad_int_lists(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.range);
  const int64_t lo = static_cast<int64_t>(range.lo), hi = static_cast<int64_t>(range.hi);
  return {"[]", concat('[', lo - 1, ']'), concat('[', lo, ", ", hi + 1, ']'), concat('[', lo, ", ", lo, ']'), "[x]"};
}
inline std::vector<std::string> bad_ints(const config::KeySpec& spec) {
  const NumberRange range = parse_number_range(spec.range);
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
  const NumberRange range = parse_number_range(spec.range);
  const std::string ok = number_text(range.lo), under = number_text(std::nextafter(range.lo, -INFINITY)),
                    over = number_text(std::nextafter(range.hi, INFINITY));
  return {"[]", concat('[', under, ']'), concat('[', ok, ", ", over, ']'), "[x]", "[[1]]"};
}
inline std::vector<std::string> bad_bytes(const config::KeySpec& spec) {
  const int64_t max = static_cast<int64_t>(parse_number_range(spec.range).hi);
  return {"0", "-1", concat(max + 1), "1e3", "60 kb", "60  KB", "KB", "1.0001 KB", "9e999 KB", "99999999999999999 GB"};
}

// Values of the right type but out of range.
inline std::vector<std::string> out_of_range(const config::KeySpec& spec) {
  using namespace config;
  const Type type = spec.type;
  if (type == Key::Type::kInt || type == Key::Type::kNumber || type == Key::Type::kNumberOrNone ||
      type == Key::Type::kIntOrAuto)
    return beyond_range(spec);
  if (type == Key::Type::kPair) return pair_beyond_range(spec);
  if (type == Key::Type::kIntList) return bad_int_lists(spec);
  if (type == Key::Type::kInts) return bad_ints(spec);
  if (type == Key::Type::kNumbers) return bad_number_lists(spec);
  if (type == Key::Type::kBytes) return bad_bytes(spec);
  if (type == Key::Type::kQuantity || type == Key::Type::kQuantityOrOff)
    return {spec.range.ends_with("from 0") ? "-1 steps" : "0 steps", concat(kMostOfAQuantity + 1, " steps")};
  if (type == Key::Type::kQuantityList)
    return {"[]",
            spec.range.ends_with("from 0") ? "[-1 steps]" : "[0 steps]",
            "[5 steps, 5 steps]",
            "[5 steps, 4 steps]",
            "[[1 steps]]",
            concat('[', kMostOfAQuantity + 1, " steps]")};
  static const std::map<Type, std::vector<std::string>> texts{
      {Key::Type::kMap, {}},
      {Key::Type::kLayers, {}},
      {Key::Type::kLayerLists, {}},
      {Key::Type::kBlocks, {}},
      {Key::Type::kBlockKeys, {}},
      {Key::Type::kMaps, {}},
      {Key::Type::kMetrics, {}},
      {Key::Type::kBool, {}},
      {Key::Type::kBudget, {"0", "60 KQ", "\"60 KB\""}},  // what a size alone or the map would refuse
      {Key::Type::kBest, {"zzz"}},                        // what a name alone or the map would refuse
      {Key::Type::kChat, {"zzz"}},                        // the same
      {Key::Type::kTemplate, {"\"a\\x01\""}},
      {Key::Type::kLoss, {"zzz"}},
      {Key::Type::kTextList, {"[[1]]", "[a, a]", "{a: 1}"}},
      {Key::Type::kNameMap, {"{a: b c}", "{a: \"*\"}", "{a: [1]}", "[a]", "{a: b chw(1,2)}", "{}"}},
      {Key::Type::kText, {"\"\""}},
      {Key::Type::kTexts, {"\"\"", "[]", "[[a]]"}},
      {Key::Type::kName, {"a/b", "..", std::string(65, 'a'), "\"\""}},
      {Key::Type::kChoice, {"zzz"}},
      {Key::Type::kRecipe, {"zzz"}},
      {Key::Type::kGlob, {"\"\"", "\"layers.[1\"", "\"[]\"", "\"[!]\"", "\"[3-1]\"", "\"a]\""}},
      {Key::Type::kDType, {"zzz"}},
      {Key::Type::kGranularity,
       {"group", "group(0)", "group(2,32)", "group(1,2,3)", "group(1.5)", "group(32", "group:32", "channel(2)",
        "channel(-1)", "tensor(1)", "()", "zzz"}},
      {Key::Type::kInit, {"uniform(1)", "constant(1,2)", "constant", "uniform(1,-1)", "normal(0,-1)", "zzz"}}};
  return texts.at(type);
}

inline std::string wrong_type(const config::KeySpec& spec) {
  using namespace config;
  const Type type = spec.type;
  if (type == Key::Type::kBool) return "yes";
  for (const Type number : {Key::Type::kInt, Key::Type::kNumber, Key::Type::kNumberOrNone, Key::Type::kIntOrAuto,
                            Key::Type::kInts, Key::Type::kBytes})
    if (type == number) return "abc";
  for (const Type word : {Key::Type::kBudget, Key::Type::kBest, Key::Type::kChat, Key::Type::kTemplate,
                          Key::Type::kLoss, Key::Type::kText, Key::Type::kName, Key::Type::kChoice, Key::Type::kRecipe,
                          Key::Type::kGlob, Key::Type::kDType, Key::Type::kGranularity, Key::Type::kInit})
    if (type == word) return "[1]";
  return "7";
}

}  // namespace bitgrad
