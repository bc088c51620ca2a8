// bitgrad adapters RUN_OR_FILE -o FOLDER [--best] [--last] [--force]: the adapters alone, in PEFT's layout.
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/run/adapters.h"
#include "command.h"
#include "open_file.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

struct AdapterOptions {
  std::string out;
  ModelChoice choice;
  bool force = false;
};

int run_adapters(const AdapterOptions& options) {
  const OpenedFile file = open_target(options.choice);
  require_writable_folder(options.out, "adapter_model.safetensors", options.force, {file.path});
  const auto learner = load_file(file, nullptr, LearnerUse::kTrain);
  const SavedAdapters saved =
      save_adapters(options.out, learner->model(), file.header.model, parse_origin(file.header.origin, file.path).name);
  int64_t numbers = 0;
  const std::vector<AdaptedLayer> layers = adapted_layers(learner->model());
  for (const Parameter* p : learner->model().parameters())
    if (p->path().ends_with(".adapter.a") || p->path().ends_with(".adapter.b")) numbers += p->shape().numel();
  std::cout << printable(options.out) << ": adapters of " << layers.size()
            << (layers.size() == 1 ? " layer, " : " layers, ") << numbers << " parameters";
  if (!saved.modules.empty()) std::cout << "; whole modules: " << joined(saved.modules);
  if (!saved.beyond.empty()) std::cout << "; in bitgrad_state.safetensors: " << joined(saved.beyond);
  std::cout << (saved.peft
                    ? "; names of transformers: PEFT opens it over the base model"
                    : "; PEFT's layout with bitgrad's names, readable by bitgrad only: the model is not a decoder "
                      "that Hugging Face knows")
            << '\n';
  return 0;
}

}  // namespace

Run setup_adapters(Arguments& args) {
  auto o = std::make_shared<AdapterOptions>();
  add_target(args, o->choice);
  args.option("-o,--out", o->out,
              "output folder of adapter_model.safetensors, adapter_config.json, bitgrad_state.safetensors")
      .required();
  add_choice_options(args, o->choice);
  args.flag("--force", o->force, "overwrite an existing folder's adapters");
  return [o] { return run_adapters(*o); };
}

}  // namespace bitgrad::cli
