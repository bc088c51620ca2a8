#include <cmath>
#include <cstring>
#include <limits>

#include "bitgrad/base/file.h"
#include "bitgrad/train/run_folder.h"
#include "bitgrad/train/trainer.h"
#include "capi/arrays.h"
#include "capi/guard.h"
#include "capi/run_config.h"

using namespace bitgrad;
using namespace bitgrad::capi;

struct bitgrad_trainer {
  std::unique_ptr<Trainer> trainer;
  RunFolder resumed = {};  // locked; empty: the run began here
};

namespace {

// Targets of one class per sample may be a column [n, 1], as is common in numpy.
SampleView targets_of(const ArrayView& y) {
  SampleView view = y.samples();
  if (!y.is_float() && view.shape == Shape{1}) view.shape = {};
  return view;
}

// Number of classes, which the targets may not all contain: data.train.classes, or `out` of the last layer that has it.
int64_t classes_of(const RunConfig& config) {
  int64_t out = config.data.train.classes;
  if (out > 0) return out;
  for_each_layer(config.layers, [&](const LayerConfig& layer) {
    if (layer.attributes.values().count("out") > 0) out = layer.attributes.integer("out");
  });
  return out;
}

std::unique_ptr<Dataset> data_of(const RunConfig& config, const bitgrad_array* x, const bitgrad_array* y,
                                 const char* x_name, const char* y_name) {
  const auto samples = std::make_shared<ArrayView>(x, x_name), targets = std::make_shared<ArrayView>(y, y_name);
  const auto both =
      std::make_shared<std::pair<std::shared_ptr<ArrayView>, std::shared_ptr<ArrayView>>>(samples, targets);
  return memory_data(config, samples->samples(), targets_of(*targets), both, classes_of(config));
}

bitgrad_event event_of(const TrainEvent& e) {
  return {0,          e.step, e.epoch,         e.steps_total, e.epochs_total, e.loss,
          e.accuracy, e.lr,   e.samples_per_s, e.seconds,     e.eta_seconds};
}
bitgrad_event event_of(const EvalEvent& e) { return {1, e.step, e.epoch, 0, 0, e.loss, e.accuracy, 0, 0, 0, 0}; }

void write_evaluation(const std::optional<Evaluation>& e, bitgrad_result& out) {
  out.loss = e ? e->loss : std::numeric_limits<double>::quiet_NaN();
  out.accuracy = e ? e->accuracy : -1;
  out.samples = e ? e->samples : 0;
}

}  // namespace

int bitgrad_trainer_create(const char* config, const char* const* overrides, int32_t n_overrides,
                           const bitgrad_array* x, const bitgrad_array* y, const bitgrad_array* x_test,
                           const bitgrad_array* y_test, bitgrad_trainer** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    prepare_process();
    require((x_test == nullptr) == (y_test == nullptr), "c", "got one of x_test and y_test, expected both or none");
    const RunConfig c = memory_config(config, overrides, n_overrides, x_test != nullptr);
    auto train = data_of(c, x, y, "x", "y");
    auto test = x_test != nullptr ? data_of(c, x_test, y_test, "x_test", "y_test") : nullptr;
    auto handle = std::make_unique<bitgrad_trainer>();
    handle->trainer = std::make_unique<Trainer>(c, std::move(train), std::move(test));
    *out = handle.release();
  });
}
void bitgrad_trainer_close(bitgrad_trainer* trainer) { delete trainer; }

int bitgrad_trainer_resume(bitgrad_trainer* trainer, const char* from, int32_t use_data) {
  return guarded([&] {
    bitgrad_trainer& handle = given(trainer, "trainer");
    const std::string path = &given(from, "from");
    if (!file_system().is_directory(path)) return handle.trainer->resume(path, use_data != 0);
    RunFolder folder{path, lock_run_folder(path)};  // unlocked again if it does not resume
    handle.trainer->resume(newest_checkpoint(path), use_data != 0);
    handle.resumed = std::move(folder);
  });
}

int bitgrad_trainer_run(bitgrad_trainer* trainer, const char* folder, bitgrad_progress progress, void* user,
                        bitgrad_result* out) {
  return guarded([&] {
    Trainer& t = *given(trainer, "trainer").trainer;
    std::unique_ptr<RunFolder> run;
    const bool goes_on = folder != nullptr && trainer->resumed.lock && trainer->resumed.path == folder;
    if (folder != nullptr && !goes_on) run = std::make_unique<RunFolder>(start_run_folder(t.config(), folder));
    bool stop = false;
    TrainHooks hooks;
    if (progress != nullptr) {
      const auto tell = [&](const bitgrad_event& e) { stop = progress(&e, user) != 0 || stop; };
      hooks.on_tick = [tell](const TrainEvent& e) { tell(event_of(e)); };
      hooks.on_eval = [tell](const EvalEvent& e) { tell(event_of(e)); };
      hooks.stop_requested = [&] { return stop ? StopRequest::kInterrupt : StopRequest::kNone; };
    }
    const TrainOutcome outcome = t.run(run ? run->path : goes_on ? trainer->resumed.path : std::string(), hooks);
    if (out == nullptr) return;
    *out = {};
    write_evaluation(outcome.evaluation, *out);
    out->steps = outcome.optimizer_steps;
    out->epochs = outcome.counters.epoch;
    out->skipped_windows = outcome.skipped_windows;
    out->seconds = outcome.seconds;
    out->stopped = outcome.stopped == StopRequest::kNone ? 0 : 1;
    std::strncpy(out->state_hash, outcome.state_hash.c_str(), sizeof out->state_hash - 1);
  });
}

int bitgrad_trainer_evaluate(bitgrad_trainer* trainer, bitgrad_result* out) {
  return guarded([&] {
    Trainer& t = *given(trainer, "trainer").trainer;
    const Evaluation e = t.evaluate_held_out();
    given(out, "out") = {};
    write_evaluation(e, *out);
    out->epochs = t.counters().epoch;
    out->steps = t.learner().state().step;
    out->skipped_windows = t.learner().skipped().windows;
    std::strncpy(out->state_hash, state_hash(t.learner(), t.counters()).c_str(), sizeof out->state_hash - 1);
  });
}

int bitgrad_trainer_save(bitgrad_trainer* trainer, const char* path) {
  return guarded([&] {
    Trainer& t = *given(trainer, "trainer").trainer;
    save_checkpoint(&given(path, "path"), t.learner(), t.counters(), to_portable_yaml(t.config()), {},
                    t.table_record());
  });
}
