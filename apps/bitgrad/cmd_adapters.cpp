// bitgrad adapters RUN_OR_FILE -o FOLDER [--best] [--force]: the adapters alone, in PEFT's layout.
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/train/adapters.h"
#include "command.h"
#include "open_file.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

struct AdapterOptions {
  std::vector<std::string> plugins;
  std::string target, out;
  bool best = false, force = false;
};

int run_adapters(const AdapterOptions& options) {
  load_named_plugins(options.plugins);
  require(!options.best || file_system().is_directory(options.target), "adapters",
          "--best selects a checkpoint of a run folder: got '", options.target, "', which is not one");
  const OpenedFile file = open_file(options.best ? options.target + "/best.safetensors" : options.target);
  require_writable_folder(options.out, "adapter_model.safetensors", options.force, {file.path});
  const auto learner = load_file(file, nullptr);
  save_adapters(options.out, learner->model());
  int64_t numbers = 0;
  const std::vector<AdaptedLayer> layers = adapted_layers(learner->model());
  for (const Parameter* p : learner->model().parameters())
    if (p->path().ends_with(".adapter.a") || p->path().ends_with(".adapter.b")) numbers += p->shape().numel();
  std::cout << options.out << ": adapters of " << layers.size() << (layers.size() == 1 ? " layer, " : " layers, ")
            << numbers << " parameters\n";
  return 0;
}

}  // namespace

Run setup_adapters(Arguments& args) {
  auto o = std::make_shared<AdapterOptions>();
  add_plugin_option(args, o->plugins);
  args.option("target", o->target, "run folder (its last checkpoint), checkpoint or model file").required();
  args.option("-o,--out", o->out, "the folder to write: adapter_model.safetensors, adapter_config.json").required();
  args.flag("--best", o->best, "best.safetensors of the run folder");
  args.flag("--force", o->force, "overwrite an existing folder's adapters");
  return [o] { return run_adapters(*o); };
}

}  // namespace bitgrad::cli
