// bitgrad eval RUN_DIR_OR_FILE [--text FILE [--stride N]] [--json]: a fresh process reads the packed weights and
// evaluates them on data.test (else data.valid, else data.train), or on a text.
#include <iostream>

#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "changed_model.h"
#include "command.h"
#include "open_file.h"

namespace bitgrad::cli {
namespace {

struct EvalOptions {
  ModelChoice choice;
  std::string text;
  int64_t stride = 0;
  bool json = false;
};

int run_eval(const EvalOptions& options) {
  const OpenedFile file = open_to_compute(options.choice);
  apply_run_settings(file.config);
  const DeviceGuard guard(device_of(file.config));
  const auto data = options.text.empty() ? data_of(file, options.choice) : text_of(file, options.text, options.stride);
  const auto learner = load_file(file, data.get());
  const Evaluation e = evaluate(*learner, *data, file.config.train.eval.batch);
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
