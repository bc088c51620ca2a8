#include "config/block_keys.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "bitgrad/base/text.h"
#include "bitgrad/nn/layers.h"
#include "config/schema.h"

namespace bitgrad::config {
namespace {

constexpr std::string_view kRequired = "required";

// A whole value: $key alone, or a sum of products and quotients of keys and whole numbers, "$dim + 2*$heads*$d".
struct Factor {
  std::string key;  // empty: a number
  int64_t number = 0;
  bool divides = false;
};
using Product = std::vector<Factor>;
struct KeyUse {
  std::vector<Product> sum;
  bool sound = true;  // whether the text is a valid expression
  bool alone() const { return sum.size() == 1 && sum[0].size() == 1 && !sum[0][0].key.empty(); }
};

bool in_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Removes one factor from the front of `text`.
bool take_factor(std::string_view& text, Factor& factor) {
  const bool key = text.starts_with('$');
  if (key) text.remove_prefix(1);
  size_t length = 0;
  while (length < text.size() && (key ? in_key(text[length]) : text[length] >= '0' && text[length] <= '9')) ++length;
  const std::string_view word = text.substr(0, length);
  text.remove_prefix(length);
  if (key) factor.key = word;
  return key ? length > 0 : parse_whole(word, factor.number) == NumberResult::kOk && factor.number > 0;
}

std::optional<KeyUse> key_use(const Node& node) {
  const std::string_view whole = node.text;
  if (node.kind != Node::Kind::kScalar || node.quoted || whole.size() < 2) return std::nullopt;
  const bool number = whole[0] >= '0' && whole[0] <= '9';
  if (whole[0] != '$' && !(number && whole.find('$') != whole.npos)) return std::nullopt;
  KeyUse use{{{}}, true};
  std::string_view text = whole;
  const auto spaces = [&] { text.remove_prefix(std::min(text.find_first_not_of(' '), text.size())); };
  for (char op = '*';;) {
    Factor factor;
    factor.divides = op == '/';
    spaces();
    if (!(use.sound = take_factor(text, factor))) return use;
    use.sum.back().push_back(std::move(factor));
    spaces();
    if (text.empty()) return use;
    op = text[0];
    text.remove_prefix(1);
    if (!(use.sound = op == '*' || op == '/' || op == '+')) return use;
    if (op == '+') use.sum.emplace_back();
  }
}

// Reported once per argument, even if the key is used several times.
void not_whole(const std::string& key, const Node& argument, const Node& use, Report& report) {
  if (!report.has_error(argument.mark))
    report.error(argument.mark,
                 concat(key, ": got ", describe(argument), ", expected a whole number, for ", use.text, " uses it"),
                 argument.length());
}

// Replaces an expression in `node` by its value. Keys not in `arguments` belong to an outer block and are left alone.
bool compute(const KeyUse& use, const Arguments& arguments, Node& node, Report& report) {
  int64_t sum = 0;
  Arguments::const_iterator key = arguments.end();  // the key read last
  const auto too_large = [&] {
    if (key != arguments.end())
      not_whole(key->first, *key->second, node, report);
    else
      report.error(node.mark, concat(node.text, ": value does not fit in 64 bits"), node.length());
    return false;
  };
  for (const Product& product : use.sum) {
    int64_t value = 1;
    for (const Factor& factor : product) {
      int64_t number = factor.number;
      if (!factor.key.empty()) {
        key = arguments.find(factor.key);
        if (key == arguments.end()) return true;
        const Node& given = *key->second;
        const bool whole =
            given.kind == Node::Kind::kScalar && !given.quoted && parse_whole(given.text, number) == NumberResult::kOk;
        if (!whole) return not_whole(factor.key, given, node, report), false;
      }
      if (factor.divides && (number <= 0 || value % number != 0)) {
        report.error(node.mark, concat(node.text, ": ", value, " / ", number, ", not a whole number"), node.length());
        return false;
      }
      if (factor.divides)
        value /= number;
      else if (__builtin_mul_overflow(value, number, &value))
        return too_large();
    }
    if (__builtin_add_overflow(sum, value, &sum)) return too_large();
  }
  node.text = std::to_string(sum);
  return true;
}

// Nesting depth of lists around the layers under a key of a container: 1, or 2 for a list of lists; 0 if the key has no
// layers.
int lists_of_layers(const std::string& kind_name, const std::string& key) {
  const LayerKind* const kind = find_layer_kind(kind_name);
  if (kind == nullptr) return 0;
  const std::vector<Key>& named = kind->lists.keys;
  switch (kind->lists.kind) {
    case LayerLists::Kind::kNone:
      return 0;
    case LayerLists::Kind::kNamed:
      return std::any_of(named.begin(), named.end(), [&](const Key& k) { return k.name == key; }) ? 1 : 0;
    case LayerLists::Kind::kInline:
    case LayerLists::Kind::kRepeated:
      return key == "layers" ? 1 : 0;
    case LayerLists::Kind::kIndexed:
      return key == "layers" ? 2 : 0;
  }
  return 0;
}

class Substitution {
 public:
  Substitution(const Arguments& arguments, Report& report) : arguments_(arguments), report_(report) {}

  // lists: nesting depth of lists around the layers in `node`, including itself; 0: it has no layers.
  bool value(Node& node, int lists) {
    if (const auto use = key_use(node)) return replace(*use, node);
    bool good = true;
    if (lists == 1) splice(node);
    for (Node& item : node.items) good = (lists == 1 ? layer(item) : value(item, std::max(lists - 1, 0))) && good;
    for (Entry& entry : node.entries) good = value(entry.node, 0) && good;
    return good;
  }

 private:
  bool layer(Node& item) {
    if (const auto use = key_use(item)) return replace(*use, item);
    bool good = true;
    for (Entry& kind : item.entries) {
      if (key_use(kind.node)) {
        good = value(kind.node, 0) && good;
        continue;
      }
      for (Entry& key : kind.node.entries) good = value(key.node, lists_of_layers(kind.key, key.key)) && good;
      for (Node& other : kind.node.items) good = value(other, 0) && good;
    }
    return good;
  }

  bool replace(const KeyUse& use, Node& node) {
    if (!use.alone()) return compute(use, arguments_, node, report_);
    const auto found = arguments_.find(use.sum[0][0].key);
    if (found != arguments_.end()) node = Node(*found->second);
    return true;
  }

  // In a list of layers, replaces each key that holds a list by the layers of that list.
  void splice(Node& layers) {
    std::vector<Node> out;
    for (Node& item : layers.items) {
      const auto use = key_use(item);
      const auto found = use && use->alone() ? arguments_.find(use->sum[0][0].key) : arguments_.end();
      if (found != arguments_.end() && found->second->kind == Node::Kind::kList)
        out.insert(out.end(), found->second->items.begin(), found->second->items.end());
      else
        out.push_back(std::move(item));
    }
    layers.items = std::move(out);
  }

  const Arguments& arguments_;
  Report& report_;
};

bool given_as_map(const Entry& given, const BlockKeys& block, const std::vector<std::string>& known, Report& report) {
  if (given.node.kind == Node::Kind::kMap || given.node.kind == Node::Kind::kNull) return true;
  report.error(given.node.mark,
               concat(block.path, ": got ", describe(given.node), ", expected a map with the keys of the ",
                      block.owner.substr(0, block.owner.find(' ')), ": ", known.empty() ? "none" : joined(known)),
               given.node.length());
  return false;
}

}  // namespace

bool unique_keys(const Node& map, Report& report) {
  for (const Entry& entry : map.entries) {
    const Entry& first = *map.find(entry.key);
    if (&first == &entry) continue;
    report.error(
        entry.key_mark,
        concat("duplicate key '", entry.key, "'; it is already set at ", first.key_mark.line, ':', first.key_mark.col),
        entry.key.size());
    return false;
  }
  return true;
}

void check_key_uses(const Node& node, const Node* keys, const std::string& owner, Report& report) {
  if (const auto use = key_use(node)) {
    const auto unknown = [&](const Factor& factor) {
      return !factor.key.empty() && (keys == nullptr || keys->find(factor.key) == nullptr);
    };
    if (std::any_of(use->sum.begin(), use->sum.end(),
                    [&](const Product& product) { return std::any_of(product.begin(), product.end(), unknown); }))
      report.error(node.mark, concat("'", node.text, "': ", owner, " has no such key"), node.length());
    else if (!use->sound)
      report.error(node.mark,
                   concat("'", node.text,
                          "': expected $key, or products of keys and whole numbers from 1 (* and /) and "
                          "their sums, as $dim + 2*$heads"),
                   node.length());
  }
  for (const Node& item : node.items) check_key_uses(item, keys, owner, report);
  for (const Entry& entry : node.entries) check_key_uses(entry.node, keys, owner, report);
}

bool take_arguments(const Entry& given, const BlockKeys& block, Arguments& arguments, Report& report) {
  std::vector<std::string> known;
  if (block.keys != nullptr)
    for (const Entry& key : block.keys->entries) known.push_back(key.key);
  if (!given_as_map(given, block, known, report)) return false;
  bool good = unique_keys(given.node, report);
  for (const Entry& entry : given.node.entries) {
    if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
      const std::string hint = nearest(entry.key, known);
      report.error(entry.key_mark,
                   concat("unknown key '", entry.key, "' of ", block.owner,
                          hint.empty() ? "." : concat(". Did you mean '", hint, "'?"),
                          known.empty() ? " It has no keys." : concat(" Known: ", joined(known))),
                   entry.key.size());
      good = false;
    }
    arguments.emplace(entry.key, &entry.node);
  }
  for (const std::string& key : known) {
    if (arguments.count(key) > 0 || !good) continue;  // an unknown key may be a misspelling of this one
    const Node& standard = block.keys->find(key)->node;
    if (standard.kind == Node::Kind::kScalar && !standard.quoted && standard.text == kRequired) {
      report.error(given.key_mark, concat(block.owner, " needs the key '", key, '\''), given.key.size());
      good = false;
    }
    arguments.emplace(key, &standard);
  }
  return good;
}

bool substitute(Node& node, const Arguments& arguments, Report& report, bool layers) {
  return Substitution(arguments, report).value(node, layers ? 1 : 0);
}

}  // namespace bitgrad::config
