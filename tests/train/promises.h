// What every run promises, whatever it trains: one state, one set of metrics and one model, however it was interrupted
// and whatever computed it. promises.inc lists runs that use each feature; promises_test.cpp and
// tests/cuda/promises_test.cpp repeat each of them in other ways, and compare them step by step.
#pragma once

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/tools/ptq.h"
#include "support/sanitized.h"
#include "train/averages.h"
#include "train/promise_exports.h"
#include "train/promise_nets.h"
#include "train/train_state.h"

namespace bitgrad::test {

using Keys = std::vector<std::string>;

// Of the list of promises and of the pairs of twins, every so many-th: a sanitizer finds nothing in the others that it
// finds in no test of their features. Networks are listed in turns of two and four forms, so an odd stride meets all.
inline const size_t kPromiseStride = kSanitized ? 5 : 1, kPairStride = kSanitized ? 17 : 1;

struct Promise {
  std::string feature, net;
  bool same_state;  // as the promise before it
  Keys keys;
};

inline std::vector<Promise> listed_promises() {
  return {
#define PROMISE(feature, net, ...) {feature, #net, false, {__VA_ARGS__}},
#define SAME_STATE(feature, net, ...) {feature, #net, true, {__VA_ARGS__}},
#include "train/promises.inc"
#undef PROMISE
#undef SAME_STATE
  };
}

// Those of promises.inc, and each update rule with each kind of moments and masters.
inline const std::vector<Promise>& promises() {
  static const std::vector<Promise> list = [] {
    std::vector<Promise> all = listed_promises();
    for (const std::string rule :
         {"{name: sgd, lr: 0.05, momentum: 0.9", "{name: adam, lr: 0.03", "{name: adamw, lr: 0.03, weight_decay: 0.1"})
      for (const std::string moments : {"fp32", "bf16", "int8", "int4"})
        for (const std::string masters : {"fp32", "bf16", "none"})
          all.push_back(
              {concat(rule, "}, moments ", moments, ", masters ", masters),
               "table",
               false,
               {concat("optim=", rule, ", moments: ", moments, '}'),
                concat("quant.weights={dtype: int8, scheme: absmax, granularity: channel, master: ", masters, '}'),
                "train.stop=4 steps"}});
    return all;
  }();
  return list;
}

// The configuration of a promise with `more` keys. A checkpoint in two steps, a line of metrics in three.
inline RunConfig config_of(const PromiseFolder& folder, const Promise& promise, const Keys& more) {
  Keys keys{"checkpoint.every=2 steps", "log={every: 3 steps, quantization: 1 steps, report: false}"};
  keys.insert(keys.end(), promise.keys.begin(), promise.keys.end());
  keys.insert(keys.end(), more.begin(), more.end());
  return folder.config(promise.net, keys);
}

// The state after an optimizer step, as a checksum of each tensor and counter, and what was told of the step.
struct StepTrace {
  std::map<std::string, uint64_t> state;
  std::string told;
};
struct Trace {
  std::map<int64_t, StepTrace> steps;
  std::map<std::string, std::string> results;  // at the end: hash, metrics, summary, exported model, ..
};

inline std::map<std::string, uint64_t> state_of(Learner& learner) {
  std::map<std::string, uint64_t> out;
  const auto add = [&](const std::string& name, const Tensor& t) {
    if (!t.defined()) return;
    const std::vector<double> numbers = t.on_host().elements();
    out[name] = crc32c(numbers.data(), numbers.size() * sizeof(double));
  };
  for (const Parameter* p : learner.model().parameters()) {
    add(p->path() + " (master)", p->master());
    add(p->path() + " (value)", p->value());
    if (!p->value().quant()) continue;
    const QuantParams& q = *p->value().quant();
    for (const auto& [name, part] : {std::pair{" (scales)", q.scale},
                                     {" (zeros)", q.zero},
                                     {" (offsets)", q.offset},
                                     {" (statistic)", q.statistic}})
      if (part) add(p->path() + name, *part);
  }
  for (const auto& s : learner.optimizer().state()) add(s.name, s.tensor);
  for (const auto& b : learner.model().buffers()) add(b.path, b.tensor);
  if (learner.train_state().average)
    for (const auto& [name, tensor] : learner.train_state().average->state()) add(name, tensor);
  const auto count = [&](const std::string& name, int64_t n) { out[name] = static_cast<uint64_t>(n); };
  count("the optimizer's number of steps", learner.optimizer().steps());
  count("the number of steps", learner.state().step);
  count("the number of microbatches", learner.state().microbatch);
  count("the number of microbatches since the last requantization", learner.since_requantize());
  count("the phase", learner.phase());
  return out;
}

inline std::string exact(double x) {
  std::ostringstream text;
  text.precision(17);
  text << x;
  return text.str();
}

// Hooks that keep a trace of a run.
inline TrainHooks traced(Trainer& trainer, Trace& trace) {
  TrainHooks hooks;
  hooks.on_tick = [&](const TrainEvent& e) {
    trace.steps[e.step] = {state_of(trainer.learner()),
                           concat("microbatch ", e.microbatch, " of ", e.microbatches_total, ", rate ", exact(e.lr),
                                  ", loss ", exact(e.loss), ", accuracy ", exact(e.accuracy), '\n')};
  };
  hooks.on_eval = [&](const EvalEvent& e) {
    std::string& told = trace.steps[e.step].told;
    told += concat(e.split, ": epoch ", e.epoch, ", loss ", exact(e.loss), ", accuracy ", exact(e.accuracy),
                   e.best ? ", best" : "", ", ", e.metric, ' ', exact(e.value), e.final ? ", final" : "", '\n');
    if (e.average) told += concat("average: loss ", exact(e.average->loss), '\n');
    for (const auto& [name, value] : e.metrics) told += concat(name, ' ', exact(value), '\n');
  };
  hooks.on_quant = [&](const QuantEvent& e) { trace.steps[e.step].told += to_json(e) + '\n'; };
  return hooks;
}

// Lines of the metrics and the summary, without what depends on the clock.
inline std::string metrics_of(const std::string& folder) {
  std::string out;
  std::istringstream in(text_of(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    Json j = Json::parse(line);
    for (const char* key : {"samples_per_s", "tokens_per_s", "gmacs_per_s", "slowest_rank", "wait"}) j.erase(key);
    out += j.dump() + '\n';
  }
  return out;
}
inline std::string summary_of(const std::string& folder) {
  Json j = Json::parse(text_of(folder + "/summary.json"));
  for (const char* key : {"seconds", "memory"}) j.erase(key);
  return j.dump(1);
}

// Checksums of a file's tensors.
inline std::string tensors_of(const std::string& path) {
  std::string out;
  const SafetensorsFile file = SafetensorsFile::read(path);
  for (const SafetensorsEntry& e : file.entries())
    out += concat(e.name, ' ', crc32c(file.data(e.name), static_cast<size_t>(e.bytes)), '\n');
  return out;
}

// What a finished run leaves: in its folder where it has one, and the model that it exports.
inline void add_results(Trace& trace, Trainer& trainer, const TrainOutcome& outcome, const std::string& folder) {
  trace.results["state hash"] = outcome.state_hash;
  trace.results["end"] = outcome.ended;
  trace.results["last step"] = std::to_string(outcome.optimizer_steps);
  if (outcome.evaluation)
    trace.results["evaluation"] = exact(outcome.evaluation->loss) + ' ' + exact(outcome.evaluation->accuracy);
  if (folder.empty()) return;
  trace.results["metrics.jsonl"] = metrics_of(folder);
  trace.results["summary.json"] = summary_of(folder);
  trace.results["config.yaml"] = text_of(folder + "/config.yaml");
  for (const char* other : {"best.safetensors", "average.safetensors"})
    if (file_system().exists(concat(folder, '/', other))) trace.results[other] = tensors_of(concat(folder, '/', other));
  CheckpointHeader header = read_checkpoint_header(folder + "/last.safetensors");
  trace.results["origin"] = header.origin;
  header.counters = {};
  trainer.learner().convert();
  save_model(folder + "/model.safetensors", trainer.learner().model(), header);
  trace.results["converted model"] = text_of(folder + "/model.safetensors");
  if (trainer.learner().device().is_cpu())
    trace.results.merge(exports_of(trainer.learner(), folder + "/model.safetensors"));
}

// A run without interruption; an empty folder: nothing is written.
inline Trace trace_of(const RunConfig& config, const std::string& folder = "") {
  Trace trace;
  Trainer trainer(resolve_budget(config));
  const TrainOutcome outcome = trainer.run(folder, traced(trainer, trace));
  add_results(trace, trainer, outcome, folder);
  return trace;
}

inline std::string state_difference(const StepTrace& uninterrupted, const std::map<std::string, uint64_t>& other) {
  std::string parts;
  for (const auto& [name, sum] : uninterrupted.state)
    if (const auto at = other.find(name); at == other.end() || at->second != sum) parts += "\n  " + name;
  for (const auto& [name, sum] : other)
    if (!uninterrupted.state.contains(name)) parts += "\n  " + name;
  return parts;
}

// Where `other` first leaves `uninterrupted`: at a step, or in its results. "": nowhere.
inline std::string first_difference(const Trace& uninterrupted, const Trace& other) {
  for (const auto& [step, mine] : uninterrupted.steps) {
    const auto theirs = other.steps.find(step);
    if (theirs == other.steps.end()) return concat("step ", step, " is missing");
    const std::string parts = state_difference(mine, theirs->second.state);
    if (!parts.empty()) return concat("after step ", step, " these differ:", parts);
    if (mine.told != theirs->second.told)
      return concat("of step ", step, " it reports\n", theirs->second.told, "instead of\n", mine.told);
  }
  if (other.steps.size() > uninterrupted.steps.size())
    return concat("it goes on to step ", other.steps.rbegin()->first, ", past ", uninterrupted.steps.rbegin()->first);
  for (const auto& [name, theirs] : other.results) {
    const auto at = uninterrupted.results.find(name);
    if (at == uninterrupted.results.end()) return concat("it has ", name);
    const std::string& mine = at->second;
    if (theirs == mine) continue;
    const bool text = name != "converted model" && !name.starts_with("export ");
    return concat("other ", name, text ? concat(":\n", theirs, "\ninstead of\n", mine) : "");
  }
  return "";
}

}  // namespace bitgrad::test
