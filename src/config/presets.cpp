#include "config/steps.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "bitgrad/base/file.h"
#include "bitgrad/config/presets.h"
#include "config/block_keys.h"
#include "config/schema.h"

namespace bitgrad {
namespace config {
namespace {

bool is_path(std::string_view preset) {
  return preset.find('/') != std::string_view::npos || preset.ends_with(".yaml") || preset.ends_with(".yml");
}

const ModelPreset* shipped(std::string_view name) {
  for (const ModelPreset& preset : model_presets())
    if (preset.name == name) return &preset;
  return nullptr;
}

Node* entry_of(Node& map, const std::string& key, SourceMark mark) {
  if (map.kind == Node::Kind::kNull) map.kind = Node::Kind::kMap;
  if (map.kind != Node::Kind::kMap) return nullptr;  // reported when the schema is checked
  if (Entry* const entry = map.find(key)) return &entry->node;
  return &map.entries.emplace_back(Entry{key, mark, {}}).node;
}

class Preset {
 public:
  Preset(Node& root, Node& model, const std::string& config, const ConfigSource& source, Report& report)
      : root_(root), model_(model), config_(config), source_(source), report_(report) {}

  PresetText expand() {
    const Entry use = *model_.find("preset");
    const Entry* const given = model_.find("keys");
    const Entry keys = given != nullptr ? *given : Entry{"keys", use.key_mark, {}};
    PresetText out;
    if (!alone(use) || !load(use, out)) return {};
    report_.set_preset(out.name, SourceText(out.text, kPreset));
    Node file;
    if (!read_yaml(report_.source(kPreset), report_, file) || !check(file)) return {};
    const std::string shown = concat("preset '", use.node.text, '\'');
    const Node* const known = file.child("keys");
    for (const char* const part : {"layers", "quant", "loss"})
      if (const Node* const node = file.child(part)) check_key_uses(*node, known, shown, report_);
    if (known != nullptr) check_key_uses(*known, known, shown, report_);
    Arguments arguments;
    const Entry arguments_of{"preset", keys.key_mark, keys.node};
    if (!report_.empty() || !take_arguments(arguments_of, {shown, "model.keys", known}, arguments, report_)) return {};
    if (!compute_defaults(file, arguments)) return {};
    for (const char* const part : {"layers", "quant", "loss"})
      if (Entry* const entry = file.find(part))
        substitute(entry->node, arguments, report_, std::string_view(part) == "layers");
    out.context = concat(shown, ", used at ", report_.place(use.node.mark));
    put(file, out.context);
    return out;
  }

 private:
  // Checks that layers and blocks are left to the preset.
  bool alone(const Entry& use) {
    if (!unique_keys(model_, report_)) return false;
    for (const char* const key : {"layers", "blocks"}) {
      const Entry* const other = model_.find(key);
      if (other == nullptr) continue;
      const bool later = nearness(use.node.mark) > nearness(other->key_mark);
      report_.error(later ? use.node.mark : other->key_mark,
                    concat("model.", key,
                           " and model.preset exclude each other: the preset has the layers. To change "
                           "them, copy its file (bitgrad presets NAME) and name the copy: preset: ./my_net.yaml"),
                    later ? use.node.length() : std::string_view(key).size());
    }
    return report_.empty();
  }

  bool load(const Entry& use, PresetText& out) {
    const auto wrong = [&](const auto&... parts) {
      report_.error(use.node.mark, concat("model.preset: ", parts...), use.node.length());
      return false;
    };
    const std::string& text = use.node.text;
    if (use.node.kind != Node::Kind::kScalar || text.empty())
      return wrong("got ", describe(use.node), ", expected the name of a preset or the path of its file");
    if (!is_path(text)) {
      const ModelPreset* const preset = shipped(text);
      if (preset == nullptr) return wrong("unknown preset '", text, "'.", hint(text));
      out.name = concat("preset ", text);
      out.text = preset->text;
      return true;
    }
    if (source_.plugins == ConfigSource::Plugins::kLoaded)
      return wrong("'", text, "' is a file, and a file of a model names no other file");
    const bool argument = use.node.mark.argument > 0;
    const std::filesystem::path folder = argument ? "" : std::filesystem::path(config_).parent_path();
    out.name = (folder / text).string();
    try {
      require(!file_system().is_directory(out.name), out.name, "is a folder, not a file of a preset");
      const std::vector<uint8_t> bytes = read_file(out.name, static_cast<int64_t>(kMaxBytes));
      out.text.assign(bytes.begin(), bytes.end());
    } catch (const Error& error) {
      return wrong("the file cannot be read: ", error.what());
    }
    return true;
  }

  static std::string hint(const std::string& name) {
    std::vector<std::string> names;
    for (const ModelPreset& preset : model_presets()) names.push_back(preset.name);
    const std::string near = nearest(name, names);
    return concat(near.empty() ? "" : concat(" Did you mean '", near, "'?"), " Known: ", joined(names),
                  ". The path of a file has a '/' or ends in .yaml");
  }

  // Checks the file's top level; layers and blocks are checked as those of a configuration.
  bool check(const Node& file) {
    constexpr const char* kForm = "expected {keys: {...}, blocks: {...}, layers: [...], quant: {...}, loss: ...}";
    const std::vector<std::string> known{"keys", "blocks", "layers", "quant", "loss"};
    if (file.kind != Node::Kind::kMap) {
      report_.error({kPreset, 1, 1}, concat("a preset: got ", describe(file), ", ", kForm));
      return false;
    }
    if (!unique_keys(file, report_)) return false;
    for (const Entry& entry : file.entries) {
      if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
      const std::string near = nearest(entry.key, known);
      report_.error(entry.key_mark,
                    concat("unknown key '", entry.key, "' of a preset.",
                           near.empty() ? "" : concat(" Did you mean '", near, "'?"), " Known: ", joined(known)),
                    entry.key.size());
    }
    expect_map(file, "keys", "each with its default or required");
    expect_map(file, "quant", "as quant of a configuration");
    const Node* const layers = file.child("layers");
    if (layers == nullptr || layers->kind != Node::Kind::kList)
      report_.error(layers != nullptr ? layers->mark : SourceMark{kPreset, 1, 1},
                    concat("layers of a preset: got ", layers != nullptr ? describe(*layers) : "nothing",
                           ", expected a list of layers"));
    return report_.empty();
  }
  void expect_map(const Node& file, const char* key, const char* of) {
    const Node* const node = file.child(key);
    if (node == nullptr) return;
    if (node->kind != Node::Kind::kMap)
      report_.error(node->mark, concat(key, " of a preset: got ", describe(*node), ", expected a map, ", of),
                    node->length());
    else
      unique_keys(*node, report_);
  }

  void put(Node& file, const std::string& context) {
    std::erase_if(model_.entries, [](const Entry& entry) { return entry.key == "preset" || entry.key == "keys"; });
    for (const char* const part : {"blocks", "layers"})
      if (Entry* const entry = file.find(part)) model_.entries.push_back(std::move(*entry));
    for (Node& layer : model_.find("layers")->node.items) layer.block = context;
    if (const Node* const quant = file.child("quant")) put_quant(*quant);
    if (Entry* const loss = file.find("loss"); loss != nullptr && root_.find("loss") == nullptr)
      root_.entries.push_back(std::move(*loss));
  }
  // Defaults may be sums and products of other keys: those that are taken become numbers.
  bool compute_defaults(Node& file, const Arguments& arguments) {
    Entry* const keys = file.find("keys");
    bool good = true;
    if (keys != nullptr)
      for (Entry& entry : keys->node.entries)
        if (arguments.at(entry.key) == &entry.node) good = substitute(entry.node, arguments, report_, false) && good;
    return good;
  }
  // Keys of quant are not merged: each comes whole from the configuration, or else from the preset.
  void put_quant(const Node& quant) {
    const Entry* const own = root_.find("quant");
    Node* const out = entry_of(root_, "quant", own != nullptr ? own->key_mark : quant.mark);
    if (out->kind == Node::Kind::kNull) out->mark = quant.mark;
    for (const Entry& entry : quant.entries) {
      if (out->find(entry.key) != nullptr) continue;
      if (Node* const value = entry_of(*out, entry.key, entry.key_mark)) *value = entry.node;
    }
  }

  Node& root_;
  Node& model_;
  const std::string& config_;
  const ConfigSource& source_;
  Report& report_;
};

// A value on one line, as YAML.
std::string flow_text(const Node& node) {
  if (node.kind == Node::Kind::kScalar) return node.text;
  std::string out;
  for (const Node& item : node.items) out += concat(out.empty() ? "" : ", ", flow_text(item));
  for (const Entry& entry : node.entries)
    out += concat(out.empty() ? "" : ", ", entry.key, ": ", flow_text(entry.node));
  return node.kind == Node::Kind::kList ? concat('[', out, ']') : concat('{', out, '}');
}

std::vector<std::pair<std::string, std::string>> keys_of_preset(const std::string& name, const std::string& text) {
  const SourceText source(text, 0);
  Report report(concat("preset ", name), source);
  Node root;
  ensure(read_yaml(source, report, root), "presets", "preset ", name, " cannot be read");
  std::vector<std::pair<std::string, std::string>> out;
  if (const Node* const keys = root.child("keys"))
    for (const Entry& entry : keys->entries) out.emplace_back(entry.key, flow_text(entry.node));
  return out;
}

ModelPreset preset_of(std::string name, std::string text) {
  ModelPreset preset{std::move(name), {}, {}, std::move(text)};
  const size_t end = preset.text.find('\n');
  if (preset.text.starts_with("# ")) preset.summary = preset.text.substr(2, end - 2);
  preset.keys = keys_of_preset(preset.name, preset.text);
  return preset;
}

}  // namespace

PresetText expand_preset(Node& root, const std::string& name, const ConfigSource& source, Report& report) {
  Entry* const model = root.find("model");
  if (model == nullptr || model->node.kind != Node::Kind::kMap) return {};
  // If there is an unknown key, it may be a misspelt `preset`, and is the error to report.
  const auto known = [](const Entry& entry) { return find_key("model", entry.key) != nullptr; };
  const std::vector<Entry>& entries = model->node.entries;
  const Entry* const keys = model->node.find("keys");
  if (keys != nullptr && !model->node.find("preset") && std::all_of(entries.begin(), entries.end(), known)) {
    report.error(keys->key_mark, "model.keys are those of model.preset, which is not set", keys->key.size());
    return {};
  }
  if (model->node.find("preset") == nullptr) return {};
  return Preset(root, model->node, name, source, report).expand();
}

}  // namespace config

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> all = [] {
    std::vector<ModelPreset> presets;
#define BITGRAD_PRESET(name, text) presets.push_back(config::preset_of(name, text));
#include "bitgrad/base/text.h"
#include "config/preset_texts.inc"
#undef BITGRAD_PRESET
    return presets;
  }();
  return all;
}

}  // namespace bitgrad
