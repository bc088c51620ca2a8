#include "config/steps.h"

#include <algorithm>
#include <map>
#include <utility>

#include "config/block_keys.h"
#include "config/schema.h"
#include "config/texts.h"

namespace bitgrad::config {
namespace {

struct Block {
  const Entry* entry = nullptr;
  const Node* keys = nullptr;
  const Node* layers = nullptr;
  bool used = false;
};

class Expander {
 public:
  Expander(Report& report, std::string context) : report_(report), context_(std::move(context)) {}

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
  static std::string shown(const std::string& name) { return concat("block '", name, '\''); }

  void read(const Node& blocks) {
    if (blocks.kind != Node::Kind::kMap)
      return report_.error(blocks.mark, concat("model.blocks: got ", describe(blocks), ", expected a map of blocks"),
                           blocks.length());
    const std::vector<std::string> kinds = keys_of("layer");
    if (!unique_keys(blocks, report_)) return;
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

  void read_block(const Entry& entry) {
    if (!unique_keys(entry.node, report_)) return;
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
    if (block.keys != nullptr && !unique_keys(*block.keys, report_)) return;
    check_key_uses(*block.layers, block.keys, shown(entry.key), report_);
    blocks_.emplace(entry.key, block);
  }

  // Expands all lists of layers below a node. Lists in containers are recognized by their form, a list of maps.
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
      if (!unique_keys(item, report_)) return;
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
    if (!take_arguments(use, {shown(use.key), use.key, block.keys}, arguments, report_)) return;
    Node layers = *block.layers;
    if (!substitute(layers, arguments, report_, true)) return;
    const std::string where = concat(shown(use.key), ", used at ", report_.place(use.key_mark));
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

  Report& report_;
  std::map<std::string, Block> blocks_;
  std::vector<std::string> open_;  // blocks being expanded
  std::string context_;            // of the innermost block, and of all that enclose it
  int64_t nodes_ = 0;
};

}  // namespace

void expand_blocks(Node& root, Report& report, const std::string& context) {
  if (Entry* const model = root.find("model")) Expander(report, context).run(model->node);
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
