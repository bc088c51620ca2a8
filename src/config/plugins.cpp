#include "config/steps.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "bitgrad/base/file.h"
#include "bitgrad/config/plugin.h"
#include "config/merge.h"
#include "config/schema.h"
#include "config/source.h"

namespace bitgrad::config {
namespace {

// Drops the "[plugin] " that the key already says.
std::string fact_of(std::string_view error) {
  constexpr std::string_view kWhere = "[plugin] ";
  return error.starts_with(kWhere) ? std::string(error.substr(kWhere.size())) : library_text(error);
}

std::optional<Plugin> loaded_as(const std::string& file_name) {
  for (const Plugin& plugin : loaded_plugins())
    if (plugin.name == file_name) return plugin;
  return std::nullopt;
}

using How = ConfigSource::Plugins;

std::string load(const std::filesystem::path& path, const std::filesystem::path& folder, How how) {
  const std::string file_name = path.filename().string();
  if (how != How::kPath)
    if (const std::optional<Plugin> there = loaded_as(file_name)) return there->path;
  if (how == How::kLoaded)
    fail("plugin", path.string(),
         ": is not loaded, and a run or a model loads no library by itself. If you trust it: ", "--plugin ",
         path.is_absolute() ? path.string() : "PATH", ", or load_plugin in a program");
  return load_plugin((folder / path).string()).path;
}

}  // namespace

std::vector<std::string> load_plugins(const Node& root, const std::string& name, const ConfigSource& source,
                                      Report& report) {
  const KeySpec& spec = *find_key("", "plugins");
  const Node* const list = root.child("plugins");
  Value value;
  if (list == nullptr || !use_of(spec.type).read(spec, *list, value).empty()) return {};
  const std::filesystem::path folder = std::filesystem::path(name).parent_path();
  std::vector<std::string> paths;
  for (size_t i = 0; i < list->items.size(); ++i) {
    const Node& item = list->items[i];
    const bool argument = item.mark.argument > 0;
    try {
      paths.push_back(load(item.text, argument ? "" : folder, argument ? How::kPath : source.plugins));
    } catch (const Error& error) {
      report.error(item.mark, concat("plugins.", i, ": ", fact_of(error.what())), item.length());
    }
  }
  return paths;
}

std::string recorded_root(const std::string& path) {
  std::string text;
  try {
    const std::vector<uint8_t> bytes = read_file(path, static_cast<int64_t>(kMaxBytes));
    text.assign(bytes.begin(), bytes.end());
  } catch (const Error&) {
    return {};
  }
  const SourceText file(text, 0);
  Report report(path, file, /*of_user=*/false);
  Node root;
  if (!read_yaml(file, report, root) || root.kind != Node::Kind::kMap) return {};
  load_plugins(root, path, {.run = true, .plugins = How::kLoaded}, report);
  report.throw_if_any();
  const Node* const data = root.child("data");
  const Node* const folder = data != nullptr && data->kind == Node::Kind::kMap ? data->child("root") : nullptr;
  if (folder == nullptr || folder->kind != Node::Kind::kScalar) return {};
  return (std::filesystem::path(path).parent_path() / folder->text).lexically_normal().string();
}

}  // namespace bitgrad::config
