#include "train/config/blocks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "train/config/numbers.h"
#include "train/config/schema.h"

namespace bitgrad::config {
namespace {

constexpr std::string_view kRequired = "required";

struct Block {
  const Entry* entry = nullptr;
  const Node* keys = nullptr;
  const Node* layers = nullptr;
  bool used = false;
};

class Expander {
 public:
  explicit Expander(Report& report) : report_(report) {}

  void run(Node& model) {
    Entry* const blocks = model.find("blocks");
    if (blocks == nullptr) return;
    read(blocks->node);
    Entry* const layers = model.find("layers");
    if (layers != nullptr && report_.empty()) expand(layers->node);
    const bool listed = layers != nullptr && layers->node.kind == Node::Kind::kList;
    for (const auto& [name, block] : blocks_)
      if (!block.used && listed && report_.empty())
        report_.error(block.entry->key_mark, concat("model.blocks.", name, ": no layer uses this block"), name.size());
  }

 private:
  void read(const Node& blocks) {
    if (blocks.kind != Node::Kind::kMap)
      return report_.error(blocks.mark, concat("model.blocks: got ", describe(blocks), ", expected a map of blocks"),
                           blocks.length());
    const std::vector<std::string> kinds = keys_of("layer");
    if (!unique(blocks)) return;
    for (const Entry& entry : blocks.entries) {
      const auto wrong = [&](const auto&... parts) {
        report_.error(entry.key_mark, concat("model.blocks.", entry.key, ": ", parts...), entry.key.size());
      };
      if (!is_name(entry.key)) return wrong("the name of a block has letters, digits, '_' and '-'");
      if (std::find(kinds.begin(), kinds.end(), entry.key) != kinds.end())
        return wrong("is the name of a kind of layers");
      read_block(entry);
    }
  }

  // Reports keys that stand twice.
  bool unique(const Node& map) {
    for (const Entry& entry : map.entries) {
      const Entry& first = *map.find(entry.key);
      if (&first == &entry) continue;
      report_.error(entry.key_mark,
                    concat("duplicate key '", entry.key, "'; it is already set at ", first.key_mark.line, ':',
                           first.key_mark.col),
                    entry.key.size());
      return false;
    }
    return true;
  }

  void read_block(const Entry& entry) {
    if (!unique(entry.node)) return;
    Block block{&entry, entry.node.child("keys"), entry.node.child("layers")};
    const std::string path = concat("model.blocks.", entry.key);
    if (entry.node.kind != Node::Kind::kMap || block.layers == nullptr || block.layers->kind != Node::Kind::kList)
      return report_.error(entry.key_mark, concat(path, ": expected {keys: {...}, layers: [...]}"), entry.key.size());
    for (const Entry& other : entry.node.entries)
      if (other.key != "keys" && other.key != "layers")
        report_.error(other.key_mark, concat("unknown key '", other.key, "' in '", path, "'. Known: keys, layers"),
                      other.key.size());
    if (block.keys != nullptr && block.keys->kind != Node::Kind::kMap)
      return report_.error(block.keys->mark,
                           concat(path, ".keys: got ", describe(*block.keys),
                                  ", expected a map of keys, each with its default or required"),
                           block.keys->length());
    if (block.keys != nullptr && !unique(*block.keys)) return;
    check_names(*block.layers, block, entry.key);
    blocks_.emplace(entry.key, block);
  }

  // $key is a whole value.
  static bool is_name_of_key(const Node& node) {
    return node.kind == Node::Kind::kScalar && !node.quoted && node.text.size() > 1 && node.text[0] == '$';
  }
  void check_names(const Node& node, const Block& block, const std::string& name) {
    if (is_name_of_key(node) && (block.keys == nullptr || block.keys->find(node.text.substr(1)) == nullptr))
      report_.error(node.mark, concat("'", node.text, "': block '", name, "' has no such key"), node.length());
    for (const Node& item : node.items) check_names(item, block, name);
    for (const Entry& entry : node.entries) check_names(entry.node, block, name);
  }

  // All lists of layers below a node: layers of containers are found by their form, a list of maps.
  void expand(Node& node) {
    if (++nodes_ > kMaxNodes) {
      if (nodes_ == kMaxNodes + 1)
        report_.error(node.mark, concat("blocks expand to more than ", kMaxNodes, " values"));
      return;
    }
    for (Node& item : node.items) {
      expand_use(item);
      if (nodes_ > kMaxNodes) return;
    }
    for (Entry& entry : node.entries) expand(entry.node);
  }

  void expand_use(Node& item) {
    const auto use_of = std::find_if(item.entries.begin(), item.entries.end(),
                                     [&](const Entry& entry) { return blocks_.count(entry.key) > 0; });
    if (item.kind != Node::Kind::kMap || use_of == item.entries.end()) return expand(item);
    if (item.entries.size() > 1) {
      if (!unique(item)) return;
      return report_.error(item.entries[1].key_mark,
                           concat("a layer has one kind, got ", item.entries[0].key, " and ", item.entries[1].key),
                           item.entries[1].key.size());
    }
    const auto found = blocks_.find(use_of->key);
    Block& block = found->second;
    block.used = true;
    const Entry use = item.entries[0];
    if (std::find(open_.begin(), open_.end(), use.key) != open_.end())
      return report_.error(use.key_mark, concat("block '", use.key, "' uses itself"), use.key.size());
    Arguments arguments;
    if (!take_arguments(use, block, arguments)) return;
    Node layers = *block.layers;
    substitute(layers, arguments);
    const SourceMark at = use.key_mark;
    const std::string where =
        concat("block '", use.key, "', used at ", at.argument > 0 ? concat("argument ", at.argument, ", ") : "",
               at.line, ':', at.col);
    Node map;
    map.kind = Node::Kind::kMap;
    map.mark = use.node.mark;
    map.entries.push_back({"layers", use.key_mark, std::move(layers)});
    item.entries[0] = {"sequence", use.key_mark, std::move(map)};
    item.block = context_.empty() ? where : concat(where, ", in ", context_);
    const std::string outer = std::exchange(context_, item.block);
    open_.push_back(use.key);
    expand(item.entries[0].node.entries[0].node);
    open_.pop_back();
    context_ = outer;
  }

  using Arguments = std::map<std::string, const Node*>;

  bool take_arguments(const Entry& use, const Block& block, Arguments& arguments) {
    std::vector<std::string> known;
    if (block.keys != nullptr)
      for (const Entry& key : block.keys->entries) known.push_back(key.key);
    if (use.node.kind != Node::Kind::kMap && use.node.kind != Node::Kind::kNull) {
      report_.error(use.node.mark,
                    concat(use.key, ": got ", describe(use.node),
                           ", expected a map with the keys of the block: ", known.empty() ? "none" : join(known)),
                    use.node.length());
      return false;
    }
    bool good = unique(use.node);
    for (const Entry& given : use.node.entries) {
      if (std::find(known.begin(), known.end(), given.key) == known.end()) {
        const std::string hint = nearest(given.key, known);
        report_.error(given.key_mark,
                      concat("unknown key '", given.key, "' of block '", use.key, '\'',
                             hint.empty() ? "." : concat(". Did you mean '", hint, "'?"),
                             known.empty() ? " It has no keys." : concat(" Known: ", join(known))),
                      given.key.size());
        good = false;
      }
      arguments.emplace(given.key, &given.node);
    }
    for (const std::string& key : known) {
      if (arguments.count(key) > 0 || !good) continue;  // an unknown key may have meant this one
      const Node& standard = block.keys->find(key)->node;
      if (standard.kind == Node::Kind::kScalar && !standard.quoted && standard.text == kRequired) {
        report_.error(use.key_mark, concat("block '", use.key, "' needs the key '", key, '\''), use.key.size());
        good = false;
      }
      arguments.emplace(key, &standard);
    }
    return good;
  }

  static void substitute(Node& node, const Arguments& arguments) {
    if (is_name_of_key(node)) {
      node = Node(*arguments.at(node.text.substr(1)));
      return;
    }
    for (Node& item : node.items) substitute(item, arguments);
    for (Entry& entry : node.entries) substitute(entry.node, arguments);
  }

  Report& report_;
  std::map<std::string, Block> blocks_;
  std::vector<std::string> open_;  // blocks that are being expanded
  std::string context_;            // of the innermost one
  int64_t nodes_ = 0;
};

}  // namespace

void expand_blocks(Node& root, Report& report) {
  if (Entry* const model = root.find("model")) Expander(report).run(model->node);
}

std::vector<std::string> block_names(const Node& root) {
  std::vector<std::string> names;
  const Node* const model = root.child("model");
  const Node* const blocks = model != nullptr ? model->child("blocks") : nullptr;
  if (blocks != nullptr)
    for (const Entry& entry : blocks->entries) names.push_back(entry.key);
  return names;
}

}  // namespace bitgrad::config
