// bitgrad merge RUN_OR_CHECKPOINT -o FILE [--float] [--best] [--last] [--force]: merges each adapter into its weight,
// W + (alpha / rank) B A, and evaluates both models on data.test (else data.valid, else data.train).
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/run/adapters.h"
#include "bitgrad/tools/ptq.h"
#include "changed_model.h"
#include "command.h"
#include "open_file.h"
#include "output.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

struct MergeOptions {
  std::string out;
  ModelChoice choice;
  bool to_float = false, force = false, json = false;
};

// The data that measure both models, and what the first one has there; none, with a warning, if there are no data or no
// such device: merging needs neither.
struct Measured {
  std::unique_ptr<Dataset> data;
  std::optional<Evaluation> before;
};
Measured measure(const OpenedFile& file, const ModelChoice& choice) {
  try {
    apply_run_settings(file.config);
    const DeviceGuard guard(device_of(file.config));
    Measured m;
    m.data = data_of(file, choice);
    m.before = evaluate(*load_file(file, m.data.get()), *m.data, file.config.train.eval.batch);
    return m;
  } catch (const Error& e) {
    log(LogLevel::kWarning, concat("what merging does to loss and metrics is not measured: ", e.what(),
                                   ". Name the data with --data, or compare both files with bitgrad eval"));
    return {};
  }
}

int run_merge(const MergeOptions& options) {
  const OpenedFile file = open_to_compute(options.choice);
  require_writable(options.out, options.force, {file.path});
  const auto learner = load_file(file, nullptr, LearnerUse::kTrain);
  const std::vector<AdaptedLayer> layers = adapted_layers(learner->model());
  const bool merges = file.kind == SavedKind::kCheckpoint && !layers.empty();  // else write_merged says why not
  const Measured measured = merges ? measure(file, options.choice) : Measured{};
  const MergedFile written = write_merged(options.out, file, *learner, options.to_float);
  std::ostream& out = text_output(options.json);
  print_quantization(out, learner->model());
  out << printable(file.path) << ": adapters of " << layers.size() << (layers.size() == 1 ? " layer" : " layers")
      << " merged -> " << printable(options.out) << ": " << file_bytes(options.out) << " bytes\n";
  Json j{{"file", options.out},
         {"bytes", file_bytes(options.out)},
         {"layers", layers.size()},
         {"rounded", written.rounded}};
  if (measured.before) {
    const OpenedFile merged = open_file(options.out, all_overrides(options.choice));
    const DeviceGuard guard(device_of(file.config));
    const Evaluation after =
        evaluate(*load_file(merged, measured.data.get()), *measured.data, file.config.train.eval.batch);
    print_before_after(out, *measured.before, describe(file), after, options.out, evaluation_split(file.config));
    j["split"] = evaluation_split(file.config);
    j["before"] = evaluation_json(*measured.before);
    j["after"] = evaluation_json(after);
  }
  if (written.rounded)
    out << "the sums W + B A were rounded to the codes of W: what adapters learned below half a code is gone. "
           "--float keeps the sums in fp32\n";
  if (options.json) std::cout << j.dump(2) << '\n';
  return 0;
}

}  // namespace

Run setup_merge(Arguments& args) {
  auto o = std::make_shared<MergeOptions>();
  add_target(args, o->choice);
  args.option("overrides", o->choice.overrides, "key=value of the configuration, such as data.root=DIR");
  args.option("-o,--out", o->out, "output file").required();
  args.option("--data", o->choice.data, kDataHelp);
  args.flag("--float", o->to_float, "write merged weights in fp32; default: quantize them again as before");
  add_choice_options(args, o->choice);
  args.flag("--force", o->force, "overwrite an existing file");
  args.flag("--json", o->json, "one JSON object on standard output");
  return [o] { return run_merge(*o); };
}

}  // namespace bitgrad::cli
