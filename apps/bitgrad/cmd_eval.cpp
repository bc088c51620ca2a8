// bitgrad eval RUN_DIR_OR_CHECKPOINT [--json]: a fresh process reads the packed weights and the test data.
#include <iostream>
#include <nlohmann/json.hpp>

#include "bitgrad/base/file.h"
#include "bitgrad/train/run_folder.h"
#include "bitgrad/train/trainer.h"
#include "command.h"

namespace bitgrad::cli {
namespace {

struct EvalOptions {
  std::string target;
  std::vector<std::string> overrides;
  bool json = false;
};

int run_eval(const EvalOptions& options) {
  const bool folder = file_system().is_directory(options.target);
  const std::string checkpoint = folder ? run_folder_checkpoint(options.target) : options.target;
  RunConfig config = parse_config(read_checkpoint_header(checkpoint).config, checkpoint, options.overrides);
  Trainer trainer(std::move(config));
  load_checkpoint(checkpoint, trainer.learner());
  const Evaluation e = trainer.evaluate_test();
  if (options.json) {
    std::cout << nlohmann::ordered_json{{"accuracy", e.accuracy}, {"loss", e.loss}, {"samples", e.samples}}.dump() << '\n';
  } else {
    std::cout << "accuracy " << e.accuracy << " %  loss " << e.loss << "  samples " << e.samples << "  (" << checkpoint << ")\n";
  }
  return 0;
}

}  // namespace

Run setup_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  app.add_option("target", options->target, "run folder (its last checkpoint) or checkpoint file")->required();
  app.add_option("overrides", options->overrides, "key=value of the configuration, such as data.root=DIR");
  app.add_flag("--json", options->json, "one JSON object on standard output");
  return [options] { return run_eval(*options); };
}

}  // namespace bitgrad::cli
