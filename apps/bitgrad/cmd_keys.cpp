// bitgrad keys [--plugin PATH] [--json]: all configuration keys, as the tables of docs/configuration.md.
#include <iostream>

#include "bitgrad/config/config.h"
#include "command.h"
#include "open_file.h"

namespace bitgrad::cli {

Run setup_keys(Arguments& args) {
  struct Options {
    std::vector<std::string> plugins;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  args.option("--plugin", options->plugins, "plugin whose keys are listed too; repeatable").repeatable();
  args.flag("--json", options->json, "one JSON array on standard output: path, value, default and text of each key");
  return [options] {
    load_named_plugins(options->plugins);
    std::cout << (options->json ? config_keys_json() + '\n' : config_reference());
    return 0;
  };
}

}  // namespace bitgrad::cli
