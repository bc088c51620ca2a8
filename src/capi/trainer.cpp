#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/task/loss.h"
#include "bitgrad/tools/budget.h"
#include "capi/arrays.h"
#include "capi/guard.h"
#include "capi/run_config.h"

using namespace bitgrad;
using namespace bitgrad::capi;

struct bitgrad_trainer {
  std::recursive_mutex busy;
  std::atomic<bool> stop = false;  // asked by another thread, or closed
  int (*poll)(void*) = nullptr;
  void* poll_user = nullptr;
  std::atomic<bool> running = false;
  std::string evaluation = "null";  // the last one, as JSON
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
  for_each_layer(config.layers, [&](const LayerSpec& layer) {
    if (layer.attributes.values().count("out") > 0) out = layer.attributes.integer("out");
  });
  return out;
}

// Rows of one 1 among zeros, for a loss of classes: they would train as probabilities, and no accuracy is counted.
void refuse_one_hot(const RunConfig& config, const SampleView& x, const SampleView& y) {
  const LossKind* const loss = find_loss_kind(config.loss);
  const bool ids = x.stored != StoredAs::kFloat && x.stored != StoredAs::kUint8;
  if (loss == nullptr || !loss->classes || ids || y.shape.rank() != 1 || y.shape[0] < 2) return;
  const int64_t each = y.shape[0];
  for (int64_t row = 0; row < y.count; ++row) {
    int64_t ones = 0, zeros = 0;
    for (int64_t i = row * each; i < (row + 1) * each; ++i) {
      const double value = y.stored == StoredAs::kFloat   ? static_cast<double>(static_cast<const float*>(y.data)[i])
                           : y.stored == StoredAs::kUint8 ? static_cast<const uint8_t*>(y.data)[i]
                                                          : static_cast<const int32_t*>(y.data)[i];
      ones += value == 1 ? 1 : 0;
      zeros += value == 0 ? 1 : 0;
    }
    if (ones != 1 || zeros != each - 1) return;
  }
  fail("c", y.name, ": got [", y.count, ", ", each,
       "] with one 1 in each row: one-hot, expected a class per sample: ", y.name, ".argmax(axis=1)");
}

std::unique_ptr<Dataset> data_of(const RunConfig& config, const bitgrad_array* x, const bitgrad_array* y,
                                 const char* x_name, const char* y_name) {
  const auto samples = std::make_shared<ArrayView>(x, x_name), targets = std::make_shared<ArrayView>(y, y_name);
  refuse_one_hot(config, samples->samples(), targets_of(*targets));
  const auto both =
      std::make_shared<std::pair<std::shared_ptr<ArrayView>, std::shared_ptr<ArrayView>>>(samples, targets);
  return memory_data(config, samples->samples(), targets_of(*targets), both, classes_of(config));
}

bitgrad_event event_of(const TrainEvent& e) {
  return {0,          e.step, e.epoch,         e.steps_total, e.epochs_total, e.loss,
          e.accuracy, e.lr,   e.samples_per_s, e.seconds,     e.eta_seconds};
}
bitgrad_event event_of(const EvalEvent& e) { return {1, e.step, e.epoch, 0, 0, e.loss, e.accuracy, 0, 0, 0, 0}; }

Json json_of(const MetricValues& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics) out[name] = value;
  return out;
}
std::string json_of(const EvalEvent& e) {
  Json out{{"split", e.split}, {"step", e.step}, {"best", e.best}, {"final", e.final}, {"metrics", json_of(e.metrics)}};
  return out.dump();
}
std::string json_of(const std::string& split, int64_t step, const Evaluation& e) {
  return Json{{"split", split}, {"step", step}, {"metrics", json_of(e.metrics)}}.dump();
}

void write_evaluation(const std::optional<Evaluation>& e, bitgrad_result& out) {
  out.loss = e ? e->loss : std::numeric_limits<double>::quiet_NaN();
  out.accuracy = e ? e->accuracy : -1;
  out.samples = e ? e->samples : 0;
}

struct AtWork {
  bitgrad_trainer& handle;
  explicit AtWork(bitgrad_trainer& h) : handle(h) { handle.running = true; }
  ~AtWork() { handle.running = handle.stop = false; }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
};

// A handle that is stopped, or whose callbacks ask for it, ends its run; between batches of an evaluation too.
TrainHooks hooks_of(bitgrad_trainer& handle, bitgrad_progress progress, void* user) {
  TrainHooks hooks;
  const auto tell = [&handle, progress, user](const bitgrad_event& e) {
    if (progress != nullptr && call_program([&] { return progress(&e, user); }) != 0) handle.stop = true;
  };
  hooks.on_tick = [tell](const TrainEvent& e) { tell(event_of(e)); };
  hooks.on_eval = [tell, &handle](const EvalEvent& e) {
    handle.evaluation = json_of(e);
    tell(event_of(e));
  };
  hooks.stop_requested = [&handle] { return handle.stop ? StopRequest::kInterrupt : StopRequest::kNone; };
  hooks.cut_evaluation = [&handle] {
    if (handle.poll != nullptr && call_program([&] { return handle.poll(handle.poll_user); }) != 0) handle.stop = true;
    return handle.stop.load();
  };
  return hooks;
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
    auto handle = std::make_shared<bitgrad_trainer>();
    handle->trainer = std::make_unique<Trainer>(resolve_budget(c), std::move(train), std::move(test));
    *out = handles<bitgrad_trainer>().add(std::move(handle));
  });
}
void bitgrad_trainer_close(bitgrad_trainer* trainer) {
  const std::shared_ptr<bitgrad_trainer> handle = handles<bitgrad_trainer>().remove(trainer);
  if (handle) handle->stop = true;
}

int bitgrad_trainer_stop(bitgrad_trainer* trainer) {
  return guarded([&] {
    const std::shared_ptr<bitgrad_trainer> handle = handles<bitgrad_trainer>().get(trainer, "trainer");
    if (handle->running) handle->stop = true;
  });
}

int bitgrad_trainer_set_poll(bitgrad_trainer* trainer, int (*poll)(void* user), void* user) {
  return alone(trainer, "trainer", [&](bitgrad_trainer& handle) {
    handle.poll = poll;
    handle.poll_user = user;
  });
}

int bitgrad_trainer_set_learning_rate(bitgrad_trainer* trainer, double rate) {
  return alone(trainer, "trainer", [&](bitgrad_trainer& handle) {
    require(handle.trainer->config().schedule.name != "plateau", "c",
            "learning rate: schedule plateau sets it after each evaluation. Use another schedule");
    handle.trainer->learner().set_learning_rates(constant_rate(rate));
  });
}

const char* bitgrad_trainer_evaluation(const bitgrad_trainer* trainer) {
  const char* text = nullptr;
  alone(trainer, "trainer", [&](const bitgrad_trainer& t) { text = t.evaluation.c_str(); });
  return text;
}

int bitgrad_trainer_resume(bitgrad_trainer* trainer, const char* from, int32_t use_data) {
  return alone(trainer, "trainer", [&](bitgrad_trainer& handle) {
    const std::string path = &given(from, "from");
    if (!file_system().is_directory(path)) return handle.trainer->resume(path, use_data != 0);
    RunFolder folder{path, lock_run_folder(path)};  // unlocked again if it does not resume
    handle.trainer->resume(newest_checkpoint(path), use_data != 0);
    handle.resumed = std::move(folder);
  });
}

int bitgrad_trainer_name_columns(bitgrad_trainer* trainer, const char* const* features, int32_t n_features,
                                 const char* const* targets, int32_t n_targets) {
  return alone(trainer, "trainer", [&](bitgrad_trainer& used) {
    require(!used.running, "c", "trainer: is training");
    used.trainer->name_columns(texts(features, n_features, "features"), texts(targets, n_targets, "targets"));
  });
}

int bitgrad_trainer_run(bitgrad_trainer* trainer, const char* folder, bitgrad_progress progress, void* user,
                        bitgrad_result* out) {
  return alone(trainer, "trainer", [&](bitgrad_trainer& handle) {
    Trainer& t = *handle.trainer;
    require(!handle.running, "c", "trainer: is training. Its callback cannot run it again");
    std::unique_ptr<RunFolder> run;
    const bool goes_on = folder != nullptr && handle.resumed.lock && handle.resumed.path == folder;
    if (folder != nullptr && !goes_on) run = std::make_unique<RunFolder>(start_run_folder(t.config(), folder));
    const TrainHooks hooks = hooks_of(handle, progress, user);
    const AtWork mark(handle);
    const TrainOutcome outcome = t.run(run ? run->path : goes_on ? handle.resumed.path : std::string(), hooks);
    if (outcome.evaluation) handle.evaluation = json_of(outcome.evaluated, outcome.evaluated_step, *outcome.evaluation);
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
  return alone(trainer, "trainer", [&](bitgrad_trainer& used) {
    Trainer& t = *used.trainer;
    const Evaluation e = t.evaluate_held_out();
    used.evaluation = json_of(t.held_out(), t.learner().state().step, e);
    given(out, "out") = {};
    write_evaluation(e, *out);
    out->epochs = t.counters().epoch;
    out->steps = t.learner().state().step;
    out->skipped_windows = t.learner().skipped().windows;
    std::strncpy(out->state_hash, state_hash(t.learner(), t.counters()).c_str(), sizeof out->state_hash - 1);
  });
}

int bitgrad_trainer_save(bitgrad_trainer* trainer, const char* path) {
  return alone(trainer, "trainer", [&](bitgrad_trainer& used) {
    Trainer& t = *used.trainer;
    save_checkpoint(&given(path, "path"), t.learner(), t.counters(), to_portable_yaml(t.config()), {},
                    t.table_record());
  });
}
