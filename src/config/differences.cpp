// Lists the differences of two configurations, key by key, by the paths that overrides use.
#include <algorithm>
#include <map>

#include "bitgrad/config/config.h"
#include "config/steps.h"

namespace bitgrad {
namespace config {
namespace {

struct Values {
  std::vector<std::pair<std::string, std::string>> list;  // path, text; in file order
  std::map<std::string, std::string> whole;               // maps and lists that have paths below theirs
};

// In one line.
std::string text_of(const Node& node) {
  if (node.kind == Node::Kind::kScalar) return node.text;
  std::string out;
  for (const Node& item : node.items) out += concat(out.empty() ? "" : ", ", text_of(item));
  if (node.kind == Node::Kind::kList) return concat('[', out, ']');
  for (const Entry& entry : node.entries) out += concat(out.empty() ? "" : ", ", entry.key, ": ", text_of(entry.node));
  return concat('{', out, '}');
}

bool is_value(const Node& node) {
  if (node.kind == Node::Kind::kMap) return node.entries.empty();
  if (node.kind != Node::Kind::kList) return true;
  return std::all_of(node.items.begin(), node.items.end(),
                     [](const Node& item) { return item.kind == Node::Kind::kScalar; });
}

void collect(const Node& node, const std::string& path, Values& out) {
  if (is_value(node)) {
    out.list.emplace_back(path, text_of(node));
    return;
  }
  out.whole[path] = text_of(node);
  const std::string before = path.empty() ? "" : path + '.';
  for (const Entry& entry : node.entries) collect(entry.node, before + entry.key, out);
  for (size_t i = 0; i < node.items.size(); ++i) collect(node.items[i], concat(before, i), out);
}

Values values_of(const RunConfig& c) {
  const std::string yaml = to_yaml(c);
  const SourceText source(yaml, 0);
  Report report("configuration", source);
  Node root;
  if (!read_yaml(source, report, root)) report.throw_if_any();
  Values out;
  collect(root, "", out);
  return out;
}

// Whether a path above `key` has a value among these: the two are then compared there.
bool is_below(const std::string& key, const std::map<std::string, std::string>& values) {
  for (size_t at = key.rfind('.'); at != std::string::npos && at > 0; at = key.rfind('.', at - 1))
    if (values.contains(key.substr(0, at))) return true;
  return false;
}

}  // namespace
}  // namespace config

std::vector<ConfigDifference> config_differences(const RunConfig& a, const RunConfig& b) {
  const config::Values ours = config::values_of(a), theirs = config::values_of(b);
  const std::map<std::string, std::string> in_a(ours.list.begin(), ours.list.end()),
      in_b(theirs.list.begin(), theirs.list.end());
  std::vector<ConfigDifference> out;
  for (const auto& [key, value] : ours.list) {
    const auto other = in_b.find(key), map = theirs.whole.find(key);
    if (other != in_b.end() ? other->second == value : config::is_below(key, in_b)) continue;
    out.push_back({key, value,
                   other != in_b.end()         ? std::optional(other->second)
                   : map != theirs.whole.end() ? std::optional(map->second)
                                               : std::nullopt});
  }
  for (const auto& [key, value] : theirs.list)
    if (const auto map = ours.whole.find(key); !in_a.count(key) && !config::is_below(key, in_a))
      out.push_back({key, map != ours.whole.end() ? std::optional(map->second) : std::nullopt, value});
  return out;
}

}  // namespace bitgrad
