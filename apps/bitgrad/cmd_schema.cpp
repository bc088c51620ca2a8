// bitgrad schema: a JSON Schema of configurations, for editors.
#include <iostream>
#include <memory>

#include "bitgrad/config/config.h"
#include "command.h"
#include "open_file.h"

namespace bitgrad::cli {

Run setup_schema(Arguments& args) {
  auto plugins = std::make_shared<std::vector<std::string>>();
  add_plugin_option(args, *plugins);
  return [plugins] {
    load_named_plugins(*plugins);
    std::cout << config_schema();
    return 0;
  };
}

}  // namespace bitgrad::cli
