// bitgrad eval RUN_DIR_OR_FILE [--text FILE [--stride N]] [--json]: a fresh process reads the packed weights and
// evaluates them on data.test (else data.valid, else data.train), or on a text. Ranks of a launcher share the batches.
#include <algorithm>
#include <iostream>
#include <optional>

#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/version.h"
#include "bitgrad/dist/engines.h"
#include "changed_model.h"
#include "command.h"
#include "open_file.h"
#include "train_ranks.h"

namespace bitgrad::cli {
namespace {

struct EvalOptions {
  ModelChoice choice;
  std::string text;
  int64_t stride = 0;
  bool json = false;
};

// What all ranks must have in common to share the batches of the model that rank 0 has sent.
void compare(Communicator& ranks, const Dataset& data, RunConfig config) {
  require_same(ranks, "device.kind", config.device.kind);
  config.device = {};
  require_same(ranks, "version", concat(BITGRAD_VERSION, " (", build_commit(), ')'));
  require_same(ranks, "configuration", to_portable_yaml(config));
  require_same(ranks, "data", to_string(samples_record(data)));
}

// The file of rank 0, which it sends; the other ranks keep it in `copy`.
OpenedFile open_on_ranks(ModelChoice choice, Communicator& ranks, std::optional<CopiedFile>& copy) {
  OpenedFile file;
  if (ranks.rank() == 0) {
    file = open_to_compute(choice);
    list_of_first<uint8_t>(ranks, file_system().read(file.path));
  } else {
    choice.target = copy.emplace(list_of_first<uint8_t>(ranks, {})).path();
    choice.best = choice.last = false;
    file = open_to_compute(choice);
  }
  file.config = on_own_device(file.config, ranks);
  return file;
}

// `ranks`: nullptr: this process alone.
int evaluate_file(const EvalOptions& options, Communicator* ranks) {
  std::optional<CopiedFile> copy;
  const OpenedFile file =
      ranks == nullptr ? open_to_compute(options.choice) : open_on_ranks(options.choice, *ranks, copy);
  apply_run_settings(file.config);
  const DeviceGuard guard(device_of(file.config));
  const auto data = options.text.empty() ? data_of(file, options.choice) : text_of(file, options.text, options.stride);
  const auto learner = load_file(file, data.get());
  if (ranks != nullptr) compare(*ranks, *data, file.config);
  const Evaluation e = evaluate(*learner, *data, file.config.train.eval.batch, ranks);
  if (ranks != nullptr && ranks->rank() > 0) return 0;
  if (options.json) {
    Json j = evaluation_json(e);
    j["file"] = file.path;
    j["step"] = file.header.step > 0 ? Json(file.header.step) : Json(nullptr);
    j["split"] = options.text.empty() ? Json(evaluation_split(file.config)) : Json(nullptr);
    std::cout << j.dump() << '\n';
  } else {
    std::cout << numbers_of(e) << "  samples " << e.samples << "  (" << printable(file.path) << ")\n";
  }
  return 0;
}

int run_eval(const EvalOptions& options) {
  const std::shared_ptr<Communicator> ranks = launched_ranks();
  if (!ranks) return evaluate_file(options, nullptr);
  set_num_threads(static_cast<int>(std::max<int64_t>(1, ranks->info().cores)));
  return run_as_rank(*ranks, [&] { return evaluate_file(options, ranks.get()); });
}

}  // namespace

Run setup_eval(Arguments& args) {
  auto options = std::make_shared<EvalOptions>();
  add_target(args, options->choice);
  add_choice_options(args, options->choice);
  args.option("overrides", options->choice.overrides, "key=value of the configuration, such as data.root=DIR");
  args.option("--data", options->choice.data, kDataHelp);
  const Argument text =
      args.option("--text", options->text, "text file to evaluate instead of the data, for language models");
  args.option("--stride", options->stride,
              "with --text: stride between windows in tokens; only the last `stride` tokens of each are scored. "
              "0: non-overlapping windows")
      .range<int64_t>(0, int64_t{1} << 20)
      .needs(text);
  args.flag("--json", options->json, "one JSON object on standard output");
  return [options] { return run_eval(*options); };
}

}  // namespace bitgrad::cli
