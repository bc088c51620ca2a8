#include "train/config/plugins.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "bitgrad/train/plugin.h"
#include "train/config/merge.h"
#include "train/config/schema.h"

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
    fail("plugin", file_name, ": is not loaded, and a file of a model loads no library. Name it with --plugin PATH");
  return load_plugin((folder / path).string()).path;
}

}  // namespace

std::vector<std::string> load_plugins(const Node& root, const std::string& name, const ConfigSource& source,
                                      Report& report) {
  const KeySpec& spec = *find_key("", "plugins");
  const Node* const list = root.child("plugins");
  Value value;
  if (list == nullptr || !spec.type->read(spec, *list, value).empty()) return {};
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

}  // namespace bitgrad::config
