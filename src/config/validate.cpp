#include "config/steps.h"

#include <algorithm>
#include <map>

#include "bitgrad/base/text.h"
#include "bitgrad/task/metric.h"

namespace bitgrad::config {
namespace {

bool has_misspelt_blocks(const Node& root) {
  const Node* const model = root.child("model");
  return model != nullptr && std::any_of(model->entries.begin(), model->entries.end(), [](const Entry& entry) {
           return find_key("model", entry.key) == nullptr && nearest(entry.key, {"blocks"}) == "blocks";
         });
}

// A map being checked.
struct Place {
  std::string_view group;
  std::string path;     // "data.train", "model.layers.3.linear", "" at the top
  SourceMark key_mark;  // of the key that holds the map: missing keys are reported there
};

class Validator {
 public:
  Validator(Report& report, const Node& root)
      : report_(report), blocks_(block_names(root)), blocks_misspelt_(has_misspelt_blocks(root)) {}

  void check_map(Node& node, const Place& place) {
    if (node.kind == Node::Kind::kNull) node.kind = Node::Kind::kMap;  // `train:` with nothing below it
    std::map<std::string_view, const Entry*> first;
    const std::vector<std::string> absent = absent_keys(node, place.group);
    for (Entry& entry : node.entries) {
      const auto [other, is_new] = first.emplace(entry.key, &entry);
      const KeySpec* spec = find_key(place.group, entry.key);
      if (!spec) {
        unknown(node, entry, place, absent);
      } else if (!is_new) {
        const SourceMark at = other->second->key_mark;
        report_.error(entry.key_mark,
                      concat("duplicate key '", entry.key, "'; it is already set at ", at.line, ':', at.col),
                      entry.key.size());
      } else {
        check_value(entry, *spec, path_of(place.path, entry.key));
      }
    }
    const std::string selected = check_selector(node, place);
    report_missing(&node, place, selected);
  }

 private:
  void check_value(Entry& entry, const KeySpec& spec, const std::string& path) {
    Node& node = entry.node;
    const bool short_form = spec.type == Type::kBudget || spec.type == Type::kBest || spec.type == Type::kChat;
    if (short_form && node.kind == Node::Kind::kScalar)
      as_map(node, spec.type == Type::kBest ? "metric" : spec.type == Type::kChat ? "name" : "bytes");
    if ((spec.type == Type::kMap || short_form) && (node.kind == Node::Kind::kMap || node.kind == Node::Kind::kNull)) {
      check_map(node, {spec.inner(), path, entry.key_mark});
    } else if (spec.type == Type::kLoss && node.kind == Node::Kind::kMap) {
      check_loss(node, spec, path, entry.key_mark);
    } else if (spec.type == Type::kMetrics && (node.kind == Node::Kind::kMap || node.kind == Node::Kind::kNull)) {
      check_metrics(node, spec, path, entry.key_mark);
    } else if (spec.type == Type::kMaps && node.kind == Node::Kind::kList) {
      check_maps(node, spec, path);
    } else if (spec.type == Type::kLayers && node.kind == Node::Kind::kList) {
      check_layers(node, path, spec.group != "model");
    } else if (spec.type == Type::kLayerLists && node.kind == Node::Kind::kList) {
      check_layer_lists(node, path);
    } else if (spec.type == Type::kBlocks || spec.type == Type::kBlockKeys) {
      return;  // already read by expand_blocks
    } else if (use_of(spec.type).read) {
      std::string wrong = use_of(spec.type).read(spec, node, node.value);
      if (!wrong.empty()) {
        node.value = {};  // a reader may have set part of it
        bad(node, concat(path, ": ", wrong));
      }
    } else {
      bad(node, concat(path, ": got ", describe(node), ", expected ", expects(spec)));
    }
  }

  // `budget: 60 KB` is short for {bytes: 60 KB}, `best: loss` for {metric: loss}, `chat: chatml` for {name: chatml}.
  static void as_map(Node& node, const std::string& key) {
    Node map;
    map.kind = Node::Kind::kMap;
    map.mark = node.mark;
    map.entries.push_back({key, node.mark, std::move(node)});
    node = std::move(map);
  }

  // {name: {keys}}, where name is one of the choices; a loss without keys has no group.
  void check_loss(Node& node, const KeySpec& spec, const std::string& path, SourceMark key_mark) {
    const size_t before = errors_;
    if (node.entries.size() != 1)
      bad(node, concat(path, ": got a map of ", node.entries.size(),
                       " keys, expected the name of a loss, or {name: {...}} with the keys of one"));
    else if (!node.entries[0].node.entries.empty() || !one_of(spec.names(), node.entries[0].key) ||
             find_key(spec.inner(), node.entries[0].key) != nullptr)
      check_one_of(node, spec.names(), {spec.inner(), path, key_mark});
    if (errors_ > before || !node.suspects.empty()) node.bad = true;
  }
  void check_metrics(Node& node, const KeySpec& spec, const std::string& path, SourceMark key_mark) {
    const size_t before = errors_;
    check_one_of(node, metric_names(), {spec.inner(), path, key_mark});
    if (errors_ > before || !node.suspects.empty()) node.bad = true;
  }
  static bool one_of(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  void check_one_of(Node& node, const std::vector<std::string>& names, const Place& place) {
    for (Entry& entry : node.entries) {
      if (find_key(place.group, entry.key) != nullptr || !one_of(names, entry.key)) continue;
      return bad(entry.node, entry.key_mark, concat(place.path, '.', entry.key, ": ", entry.key, " has no keys"),
                 entry.key.size());
    }
    check_map(node, place);
  }

  void check_maps(Node& list, const KeySpec& spec, const std::string& path) {
    if (list.items.empty()) bad(list, concat(path, ": the list is empty; leave the key out"));
    for (size_t i = 0; i < list.items.size(); ++i) {
      Node& item = list.items[i];
      const std::string item_path = concat(path, '.', i);
      const size_t before = errors_;
      if (item.kind == Node::Kind::kMap)
        check_map(item, {spec.inner(), item_path, item.mark});
      else
        bad(item,
            concat(item_path, ": got ", describe(item), ", expected a map with keys ", joined(keys_of(spec.inner()))));
      if (errors_ == before && item.suspects.empty() && spec.inner() == "transform" && item.entries.size() != 1)
        bad(item, concat(item_path, ": a transform is a map of one key, its name, got ", item.entries.size()));
      if (errors_ > before || !item.suspects.empty()) item.bad = list.bad = true;
    }
  }

  // `may_be_empty`: true in containers, where an empty list is the identity.
  void check_layers(Node& list, const std::string& path, bool may_be_empty) {
    if (list.items.empty() && !may_be_empty)
      bad(list, concat(path, ": the list is empty; a model needs at least a linear layer"));
    for (size_t i = 0; i < list.items.size(); ++i) {
      Node& item = list.items[i];
      const Report::Within block(report_, item.block);
      if (!check_layer(item, concat(path, '.', i))) list.bad = true;
    }
  }

  bool check_layer(Node& item, const std::string& path) {
    if (item.kind != Node::Kind::kMap || item.entries.empty()) {
      bad(item, concat(path, ": got ", describe(item), ", expected a layer: {kind: {...}} with kind one of ",
                       joined(keys_of("layer"))));
      return false;
    }
    const size_t before = errors_;
    check_map(item, {"layer", path, item.mark});
    if (item.entries.size() > 1 && item.entries[1].key != item.entries[0].key && item.suspects.empty())
      bad(item, item.entries[1].key_mark,
          concat(path, ": a layer has one kind, got ", item.entries[0].key, " and ", item.entries[1].key),
          item.entries[1].key.size());
    if (errors_ > before || !item.suspects.empty()) item.bad = true;
    return !item.bad;
  }

  void check_layer_lists(Node& lists, const std::string& path) {
    for (size_t i = 0; i < lists.items.size(); ++i) {
      Node& list = lists.items[i];
      if (list.kind == Node::Kind::kList)
        check_layers(list, concat(path, '.', i), /*may_be_empty=*/true);
      else
        bad(list, concat(path, '.', i, ": got ", describe(list), ", expected a list of layers"));
      if (list.bad) lists.bad = true;
    }
  }

  static std::vector<std::string> absent_keys(const Node& node, std::string_view group) {
    std::vector<std::string> keys = keys_of(group);
    std::erase_if(keys, [&](const std::string& key) { return node.find(key) != nullptr; });
    return keys;
  }

  void unknown(Node& node, const Entry& entry, const Place& place, const std::vector<std::string>& absent) {
    if (place.group == "layer" && blocks_misspelt_) {  // probably a block
      node.suspects.insert(entry.key);
      return;
    }
    const std::string shown = entry.key.size() > 60 ? entry.key.substr(0, 60) + "..." : entry.key;
    std::string message = concat("unknown ", place.group == "layer" ? "layer kind '" : "key '", shown, '\'');
    if (!place.path.empty()) message += concat(" in '", place.path, '\'');
    // YAML reads {dtype:bint1} as one word.
    const std::string word = entry.key.substr(0, entry.key.find(':'));
    std::string hint = word != entry.key && find_key(place.group, word) ? word : "";
    if (!hint.empty()) {
      message += concat(". A blank is missing after ':' of '", word, ":'");
    } else if (errors_ < kMaxReported) {  // any more are counted, not shown
      const std::vector<std::string> known = known_keys(place.group);
      // A misspelt key is most likely one that is still missing.
      hint = nearest(entry.key, absent);
      if (hint.empty()) hint = nearest(entry.key, known);
      message +=
          hint.empty() ? concat('.', other_home(entry.key, place.group)) : concat(". Did you mean '", hint, "'?");
      message += known.empty() ? " It has no keys." : concat(" Known: ", joined(known));
    }
    report_.error(entry.key_mark, message, entry.key.size());
    node.suspects.insert(hint.empty() ? entry.key : hint);
    ++errors_;
  }

  // Known keys of a group; for layers, the kinds and the blocks of this configuration.
  std::vector<std::string> known_keys(std::string_view group) const {
    std::vector<std::string> known = keys_of(group);
    if (group == "layer") known.insert(known.end(), blocks_.begin(), blocks_.end());
    return known;
  }

  // E.g. " 'lr' is a key of 'optim'." for a key that is in the wrong map.
  static std::string other_home(std::string_view key, std::string_view group) {
    if (find_key(group, "weights") != nullptr && find_key("weights", key) != nullptr)
      return concat(" '", key, "' is a key of 'weights': weights: {", key, ": ...}.");
    for (const KeySpec* spec : all_keys())
      if (spec->name == key && spec->group != "layer")
        return concat(" '", key, "' is a key of ",
                      spec->group.empty() ? "the top level" : concat('\'', shown_group(spec->group), '\''), '.');
    return {};
  }

  // Reports keys that do not exist for the selected value. Returns that value, or "" if it is not known.
  std::string check_selector(const Node& node, const Place& place) {
    const std::string_view key = selector_of(place.group);
    if (key.empty() || !sound(&node, key)) return {};
    const KeySpec& selector = *find_key(place.group, key);
    const Entry* entry = node.find(key);
    if (!entry && !selector.has_default()) return {};
    std::string selected = std::get<std::string>(entry ? entry->node.value : default_value(selector));
    for (const Entry& other : node.entries) {
      const KeySpec* spec = find_key(place.group, other.key);
      if (!spec || spec->applies(selected)) continue;
      const SourceMark mark = blame({other.key_mark, entry ? entry->node.mark : other.key_mark});
      report_.error(mark,
                    concat(path_of(place.path, other.key), " requires ", path_of(place.path, key), ' ', spec->with(),
                           ", not ", selected),
                    other.key.size());
      ++errors_;
    }
    return selected;
  }

  // `node` is nullptr for an absent map, whose required keys are reported at the enclosing map.
  void report_missing(const Node* node, const Place& place, const std::string& selected) {
    for (const KeySpec* key : keys_in(place.group)) {
      const KeySpec& spec = *key;
      if ((node && node->find(spec.name)) || !sound(node, spec.name)) continue;
      const std::string other = spec.alternative();
      if (!other.empty() && node && (node->find(other) || !sound(node, other))) continue;
      if (spec.required_with(selected)) {
        report_.error(place.key_mark,
                      concat("missing required key '", path_of(place.path, spec.name), "': ", expects(spec)));
        ++errors_;
      }
      if (spec.type == Type::kMap && spec.standard == "{}")
        report_missing(nullptr, {spec.inner(), path_of(place.path, spec.name), place.key_mark}, "");
    }
  }

  void bad(Node& node, std::string message) { bad(node, node.mark, std::move(message), node.length()); }
  void bad(Node& node, SourceMark mark, std::string message, size_t length) {
    report_.error(mark, std::move(message), length);
    node.bad = true;
    ++errors_;
  }

  Report& report_;
  std::vector<std::string> blocks_;
  bool blocks_misspelt_;
  size_t errors_ = 0;
};

}  // namespace

bool sound(const Node* map, std::string_view key) {
  if (!map) return true;
  if (map->suspects.count(std::string(key)) > 0) return false;
  const Node* node = map->child(key);
  return !node || !node->bad;
}

const Node* node_at(const Node& root, std::string_view path) {
  const Node* node = &root;
  for (const std::string& part : split(path, '.')) {
    if (!node) break;
    int64_t item = 0;
    if (node->kind == Node::Kind::kList && parse_whole(part, item) == NumberResult::kOk)
      node = &node->items.at(static_cast<size_t>(item));
    else
      node = node->child(part);
  }
  return node;
}

SourceMark blame(std::initializer_list<SourceMark> marks) {
  for (const SourceMark& mark : marks)
    if (mark.argument > 0) return mark;
  return *marks.begin();
}

void validate(Node& root, Report& report) {
  const SourceMark top{0, 1, 1};
  if (root.kind != Node::Kind::kMap && root.kind != Node::Kind::kNull) {
    report.error(root.mark, concat("got ", describe(root), ", expected a map with keys ", joined(keys_of(""))),
                 root.length());
    return;
  }
  if (root.kind == Node::Kind::kNull) {
    report.error(top,
                 "the configuration is empty; it needs at least version, data.train, model, optim.name, optim.lr and "
                 "train.stop");
    return;
  }
  Validator(report, root).check_map(root, {"", "", top});
}

}  // namespace bitgrad::config
