// Steps of reading: bytes, YAML, overrides, plugins, preset and blocks, schema, fields, contradictions; then one report
// of everything that is wrong.
#include "bitgrad/config/config.h"
#include "bitgrad/base/text.h"

#include "bitgrad/base/file.h"
#include "config/bind.h"
#include "config/steps.h"

namespace bitgrad {

const LayerOrigin& origin_of(const LayerSpec& layer) {
  static const LayerOrigin none;
  return layer.origin != nullptr ? *layer.origin : none;
}

RunConfig parse_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides,
                       const ConfigSource& source) {
  using namespace config;
  const SourceText file(text, 0);
  Report report(name, file, /*of_user=*/!source.run && source.plugins == ConfigSource::Plugins::kPath);
  config::Node root;
  if (!read_yaml(file, report, root)) report.throw_if_any();
  apply_overrides(root, overrides, report);
  const std::vector<std::string> plugins = load_plugins(root, name, source, report);
  report.throw_if_any();  // plugins determine which keys exist
  const PresetText preset = expand_preset(root, name, source, report);
  expand_blocks(root, report, preset.context);
  report.throw_if_any();  // further findings would only be consequences
  validate(root, report);
  RunConfig result;
  if (root.kind == config::Node::Kind::kMap) result = config::bind(root, name, source, report);
  report.throw_if_any();
  result.plugins = plugins;
  result.origin = {name, std::string(text), overrides, report.warnings(), preset.name, preset.text};
  return result;
}

RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides, const ConfigSource& source) {
  std::vector<uint8_t> bytes;
  try {
    require(!file_system().is_directory(path), path, "is a folder, not a configuration file");
    const auto max = static_cast<int64_t>(config::kMaxBytes);
    bytes = path == "-" ? read_standard_input(max) : read_file(path, max);
  } catch (const Error& error) {
    throw ConfigError(concat(printable(path), ": error: the configuration cannot be read: ", error.what()),
                      {{{}, error.what()}});
  }
  return parse_config({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                      path == "-" ? "standard input" : path, overrides, source);
}

ConfigError config_error_at(const RunConfig& config, SourceMark mark, const std::string& message) {
  const config::SourceText source(config.origin.text, 0);
  config::Report report(config.origin.name, source);
  if (!config.origin.preset_name.empty())
    report.set_preset(config.origin.preset_name, config::SourceText(config.origin.preset_text, config::kPreset));
  int number = 0;
  for (const std::string& argument : config.origin.overrides)
    report.add_argument(config::SourceText(argument, ++number));
  report.error(mark, message);
  try {
    report.throw_if_any();
  } catch (const ConfigError& error) {
    return error;
  }
  return ConfigError(message, {{mark, message}});
}

}  // namespace bitgrad
