#include "config/steps.h"

#include <algorithm>

#include "bitgrad/base/text.h"
#include "config/schema.h"

namespace bitgrad::config {
namespace {

// Applies one argument to the tree. Its value already has marks of the argument (read_yaml); nodes on the path get
// theirs here.
class Override {
 public:
  Override(int argument, std::string_view path, size_t path_begin, const SourceText& text, Report& report)
      : argument_(argument), parts_(split(path, '.')), path_(path), text_(text), report_(report), column_(path_begin) {}

  void set(Node& root, Node value) {
    Node* node = &root;
    for (size_t i = 0; i < parts_.size(); ++i) {
      node = step(*node, i);
      if (!node) return;
    }
    *node = std::move(value);
  }

  void remove(Node& root) {
    Node* node = &root;
    for (size_t i = 0; node && i + 1 < parts_.size(); ++i) node = inside(*node, parts_[i]);
    if (!node || !node->find(parts_.back()))
      return error(concat("'", path_, "' is not set in the file, so there is nothing to reset"));
    const KeySpec* spec = spec_of_path();
    if (spec && needed(*spec, *node)) return error(concat("'", path_, "' is required and has no default"));
    std::erase_if(node->entries, [&](const Entry& entry) { return entry.key == parts_.back(); });
  }

 private:
  SourceMark mark(size_t part) const {
    size_t at = column_;
    for (size_t i = 0; i < part; ++i) at += parts_[i].size() + 1;
    SourceMark m = text_.mark(0, static_cast<int>(at));
    m.argument = argument_;
    return m;
  }
  void error(std::string message) { report_.error(mark(0), std::move(message), path_.size()); }

  // Whether removing `spec` from `map` is wrong in any case. Keys that have an alternative are left to the checks of
  // the whole.
  static bool needed(const KeySpec& spec, Node& map) {
    if (!spec.alternative().empty()) return false;
    const Entry* const selector = map.find(selector_of(spec.group));
    return selector ? spec.required_with(selector->node.text) : spec.required();
  }

  // The existing node, or nullptr.
  static Node* inside(Node& node, const std::string& part) {
    if (node.kind == Node::Kind::kList) return item(node, part);
    Entry* entry = node.find(part);
    return entry ? &entry->node : nullptr;
  }
  static Node* item(Node& list, const std::string& part) {
    int64_t index = 0;
    const bool full = parse_whole(part, index) == NumberResult::kOk;
    return full && index >= 0 && index < static_cast<int64_t>(list.items.size()) ? &list.items[index] : nullptr;
  }

  const KeySpec* spec_of_path() const {
    std::string_view group;
    const KeySpec* spec = nullptr;
    for (const std::string& part : parts_) {
      int64_t number = 0;
      if (spec && parse_whole(part, number) == NumberResult::kOk) continue;
      spec = find_key(group, part);
      if (!spec) return nullptr;
      group = spec->inner();
    }
    return spec;
  }

  // Descends by one part of the path; creates a missing map.
  Node* step(Node& node, size_t i) {
    const std::string& part = parts_[i];
    if (node.kind == Node::Kind::kList) {
      if (Node* found = item(node, part)) return found;
      report_.error(mark(i),
                    concat("'", prefix(i), "' is a list of ", node.items.size(), " items, numbered from 0; got item '",
                           part, "'"),
                    part.size());
      return nullptr;
    }
    if (node.kind == Node::Kind::kNull) {
      node.kind = Node::Kind::kMap;
      node.mark = mark(i);
    }
    if (node.kind == Node::Kind::kScalar) {
      report_.error(mark(i),
                    concat("'", prefix(i), "' is ", describe(node), ", which has no keys; got key '", part, "'"),
                    part.size());
      return nullptr;
    }
    Entry* entry = node.find(part);
    // If the file has the key twice, this changes the first one; the duplicate is still reported.
    if (!entry) entry = &node.entries.emplace_back(Entry{part, mark(i), {}});
    return &entry->node;
  }
  std::string prefix(size_t parts) const {
    std::string out;
    for (size_t i = 0; i < parts; ++i) out = path_of(out, parts_[i]);
    return out;
  }

  int argument_;
  std::vector<std::string> parts_;
  std::string path_;
  const SourceText& text_;
  Report& report_;
  size_t column_;
};

// Limits the depth of the path, since the limits on the file do not apply to the tree it would create.
bool good_path(std::string_view path) {
  return path.size() <= 256 && std::count(path.begin(), path.end(), '.') < kMaxDepth && !path.empty() &&
         path.front() != '.' && path.back() != '.' && path.find("..") == std::string_view::npos;
}

void apply_one(Node& root, const std::string& argument, int number, Report& report) {
  const bool back = argument.starts_with('~');
  const size_t equals = back ? std::string::npos : argument.find('=');
  const size_t path_begin = back ? 1 : 0;
  report.add_argument(SourceText(argument, number, equals == std::string::npos ? 0 : equals + 1));
  const SourceText& text = report.source(number);
  const auto fail_at = [&](std::string message) { report.error({number, 1, 1}, std::move(message), argument.size()); };
  const std::vector<ConfigDiagnostic> bad = text.bad_bytes();
  if (!bad.empty()) return report.add(bad.front());
  if (argument.find('\n') != std::string::npos) return fail_at("the argument contains a line break");
  const std::string_view path =
      std::string_view(argument).substr(path_begin, equals == std::string::npos ? std::string::npos : equals);
  if ((!back && equals == std::string::npos) || !good_path(path))
    return fail_at(
        "expected key=value or ~key, such as optim.lr=0.01, model.layers.0.dropout.p=0.1 or data.affine=[2,-1]");
  Override change(number, path, path_begin, text, report);
  if (back) return change.remove(root);
  Node value;
  if (!read_yaml(text, report, value)) return;
  if (value.kind == Node::Kind::kNull) value.mark = text.mark(0, static_cast<int>(equals) + 1);
  change.set(root, std::move(value));
}

}  // namespace

void apply_overrides(Node& root, const std::vector<std::string>& overrides, Report& report) {
  for (size_t i = 0; i < overrides.size(); ++i) apply_one(root, overrides[i], static_cast<int>(i) + 1, report);
}

}  // namespace bitgrad::config
