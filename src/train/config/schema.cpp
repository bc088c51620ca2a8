#include "train/config/schema.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "bitgrad/base/text.h"
#include "train/config/choices.h"
#include "train/config/yaml.h"

namespace bitgrad::config {
namespace {

const KeySpec kKeys[] = {
#define BITGRAD_CONFIG_KEY(group, key, type, detail, standard, when, choices, doc) \
  {group, key, &type, detail, standard, when, choices, doc},
#include "train/config/keys.inc"
#undef BITGRAD_CONFIG_KEY
};

// Groups whose keys depend on one of them.
struct Selector {
  std::string_view group, key;
  bool merged = false;  // the key may come from another map, so that it is known after merging only
};
constexpr Selector kSelectors[] = {
    {"dataset", "format"},           {"optim", "name"},          {"schedule", "name"},    {"weights", "scheme", true},
    {"activations", "scheme", true}, {"observer", "name", true}, {"device", "kind", true}};

}  // namespace

bool KeySpec::applies(std::string_view selected) const {
  if (when.empty()) return true;
  const std::vector<std::string> values = split(when, ',');
  return std::find(values.begin(), values.end(), selected) != values.end();
}

std::span<const KeySpec> all_keys() { return kKeys; }

const KeySpec* find_key(std::string_view group, std::string_view key) {
  static const auto index = [] {
    std::map<std::pair<std::string_view, std::string_view>, const KeySpec*> map;
    for (const KeySpec& spec : kKeys) map.emplace(std::pair(spec.group, spec.key), &spec);
    return map;
  }();
  const auto found = index.find({group, key});
  return found == index.end() ? nullptr : found->second;
}

std::vector<std::string> keys_of(std::string_view group) {
  std::vector<std::string> keys;
  for (const KeySpec& spec : kKeys)
    if (spec.group == group) keys.emplace_back(spec.key);
  return keys;
}

std::string_view selector_of(std::string_view group, bool merged) {
  for (const Selector& selector : kSelectors)
    if (selector.group == group && (merged || !selector.merged)) return selector.key;
  return {};
}

namespace {

Value read_default(const KeySpec& spec) {
  if (!spec.has_default() || !spec.type->read) return {};
  const SourceText text(spec.standard, 0);
  Report report("default", text);
  Node node;
  Value value;
  ensure(read_yaml(text, report, node), "config", "bad default '", spec.standard, '\'');
  const std::string wrong = spec.type->read(spec, node, value);
  ensure(wrong.empty(), "config", "default of ", spec.group, '.', spec.key, ": ", wrong);
  return value;
}

}  // namespace

const Value& default_value(const KeySpec& spec) {
  static const std::vector<Value> defaults = [] {
    std::vector<Value> values;
    for (const KeySpec& s : kKeys) values.push_back(read_default(s));
    return values;
  }();
  return defaults[static_cast<size_t>(&spec - kKeys)];
}

Range parse_range(std::string_view text) {
  const size_t comma = text.find(',');
  ensure(comma != std::string_view::npos, "config", "bad range '", text, '\'');
  Range range{0, 0, text.front() == '(', text.back() == ')'};
  const std::string_view lo = text.substr(1, comma - 1), hi = text.substr(comma + 2, text.size() - comma - 3);
  std::from_chars(lo.data(), lo.data() + lo.size(), range.lo);
  std::from_chars(hi.data(), hi.data() + hi.size(), range.hi);
  return range;
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;
  if (word.size() > kLongest) return {};
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& name : names) {
    const int distance = edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string join(const std::vector<std::string>& names, std::string_view separator) {
  std::string out;
  for (const std::string& name : names) {
    if (!out.empty()) out += separator;
    out += name;
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator, begin)) {
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string path_of(std::string_view group_path, std::string_view key) {
  return group_path.empty() ? std::string(key) : concat(group_path, '.', key);
}

}  // namespace bitgrad::config
