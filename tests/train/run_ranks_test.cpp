// Every feature of promises.inc on several ranks, which must be the run of one; and how such runs end.
#include "train/run_ranks.h"

#include <atomic>

#include "run/run_parts.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/unsynced_file_system.h"
#include "train/promise_stops.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const PromiseFolder& data() {
  static const PromiseFolder made;
  return made;
}

// A promise with four microbatches a step. Epochs of 7 microbatches leave windows incomplete where they end a run.
RunConfig shared_config(const Promise& promise, const Keys& more = {}) {
  Keys keys{"run.bits=strict", "device.threads=1", "batch={global: 28, micro: 7, sum: tree}",
            "quant.observer_update=window"};
  if (promise.net == "table" && !contains(promise.feature, "early stop")) keys.push_back("train.stop=3 epochs");
  if (contains(promise.feature, "nothing counts"))
    keys.insert(keys.end(), {"batch={global: 4, micro: 1, sum: tree}", "model.layers.1={hardtanh: {}}"});
  if (contains(promise.feature, "multistep")) keys.push_back("schedule.at=[2 steps, 4 steps]");
  if (promise.net == "tfc" || promise.net == "int4")
    keys.insert(keys.end(), {"~quant.requantize_every", "batch.last=join"});
  for (const std::string& key : promise.keys)
    if (contains(key, "requantize_every")) keys.push_back("quant.requantize_every=8");
  keys.insert(keys.end(), more.begin(), more.end());
  return config_of(data(), promise, keys);
}

const Promise& promise_of(const std::string& feature) {
  for (const Promise& p : promises())
    if (p.feature == feature) return p;
  FAIL("no promise of " << feature);
  return promises()[0];
}

// After `stop` polls of rank `rank`, that rank is asked to stop.
std::vector<TrainHooks> stopped_by(size_t size, size_t rank, int64_t polls) {
  std::vector<TrainHooks> hooks(size);
  hooks[rank].stop_requested = [polls, n = int64_t{0}]() mutable {
    return ++n >= polls ? StopRequest::kTerminate : StopRequest::kNone;
  };
  return hooks;
}

// A run that is stopped after each step and resumed, with these numbers of ranks in turn.
Trace resumed_trace(const RunConfig& config, const std::vector<int64_t>& sizes) {
  const std::string folder = new_folder(data(), config);
  Trace trace;
  std::string checkpoint;
  for (size_t part = 0; part < 40; ++part) {
    const int64_t size = sizes[part % sizes.size()];
    std::vector<std::unique_ptr<Trainer>> trainers;
    if (size == 1) {
      trainers.push_back(std::make_unique<Trainer>(config));
      if (!checkpoint.empty()) trainers[0]->resume(checkpoint);
    } else {
      trainers = trainers_of(
          size, [&](int64_t) { return RunConfig(config); }, checkpoint);
    }
    std::vector<TrainHooks> hooks = stopped_by(trainers.size(), trainers.size() - 1, 1);
    TrainHooks first = traced(*trainers[0], trace);
    first.stop_requested = hooks[0].stop_requested;
    hooks[0] = first;
    gather_at_steps(trainers, hooks);
    const std::vector<RankEnd> ends = run_ranks(trainers, folder, hooks);
    for (const RankEnd& end : ends) REQUIRE(end.error.empty());
    checkpoint = run_folder_checkpoint(folder);
    if (ends[0].outcome.stopped != StopRequest::kNone) continue;
    add_results(trace, *trainers[0], ends[0].outcome, folder);
    break;
  }
  return trace;
}

}  // namespace

TEST_CASE("two and four ranks give the run of one: states, metrics, evaluations, files") {
  const KeepModes keep;
  const UnsyncedFileSystem files;
  const SharedRowsOnly shared;
  size_t compared = 0, at = 0;
  for (const Promise& promise : promises()) {
    if (at++ % kPromiseStride != 0) continue;
    const int64_t size = ++compared % 2 == 0 ? 2 : 4;
    const bool steps = compared % 3 != 0;  // the others bring the state together only where the run itself does
    std::string text;
    try {
      const RunConfig config = shared_config(promise);
      Trace one = trace_of(config, new_folder(data(), config));
      if (!steps) one.steps.clear();
      text = first_difference(one, trace_of_ranks(config, size, new_folder(data(), config), steps));
    } catch (const Error& error) {
      text = concat("error: ", error.what());
    }
    if (contains(text, "reads all values")) {  // observers with histograms, which ranks refuse
      --compared;
      continue;
    }
    if (!text.empty()) FAIL_CHECK("\"" << promise.feature << "\" on " << size << " ranks: " << text);
    CHECK(text.empty());
  }
  CHECK(compared > promises().size() / kPromiseStride * 3 / 4);
}

TEST_CASE("a run goes on with another number of ranks at every step") {
  const KeepModes keep;
  const UnsyncedFileSystem files;
  const SharedRowsOnly shared;
  for (const char* feature : {"codes every other step, drawn", "learned steps and offsets of activations",
                              "average of the weights, phases, best by validation"}) {
    const RunConfig config = shared_config(promise_of(feature));
    const Trace one = trace_of(config, new_folder(data(), config));
    INFO(feature);
    CHECK(first_difference(one, resumed_trace(config, {1, 4, 2, 1, 4, 2, 4, 1})) == "");
  }
}

TEST_CASE("a run over a wire that rounds goes on bit for bit with as many ranks, and differs from the exact one",
          "[bits]") {
  const KeepModes keep;
  const UnsyncedFileSystem files;
  const SharedRowsOnly shared;
  for (const char* feature : {"codes every other step, drawn", "learned steps and offsets of activations",
                              "average of the weights, phases, best by validation"})
    for (const std::string wire : {"bf16", "int8"})
      for (const int64_t size : {2, 4}) {
        const RunConfig config = shared_config(promise_of(feature), {"ranks.wire=" + wire});
        const Trace whole = trace_of_ranks(config, size, new_folder(data(), config));
        INFO(feature << ", " << wire << ", " << size << " ranks");
        CHECK(first_difference(whole, trace_of_ranks(config, size, new_folder(data(), config))) == "");
        CHECK(first_difference(whole, resumed_trace(config, {size})) == "");
        CHECK(first_difference(whole, trace_of(config, new_folder(data(), config))) != "");
      }
}

TEST_CASE("a request to one rank stops all at the same step, saved; also within an evaluation") {
  const KeepModes keep;
  const RunConfig config = shared_config(promise_of("two microbatches a step"));
  for (const size_t asked : {0, 1, 3}) {
    const auto trainers = trainers_of(4, [&](int64_t) { return RunConfig(config); });
    const std::string folder = new_folder(data(), config);
    for (const RankEnd& end : run_ranks(trainers, folder, stopped_by(4, asked, 2))) {
      CHECK(end.error.empty());
      CHECK(end.outcome.stopped == StopRequest::kTerminate);
      CHECK(end.outcome.optimizer_steps == 2);
    }
    CHECK(read_checkpoint_header(folder + "/last.safetensors").step == 2);
  }
  const auto trainers = trainers_of(2, [&](int64_t) { return RunConfig(config); });
  std::vector<TrainHooks> hooks(2);
  hooks[1].cut_evaluation = [] { return true; };
  const std::string folder = new_folder(data(), config);
  for (const RankEnd& end : run_ranks(trainers, folder, hooks)) {
    CHECK(end.error.empty());
    CHECK(end.outcome.stopped == StopRequest::kInterrupt);
    CHECK(contains(end.outcome.ended, "in an evaluation that a resumed run repeats"));
  }
}

TEST_CASE("an Error of one rank ends all with its text and its code, and the last checkpoint is whole") {
  const KeepModes keep;
  const RunConfig config = shared_config(promise_of("two microbatches a step"));
  for (const size_t failed : {0, 2}) {
    const auto trainers = trainers_of(4, [&](int64_t) { return RunConfig(config); });
    std::vector<TrainHooks> hooks(4);
    hooks[failed].stop_requested = [n = 0]() mutable {
      if (++n == 4) fail_with(ErrorCode::kData, "test", "no more of it");
      return StopRequest::kNone;
    };
    const std::string folder = new_folder(data(), config);
    const std::vector<RankEnd> ends = run_ranks(trainers, folder, hooks);
    for (size_t r = 0; r < ends.size(); ++r) {
      CHECK(ends[r].code == ErrorCode::kData);
      CHECK(ends[r].error ==
            (r == failed ? "[test] no more of it" : concat("[ranks] rank ", failed, " ended: [test] no more of it")));
    }
    CHECK(read_checkpoint_header(folder + "/last.safetensors").step == 2);
    CHECK(Json::parse(text_of(folder + "/summary.json")).at("status") == "failed");
  }
}

TEST_CASE("ranks that differ in configuration, values or data do not begin, and the message names both") {
  const KeepModes keep;
  const Promise& promise = promise_of("two microbatches a step");
  const auto errors = [&](const std::function<RunConfig(int64_t)>& config) {
    const auto trainers = trainers_of(2, config);
    const std::vector<RankEnd> ends = run_ranks(trainers, "", std::vector<TrainHooks>(2));
    CHECK(ends[0].error == ends[1].error);
    return ends[0].error;
  };
  CHECK(errors([&](int64_t r) { return shared_config(promise, {concat("run.seed=", 3 + r)}); }) ==
        "[ranks] ranks 0 and 1 differ in configuration: \"run: {name: table, dir: runs, seed: 3, bits: strict}\" and "
        "\"run: {name: table, dir: runs, seed: 4, bits: strict}\": expected the same on all");
  CHECK(contains(errors([&](int64_t r) {
                   return shared_config(promise, {r == 0 ? "data.train.file=train.csv" : "data.train.file=test.csv"});
                 }),
                 "ranks 0 and 1 differ in configuration: \"  train: {format: csv, classes: 0, file: train.csv, "));
  const auto trainers = trainers_of(2, [&](int64_t) { return shared_config(promise); });
  trainers[1]->learner().model().parameters()[0]->master().as<float>()[0] += 1;
  const std::vector<RankEnd> ends = run_ranks(trainers, "", std::vector<TrainHooks>(2));
  CHECK(contains(ends[0].error, "[ranks] ranks 0 and 1 differ in weights and counters at the start"));
}

TEST_CASE("models that come apart are an error at the next comparison or evaluation, which names ranks and tensor") {
  const KeepModes keep;
  RunConfig config = shared_config(promise_of("two microbatches a step"));
  const bool evaluates = GENERATE(true, false);
  if (!evaluates) {
    config.train.eval.every = {100, Quantity::Unit::kEpochs};
    config.ranks.check_every = {2, Quantity::Unit::kSteps};
  }
  const auto trainers = trainers_of(4, [&](int64_t) { return RunConfig(config); });
  std::vector<TrainHooks> hooks(4);
  hooks[2].on_tick = [&](const TrainEvent& e) {
    for (const Module::Buffer& b : trainers[2]->learner().model().buffers())
      if (e.step == 1 && b.path.ends_with("running_var")) b.tensor.as<float>()[0] += 1;
  };
  const std::vector<RankEnd> ends = run_ranks(trainers, new_folder(data(), config), hooks);
  CHECK(contains(ends[2].error,
                 "[ranks] the models of ranks 0 and 2 have come apart by step 2, first in layers.1.running_var"));
  CHECK(ends[0].code == ErrorCode::kDevice);
}

TEST_CASE("a wire that rounds warns of other bits, and one that nothing goes through of that") {
  const KeepModes keep;
  const auto warned = [](const std::string& wire, int64_t least) {
    const SharedRowsOnly shared;
    detail::least_shared_bytes = least;
    Trainer trainer(shared_config(promise_of("two microbatches a step"), {"ranks.wire=" + wire}));
    const LogLines log;
    trainer.set_ranks(make_thread_ranks(2)[0]);
    std::string found;
    for (const std::string& line : log.warnings)
      if (contains(line, "ranks.wire")) found += line;
    return found;
  };
  CHECK(warned("exact", 1).empty());
  CHECK(warned("int8", 1) ==
        "ranks.wire: int8 rounds gradients between ranks: another number of ranks gives other bits");
  CHECK(warned("bf16", 1 << 30) ==
        "ranks.wire: bf16 has no effect as the run begins: every rank updates all weights (docs/ranks.md)");
}

TEST_CASE("ranks refuse what they cannot share") {
  const KeepModes keep;
  const auto refused = [&](const std::string& feature, const Keys& keys, int64_t size) {
    Trainer trainer(shared_config(promise_of(feature), keys));
    return error_of([&] { trainer.set_ranks(make_thread_ranks(size)[0]); });
  };
  const std::string plain = "two microbatches a step";
  CHECK(
      refused(plain, {}, 3) ==
      "[ranks] 3 ranks share the microbatches of a step, of which batch.global 28 and batch.micro 7 make 4: expected a "
      "multiple of 3. A new run can have batch.micro: 9 and batch.global: 27");
  CHECK(contains(refused(plain, {"batch.sum=running"}, 2), "batch.sum: running is not for 2 ranks"));
  CHECK(contains(refused("ranges of all batches", {"quant.observer_update=microbatch"}, 2),
                 "quant.observer_update: microbatch is not for 2 ranks: expected auto or window"));
  CHECK(contains(refused("range of the least error", {"quant.observer_update=auto"}, 2),
                 "observer mse reads all values, so it cannot follow a microbatch at the end of its step"));
  CHECK(contains(
      refused("phases: fp32, int4, int3, frozen",
              {"quant.recipe=none", "quant.observer_update=auto",
               "quant.phases=[{from: 0 steps}, {from: 3 steps, rules: [{layers: \"*\", weights: {dtype: int8}, "
               "activations: {dtype: int8, observer: {name: percentile}}}]}]"},
              2),
      "observer percentile reads all values"));
  Trainer begun(shared_config(promise_of(plain)));
  begun.start();
  CHECK(contains(error_of([&] { begun.set_ranks(make_thread_ranks(2)[0]); }), "ranks are set before the run begins"));
}

TEST_CASE("a train line names the rank whose microbatches took longest, and the part of the time that ranks wait") {
  detail::Interval interval;
  TrainEvent e;
  interval.add(std::vector<double>());
  interval.report(e, true, 0);
  CHECK(e.slowest_rank == -1);
  interval.add(std::vector<double>{1, 3, 2, 2});
  interval.add(std::vector<double>{1, 1, 4, 2});
  interval.report(e, true, 0);
  CHECK(e.slowest_rank == 2);
  CHECK(e.wait == 1 - (2 + 4 + 6 + 4) / (4 * 6.0));
}
