// bitgrad keys [--plugin PATH]: all configuration keys, as the tables of docs/configuration.md.
#include <iostream>

#include "bitgrad/train/config.h"
#include "command.h"
#include "open_file.h"

namespace bitgrad::cli {

Run setup_keys(Arguments& args) {
  auto plugins = std::make_shared<std::vector<std::string>>();
  args.option("--plugin", *plugins, "a plugin whose keys are listed too; repeatable").repeatable();
  return [plugins] {
    load_named_plugins(*plugins);
    std::cout << config_reference();
    return 0;
  };
}

}  // namespace bitgrad::cli
