// A run that is stopped after every step, saved, loaded and resumed, compared with the run that nothing interrupts; and
// the files of a run, compared with each other.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/data/samples.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/infer/predictor.h"
#include "support/numbers.h"
#include "train/phases.h"
#include "train/promise_imports.h"
#include "train/promises.h"

namespace bitgrad::test {

inline std::string new_folder(const PromiseFolder& data, const RunConfig& config) {
  static int made = 0;
  return start_run_folder(resolve_budget(config), data.file("run" + std::to_string(made++))).path;
}

// "" if the checkpoint in `folder` gives the state and the evaluation of the trainer that has saved it.
inline std::string load_difference(Trainer& saved, Trainer& loaded, const std::string& file) {
  const std::string parts = state_difference({state_of(saved.learner()), ""}, state_of(loaded.learner()));
  if (!parts.empty()) return "in the checkpoint these differ:" + parts;
  const Evaluation live = saved.evaluate_held_out(), again = loaded.evaluate_held_out();
  if (live.loss != again.loss || live.metrics != again.metrics) return "the resumed run evaluates otherwise";
  const RunConfig& config = saved.config();
  const auto test = open_evaluation_dataset(config);
  const auto evaluator = load_evaluator(config, *test, file);
  if (evaluator->phase() != saved.learner().phase()) return "it is evaluated in another phase";
  return evaluate(*evaluator, *test, config.train.eval.batch).loss == live.loss ? ""
                                                                                : "the checkpoint evaluates otherwise";
}

// Stopped after every step, in one folder; each checkpoint is loaded and evaluated, and the run goes on from there.
inline std::string stopped_difference(const PromiseFolder& data, const RunConfig& config, const Trace& uninterrupted) {
  const std::string folder = new_folder(data, config), checkpoint = folder + "/last.safetensors";
  Trace trace;
  auto trainer = std::make_unique<Trainer>(resolve_budget(config));
  for (size_t runs = 0; runs <= 3 * uninterrupted.steps.size(); ++runs) {  // more than steps where windows are skipped
    TrainHooks hooks = traced(*trainer, trace);
    hooks.stop_requested = [] { return StopRequest::kTerminate; };  // in the window's first microbatch
    const TrainOutcome outcome = trainer->run(folder, hooks);
    if (outcome.stopped == StopRequest::kNone) {
      add_results(trace, *trainer, outcome, folder);
      return first_difference(uninterrupted, trace);
    }
    if (Json::parse(text_of(folder + "/summary.json")).at("status") != "interrupted")
      return "the summary tells no interruption";
    auto resumed = std::make_unique<Trainer>(run_folder_config(folder));
    resumed->resume(run_folder_checkpoint(folder));
    const std::string text = load_difference(*trainer, *resumed, checkpoint);
    if (!text.empty()) return concat("after step ", outcome.optimizer_steps, ' ', text);
    trainer = std::move(resumed);
  }
  return "the run never ends";
}

inline RunConfig recorded_config(const std::string& file) {
  return parse_config(read_checkpoint_header(file).config, file, {}, {.plugins = ConfigSource::Plugins::kLoaded});
}

// "" if a file of a model knows the names of its classes and its tokenizer, and reads its table as the run does.
inline std::string data_difference(const RunConfig& config, const Dataset& test, const std::string& file) {
  const auto model = open_model(file);
  if (!test.class_names().empty() && model->output().names != test.class_names()) return "it names other classes";
  if (const auto of_data = test.tokenizer()) {
    const auto own = tokenizer_of(read_checkpoint_header(file), file);
    if (own == nullptr || !tokenizer_difference(*own, *of_data).empty()) return "it has another tokenizer";
  }
  if (!config.data.test || config.data.test->format != "csv") return "";
  if (model->table() == nullptr) return "it knows no table";
  const std::string path = concat(config.data.root, '/', config.data.test->file);
  const Samples rows = read_table_samples(path, text_of(path), *model->table());
  std::vector<float> x(static_cast<size_t>(test.features())), target(x.size() + 1);
  bool same = rows.count == test.size() && rows.shape.numel() == test.features();
  for (int64_t i = 0; same && i < test.size(); ++i) {
    test.example(i, x.data(), target.data());
    same = std::memcmp(rows.bytes.data() + i * test.features() * 4, x.data(), x.size() * sizeof(float)) == 0;
  }
  return same ? "" : "it reads the table otherwise";
}

// "" if the checkpoint of a run, its converted file and predictors of both give the same, exports of the loaded file
// are those of the model that trained, and imports of them keep what they promise.
inline std::string file_difference(const std::string& run, const Trace& trace) {
  const std::string checkpoint = run + "/last.safetensors", model = run + "/model.safetensors";
  const RunConfig config = run_folder_config(run);
  apply_run_settings(config);
  const auto test = open_evaluation_dataset(config);
  const int64_t batch = config.train.eval.batch, samples = std::min<int64_t>(batch, 8);
  const Tensor x = first_samples(*test, samples, samples, 1)[0].x;
  const auto load = [&](const std::string& file) { return load_evaluator(recorded_config(file), *test, file); };
  for (const std::string& file : {checkpoint, model})
    if (const std::string text = data_difference(config, *test, file); !text.empty()) return file + ": " + text;
  const auto saved = load(checkpoint);
  const std::vector<uint32_t> expected = bits_of(saved->predict(x)),
                              predicted = bits_of(open_model(run, {}, CheckpointChoice::kLast)->predict(x));
  if (bits_of(open_model(checkpoint)->predict(x)) != predicted) return "the checkpoint predicts otherwise";
  const bool documents = saved->document_end() >= 0;  // of which the data tell
  // Opened to predict, codes are held once, in the layout of their kernel; opened to train, twice.
  const auto twice = load_evaluator(recorded_config(checkpoint), *test, checkpoint, LearnerUse::kTrain);
  if (bits_of(twice->predict(x)) != expected) return "opened to train it gives other outputs";
  if (!documents && bits_of(load_evaluator(checkpoint, saved->loss(), samples)->predict(x)) != expected)
    return "the model that its record describes predicts otherwise";
  // A predictor converts its model, which makes packed products of simulated ones.
  if (contains(to_yaml(config), "compute: simulated")) return "";
  if (!documents && predicted != expected) return "the run folder predicts otherwise";
  if (bits_of(open_model(model)->predict(x)) != predicted) return "the converted model predicts otherwise";
  const auto converted = load(model);
  if (bits_of(converted->predict(x)) != expected) return "the converted model gives other outputs";
  if (evaluate(*converted, *test, batch).loss != evaluate(*saved, *test, batch).loss)
    return "the converted model evaluates otherwise";
  for (const auto& [name, bytes] : exports_of(*converted, model))
    if (trace.results.at(name) != bytes) return "of the converted model it gives another " + name;
  return import_difference(*converted, model);
}

// "" if the best model has the form of the last one, and the loss of the evaluation that chose it.
inline std::string best_difference(const std::string& run, const Trace& trace) {
  const std::string best = run + "/best.safetensors", last = run + "/last.safetensors";
  if (!file_system().exists(best)) return "";
  const CheckpointHeader chosen = read_checkpoint_header(best), end = read_checkpoint_header(last);
  if (end.counters.best_step != 0 && end.counters.best_step != chosen.step) return "it is not of the best step";
  if (chosen.origin != end.origin) return "it has another origin";
  const RunConfig config = run_folder_config(run);
  const auto data = config.data.valid ? open_dataset(config, *config.data.valid) : open_evaluation_dataset(config);
  const auto model = load_evaluator(recorded_config(best), *data, best);
  if (end.counters.best_step != 0 &&
      model->train_state().phases->form_start(chosen.phase) != model->train_state().phases->form_start(end.phase))
    return concat("the best model, of step ", chosen.step, ", is of phase ", chosen.phase, ", the last of ", end.phase);
  const std::string loss = concat("loss ", exact(evaluate(*model, *data, config.train.eval.batch).loss), ',');
  const std::string& told = trace.steps.at(chosen.step).told;
  return contains(told, loss) ? "" : concat("the best model has ", loss, " when it was chosen it told\n", told);
}

}  // namespace bitgrad::test
