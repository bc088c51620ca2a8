#include "train/config/block_keys.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "train/config/numbers.h"
#include "train/config/schema.h"

namespace bitgrad::config {
namespace {

constexpr std::string_view kRequired = "required";

// $key or $key*N, a whole value.
struct KeyUse {
  std::string key;
  std::optional<int64_t> factor;
  bool sound = true;  // of the factor
};

std::optional<KeyUse> key_use(const Node& node) {
  if (node.kind != Node::Kind::kScalar || node.quoted || node.text.size() < 2 || node.text[0] != '$')
    return std::nullopt;
  const size_t star = node.text.find('*');
  KeyUse use{node.text.substr(1, star == std::string::npos ? star : star - 1), {}, true};
  if (star == std::string::npos) return use;
  int64_t factor = 0;
  use.sound = parse_whole(std::string_view(node.text).substr(star + 1), factor) == NumberResult::kOk && factor > 0;
  use.factor = factor;
  return use;
}

bool multiply(const KeyUse& use, const Node& argument, const std::string& shown, Node& out, Report& report) {
  int64_t number = 0, product = 0;
  const bool whole = argument.kind == Node::Kind::kScalar && !argument.quoted &&
                     parse_whole(argument.text, number) == NumberResult::kOk;
  if (!whole || __builtin_mul_overflow(number, *use.factor, &product)) {
    // A key that is used several times says it once.
    if (!report.has_error(argument.mark))
      report.error(argument.mark,
                   concat(use.key, ": got ", describe(argument), ", expected a whole number, for ", shown, " uses it"),
                   argument.length());
    return false;
  }
  out = argument;
  out.text = std::to_string(product);
  return true;
}

bool given_as_map(const Entry& given, const BlockKeys& block, const std::vector<std::string>& known, Report& report) {
  if (given.node.kind == Node::Kind::kMap || given.node.kind == Node::Kind::kNull) return true;
  report.error(given.node.mark,
               concat(block.path, ": got ", describe(given.node), ", expected a map with the keys of the ",
                      block.owner.substr(0, block.owner.find(' ')), ": ", known.empty() ? "none" : join(known)),
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
    if (keys == nullptr || keys->find(use->key) == nullptr)
      report.error(node.mark, concat("'", node.text, "': ", owner, " has no such key"), node.length());
    else if (!use->sound)
      report.error(
          node.mark,
          concat("'", node.text, "': expected $", use->key, " or $", use->key, "*N with a whole number N from 1"),
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
                          known.empty() ? " It has no keys." : concat(" Known: ", join(known))),
                   entry.key.size());
      good = false;
    }
    arguments.emplace(entry.key, &entry.node);
  }
  for (const std::string& key : known) {
    if (arguments.count(key) > 0 || !good) continue;  // an unknown key may have meant this one
    const Node& standard = block.keys->find(key)->node;
    if (standard.kind == Node::Kind::kScalar && !standard.quoted && standard.text == kRequired) {
      report.error(given.key_mark, concat(block.owner, " needs the key '", key, '\''), given.key.size());
      good = false;
    }
    arguments.emplace(key, &standard);
  }
  return good;
}

bool substitute(Node& node, const Arguments& arguments, Report& report) {
  if (const auto use = key_use(node)) {
    const auto found = arguments.find(use->key);
    if (found == arguments.end()) return true;
    if (use->factor) return multiply(*use, *found->second, node.text, node, report);
    node = Node(*found->second);
    return true;
  }
  bool good = true;
  for (Node& item : node.items) good = substitute(item, arguments, report) && good;
  for (Entry& entry : node.entries) good = substitute(entry.node, arguments, report) && good;
  return good;
}

}  // namespace bitgrad::config
