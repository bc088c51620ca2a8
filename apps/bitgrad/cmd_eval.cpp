// bitgrad eval RUN_DIR_OR_CHECKPOINT [--json]: a fresh process reads the packed weights and data.test (data.train when
// there is none).
#include <iostream>
#include <nlohmann/json.hpp>

#include "bitgrad/base/file.h"
#include "bitgrad/kernels/gemm_costs.h"
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
  load_gemm_costs(gemm_costs_path());
  const bool folder = file_system().is_directory(options.target);
  const std::string checkpoint = folder ? run_folder_checkpoint(options.target) : options.target;
  const RunConfig config = parse_config(read_checkpoint_header(checkpoint).config, checkpoint, options.overrides);
  apply_run_settings(config);
  // Training data are not needed, unless there are no others.
  const auto data = open_dataset(config, config.data.test ? *config.data.test : config.data.train);
  const auto learner = build_evaluator(config, *data);
  load_checkpoint(checkpoint, *learner);
  const Evaluation e = evaluate(*learner, *data, config.train.eval.batch);
  if (options.json) {
    std::cout << nlohmann::ordered_json{{"accuracy", e.accuracy}, {"loss", e.loss}, {"samples", e.samples}}.dump()
              << '\n';
  } else {
    std::cout << "accuracy " << e.accuracy << " %  loss " << e.loss << "  samples " << e.samples << "  (" << checkpoint
              << ")\n";
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
