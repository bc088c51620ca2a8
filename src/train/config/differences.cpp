// Lists the differences of two configurations, key by key, by the paths that overrides use.
#include <algorithm>
#include <map>

#include "bitgrad/train/config.h"
#include "train/config/yaml.h"

namespace bitgrad {
namespace config {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;  // path, text; in file order

std::string list_text(const Node& list) {
  std::string out;
  for (const Node& item : list.items) out += concat(out.empty() ? "" : ", ", item.text);
  return concat('[', out, ']');
}

bool is_value(const Node& node) {
  if (node.kind == Node::Kind::kMap) return node.entries.empty();
  if (node.kind != Node::Kind::kList) return true;
  return std::all_of(node.items.begin(), node.items.end(),
                     [](const Node& item) { return item.kind == Node::Kind::kScalar; });
}

std::string value_text(const Node& node) {
  if (node.kind == Node::Kind::kList) return list_text(node);
  return node.kind == Node::Kind::kMap ? "{}" : node.text;
}

void collect(const Node& node, const std::string& path, Values& out) {
  if (is_value(node)) {
    out.emplace_back(path, value_text(node));
    return;
  }
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

}  // namespace
}  // namespace config

std::vector<ConfigDifference> config_differences(const RunConfig& a, const RunConfig& b) {
  const config::Values ours = config::values_of(a), theirs = config::values_of(b);
  const std::map<std::string, std::string> in_a(ours.begin(), ours.end()), in_b(theirs.begin(), theirs.end());
  std::vector<ConfigDifference> out;
  for (const auto& [key, value] : ours) {
    const auto other = in_b.find(key);
    if (other == in_b.end())
      out.push_back({key, value, std::nullopt});
    else if (other->second != value)
      out.push_back({key, value, other->second});
  }
  for (const auto& [key, value] : theirs)
    if (!in_a.count(key)) out.push_back({key, std::nullopt, value});
  return out;
}

}  // namespace bitgrad
