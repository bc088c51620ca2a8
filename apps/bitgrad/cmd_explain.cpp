// bitgrad explain KEY: meaning, values, default and an example of a configuration key.
#include <iostream>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/config/config.h"
#include "command.h"
#include "open_file.h"

namespace bitgrad::cli {
namespace {

struct ExplainOptions {
  std::string key;
  std::vector<std::string> plugins;
  bool list = false, values = false;
};

}  // namespace

Run setup_explain(Arguments& args) {
  auto options = std::make_shared<ExplainOptions>();
  args.option("key", options->key, "path of a key, such as optim.lr, or the end of one, such as lr");
  args.flag("--list", options->list, "print the paths of all keys, one per line");
  args.flag("--values", options->values, "print the names that the key accepts, one per line; nothing for other types");
  add_plugin_option(args, options->plugins);
  return [options] {
    load_named_plugins(options->plugins);
    require(options->list || !options->key.empty(), "explain",
            "needs a key, such as optim.lr. bitgrad explain --list "
            "prints all of them");
    if (options->list)
      for (const std::string& path : config_key_paths()) std::cout << path << '\n';
    else if (options->values)
      for (const std::string& name : config_key_values(options->key)) std::cout << name << '\n';
    else
      std::cout << explain_config_key(options->key);
    return 0;
  };
}

}  // namespace bitgrad::cli
