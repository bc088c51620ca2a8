// bitgrad convert RUN_OR_CHECKPOINT -o FILE [--best] [--last] [--batch-norm N] [--dry-run] [--force] [--check]: drops
// masters and everything else that only training needs, and writes the remaining model. Reads no data, unless --check
// compares the two on data.test, or --batch-norm renews statistics on data.train.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/tools/ptq.h"
#include "changed_model.h"
#include "command.h"
#include "open_file.h"
#include "output.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

struct ConvertOptions {
  std::string out;
  int64_t batch_norm = 0;
  ModelChoice choice;
  bool dry_run = false, force = false, check = false, json = false;
};

int64_t float_bytes(const std::vector<LayerSummary>& rows) {
  int64_t bytes = 0;
  for (const LayerSummary& row : rows) bytes += 4 * row.shape.numel();
  return bytes;
}

// Correct predictions and outputs of two models, batch by batch.
struct Comparison {
  int64_t samples = 0, correct_a = 0, correct_b = 0;
  int64_t classes = 0;  // number of classes if targets are classes; 0: targets are values
  bool equal_bits = true;
  double max_abs_difference = 0;

  void add(Learner& a, Learner& b, const Tensor& x, const Tensor& target) {
    const Tensor ya = a.predict(x).on_host(), yb = b.predict(x).on_host();
    const DeviceGuard cpu(Device::cpu());
    samples += x.shape()[0];
    if (target.dtype() == dtypes::int32) {
      classes += static_cast<int64_t>(target_count(target).item());
      correct_a += static_cast<int64_t>(top_k_count(ya, target, 1).item());
      correct_b += static_cast<int64_t>(top_k_count(yb, target, 1).item());
    }
    equal_bits &= std::memcmp(ya.data(), yb.data(), static_cast<size_t>(ya.bytes())) == 0;
    for (int64_t i = 0; i < ya.numel(); ++i)
      max_abs_difference = std::max(max_abs_difference, std::abs(static_cast<double>(ya.as<float>()[i]) -
                                                                 static_cast<double>(yb.as<float>()[i])));
  }
};

Comparison compare(Learner& a, Learner& b, const Dataset& data, int64_t batch) {
  LoaderOptions options;
  options.micro = batch;
  options.shuffle = false;
  options.end_epoch = 1;
  Loader loader(data, options);
  Comparison result;
  for (Batch read; loader.next(read);) {
    Tensor x;
    copy_batch(read, x);
    result.add(a, b, x, read.target_tensor());
  }
  return result;
}

bool any_fake(Module& model) {
  const std::vector<Quantizable*> slots = model.quantizables();
  return std::any_of(slots.begin(), slots.end(),
                     [](const Quantizable* s) { return s->quant().compute == Compute::kSimulated; });
}

// Opens data.test (else data.valid, else data.train) and makes sure that the device exists.
std::unique_ptr<Dataset> open_for_check(const OpenedFile& file, const ModelChoice& choice) {
  apply_run_settings(file.config);
  device_backend(device_of(file.config));
  return data_of(file, choice);
}

// Compares the written file with the checkpoint; adds what it finds to `j`.
void check(const OpenedFile& file, const std::string& written, const Dataset& data, const ModelChoice& choice,
           std::ostream& out, Json& j) {
  const DeviceGuard guard(device_of(file.config));
  const auto prepared = load_file(file, &data);
  const auto converted = load_file(open_file(written, all_overrides(choice)), &data);
  const Comparison c = compare(*prepared, *converted, data, file.config.train.eval.batch);
  const auto percent = [&](int64_t correct) {
    return 100.0 * static_cast<double>(correct) / static_cast<double>(c.classes);
  };
  out << "check: ";
  if (c.classes > 0)
    out << "accuracy " << percent(c.correct_a) << " % before, " << percent(c.correct_b) << " % after, ";
  out << "on " << c.samples << " samples; logits "
      << (c.equal_bits ? "equal bit for bit" : concat("differ by at most ", c.max_abs_difference)) << '\n';
  j["check"] = Json{{"samples", c.samples},
                    {"accuracy_before", c.classes > 0 ? Json(percent(c.correct_a)) : Json(nullptr)},
                    {"accuracy_after", c.classes > 0 ? Json(percent(c.correct_b)) : Json(nullptr)},
                    {"equal_bits", c.equal_bits},
                    {"max_abs_difference", c.max_abs_difference}};
  if (c.equal_bits) return;
  if (!any_fake(prepared->model()))
    fail_with(ErrorCode::kBug, "convert",
              "logits of the converted model differ from those of the trained one: got a maximum "
              "difference of ",
              c.max_abs_difference, ", expected equal bits");
  out << "compute: simulated trains on a float simulation, the converted model computes on the codes: close, not "
         "equal\n";
}

// Renews the statistics of batch norm, prints what that changes and adds it to `j`.
void renew(Learner& learner, const OpenedFile& file, int64_t n, const Dataset& data, std::ostream& out, Json& j) {
  const int64_t batch = file.config.train.eval.batch;
  const auto train = open_dataset(file.config, file.config.data.train, {}, table_of(file.header, file.path));
  const Evaluation before = evaluate(learner, data, batch);
  const auto samples = first_samples(*train, n, batch, file.header.seed);
  const int64_t norms = renew_norms(learner, samples);
  require(norms > 0, "convert", "--batch-norm: got ", n, ", but the model has no batch_norm or tensor_norm layer");
  int64_t rows = 0;
  for (const SampleBatch& s : samples) rows += s.x.shape()[0];
  const Evaluation after = evaluate(learner, data, batch);
  out << "batch norm: statistics of " << norms << (norms == 1 ? " layer" : " layers") << " renewed on " << rows
      << " samples of data.train\nbefore: " << numbers_of(before) << "\nafter:  " << numbers_of(after) << '\n';
  j["before"] = evaluation_json(before);
  j["after"] = evaluation_json(after);
}

int run_convert(const ConvertOptions& options) {
  const OpenedFile file = open_to_compute(options.choice);
  for (const char* ending : {".onnx", ".gguf", ".c", ".tflite"})
    require(!options.out.ends_with(ending), "convert", "writes a model file of bitgrad (.safetensors), got ",
            options.out, ". For ", ending, " use: bitgrad export ", options.choice.target, " -o ", options.out);
  if (!options.dry_run) require_writable(options.out, options.force, {file.path});
  require(file.kind == SavedKind::kCheckpoint, "convert", file.path, " is converted already");
  const std::unique_ptr<Dataset> data = options.check || options.batch_norm > 0
                                            ? open_for_check(file, options.choice)
                                            : nullptr;  // opened before a file is written
  const auto learner = load_file(file, nullptr);
  RunConfig config = file.config;
  std::ostream& out = text_output(options.json);
  Json j{{"file", options.out}, {"of", file.path}};
  if (file.of_run) {
    config = converted_config(file.config, *learner);
    print_choices(out, learner->model(), prepare_spec_of(config));
    out << '\n';
  }
  if (options.batch_norm > 0) renew(*learner, file, options.batch_norm, *data, out, j);
  learner->convert();
  print_quantization(out, learner->model());
  const std::vector<LayerSummary> rows = summarize(learner->model());
  out << "in fp32: " << float_bytes(rows) << " bytes\n";
  if (std::all_of(rows.begin(), rows.end(), [](const LayerSummary& row) { return row.weight == "fp32"; }))
    log(LogLevel::kWarning, "no layer is quantized: the converted model is fp32");
  if (options.dry_run) return 0;
  if (file.of_run)
    save_converted(options.out, *learner, file.header, config);
  else
    save_converted(options.out, *learner, file.header);
  out << printable(file.path) << ": " << file_bytes(file.path) << " bytes -> " << printable(options.out) << ": "
      << file_bytes(options.out) << " bytes\n";
  j["bytes"] = file_bytes(options.out);
  j["bytes_fp32"] = float_bytes(rows);
  if (options.check) check(file, options.out, *data, options.choice, out, j);
  if (options.json) std::cout << j.dump(2) << '\n';
  return 0;
}

}  // namespace

Run setup_convert(Arguments& args) {
  auto o = std::make_shared<ConvertOptions>();
  add_target(args, o->choice);
  args.option("overrides", o->choice.overrides, "key=value of the configuration, such as data.root=DIR");
  args.option("-o,--out", o->out, "output file");
  args.option("--data", o->choice.data, std::string("with --check: ") + kDataHelp);
  add_choice_options(args, o->choice);
  const Argument norms =
      args.option(
              "--batch-norm", o->batch_norm,
              "number of data.train samples to renew the statistics of batch norm on, for weights that changed since "
              "(last steps, average); prints accuracy before and after")
          .range(int64_t{1}, int64_t{1000000000});
  const Argument dry =
      args.flag("--dry-run", o->dry_run, "print the precision of each layer and the rule that sets it; write nothing");
  args.flag("--force", o->force, "overwrite an existing file");
  args.flag("--check", o->check, "compare both models on data.test").excludes(dry).excludes(norms);
  args.flag("--json", o->json, "one JSON object on standard output").excludes(dry);
  return [o] { return run_convert(*o); };
}

}  // namespace bitgrad::cli
