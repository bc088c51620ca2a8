// bitgrad merge RUN_OR_CHECKPOINT -o FILE [--float] [--best] [--force]: merges each adapter into its weight:
// W + (alpha / rank) B A.
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/train/adapters.h"
#include "bitgrad/train/ptq.h"
#include "command.h"
#include "open_file.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

struct MergeOptions {
  std::vector<std::string> plugins;
  std::string target, out;
  bool to_float = false, best = false, force = false;
};

int run_merge(const MergeOptions& options) {
  load_named_plugins(options.plugins);
  require(!options.best || file_system().is_directory(options.target), "merge",
          "--best selects a checkpoint of a run folder: got '", options.target, "', which is not one");
  const OpenedFile file = open_file(options.best ? options.target + "/best.safetensors" : options.target);
  require_writable(options.out, options.force, {file.path});
  require(file.kind == "checkpoint", "merge", file.path, " is converted: merge the checkpoint that it was made of");
  const auto learner = load_file(file, nullptr);
  const std::vector<AdaptedLayer> layers = adapted_layers(learner->model());
  RunConfig config = file.config;
  if (file.of_run) config = merged_config(converted_config(config, *learner), learner->model(), options.to_float);
  merge_adapters(learner->model(), options.to_float);
  learner->convert();
  if (file.of_run)
    save_converted(options.out, *learner, file.header, config);
  else
    save_converted(options.out, *learner, file.header);
  print_quantization(std::cout, learner->model());
  std::cout << file.path << ": adapters of " << layers.size() << (layers.size() == 1 ? " layer" : " layers")
            << " merged -> " << options.out << ": " << file_bytes(options.out) << " bytes\n";
  return 0;
}

}  // namespace

Run setup_merge(Arguments& args) {
  auto o = std::make_shared<MergeOptions>();
  add_plugin_option(args, o->plugins);
  args.option("target", o->target, "run folder (its last checkpoint) or checkpoint file").required();
  args.option("-o,--out", o->out, "the file to write").required();
  args.flag("--float", o->to_float, "weights with adapters become fp32; else they are quantized anew as they were");
  args.flag("--best", o->best, "best.safetensors of the run folder");
  args.flag("--force", o->force, "overwrite an existing file");
  return [o] { return run_merge(*o); };
}

}  // namespace bitgrad::cli
