// Each run of promises.inc, interrupted and computed in other ways: the same state after every step, and the same
// results. tests/cuda/promises_test.cpp adds the device.
#include "train/promises.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "support/catch.h"
#include "support/numbers.h"
#include "support/unsynced_file_system.h"
#include "train/promise_stops.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const PromiseFolder& data() {
  static const PromiseFolder made;
  return made;
}

// Of each promise the run that nothing interrupts, on one thread, made once.
struct Uninterrupted {
  std::string folder;
  Trace trace;
};
const Uninterrupted& uninterrupted_run(const Promise& promise, const std::string& bits) {
  static std::map<std::string, Uninterrupted> made;
  const auto [at, fresh] = made.try_emplace(bits + promise.feature);
  if (fresh) {
    const RunConfig config = config_of(data(), promise, {"run.bits=" + bits, "device.threads=1"});
    at->second.folder = new_folder(data(), config);
    at->second.trace = trace_of(config, at->second.folder);
  }
  return at->second;
}

template <typename Body>
void for_every_promise(Body&& body, size_t stride = kPromiseStride) {
  const KeepModes keep;
  const UnsyncedFileSystem files;
  for (size_t i = 0; i < promises().size(); i += stride) try {
      body(promises()[i]);
    } catch (const Error& error) {
      FAIL_CHECK("\"" << promises()[i].feature << "\": " << error.what());
    }
}

// Fails with the feature, the axis and the first difference.
void check(const Promise& promise, const std::string& axis, const std::function<std::string()>& difference) {
  std::string text;
  try {
    text = difference();
  } catch (const Error& error) {
    text = concat("error: ", error.what());
  }
  if (!text.empty()) FAIL_CHECK("\"" << promise.feature << "\", " << axis << ": " << text);
  CHECK(text.empty());
}

void check_same_run(const Promise& promise, const std::string& axis, const std::string& bits, Keys keys) {
  keys.push_back("run.bits=" + bits);
  check(promise, axis, [&] {
    return first_difference(uninterrupted_run(promise, bits).trace, trace_of(config_of(data(), promise, keys)));
  });
}

// Killed after so many microbatches, without a last word, and resumed from the checkpoint before, or begun anew.
std::string killed_difference(const RunConfig& config, int64_t microbatches, const Trace& uninterrupted) {
  struct Killed {};
  const std::string folder = new_folder(data(), config);
  Trace trace;
  {
    Trainer first(resolve_budget(config));
    TrainHooks hooks = traced(first, trace);
    hooks.stop_requested = [&, polls = int64_t{0}]() mutable {
      if (++polls > microbatches) throw Killed();
      return StopRequest::kNone;
    };
    try {
      first.run(folder, hooks);
      return "";  // it had ended
    } catch (const Killed&) {
    }
  }
  if (!std::filesystem::exists(folder + "/last.safetensors")) return "";  // nothing to resume from
  Trainer rest(run_folder_config(folder));
  rest.resume(run_folder_checkpoint(folder));
  const TrainOutcome outcome = rest.run(folder, traced(rest, trace));
  add_results(trace, rest, outcome, folder);
  return first_difference(uninterrupted, trace);
}

}  // namespace

TEST_CASE("a run that is stopped at every step, saved, loaded and resumed is the run that nothing interrupts") {
  for_every_promise([](const Promise& promise) {
    const RunConfig config = config_of(data(), promise, {"run.bits=fast", "device.threads=1"});
    check(promise, "stopped at every step",
          [&] { return stopped_difference(data(), config, uninterrupted_run(promise, "fast").trace); });
  });
}

TEST_CASE("a run that is killed and resumed is the run that nothing interrupts") {
  for_every_promise([](const Promise& promise) {
    const RunConfig config = config_of(data(), promise, {"run.bits=fast", "device.threads=1"});
    const int64_t window = config.batch.accumulate();
    for (const int64_t microbatches : {2 * window, 3 * window + window / 2})
      check(promise, concat("killed after microbatch ", microbatches),
            [&] { return killed_difference(config, microbatches, uninterrupted_run(promise, "fast").trace); });
  });
}

TEST_CASE("any number of threads gives the run of one", "[slow]") {
  for_every_promise([](const Promise& promise) {
    for (const char* threads : {"2", "7"})
      check_same_run(promise, concat(threads, " threads"), "fast", {concat("device.threads=", threads)});
  });
}

TEST_CASE("in strict mode every instruction set gives the same run", "[slow]") {
  for_every_promise([](const Promise& promise) {
    uninterrupted_run(promise, "strict");
    const IsaLevel most = isa_cap();
    for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
      set_isa_cap(std::min(level, most));
      check_same_run(promise, concat("instructions ", isa_names(cpu_isa())), "strict",
                     {level == IsaLevel::kAvx2 ? "device.threads=7" : "device.threads=2"});
      set_isa_cap(most);
    }
  });
}

TEST_CASE("in strict mode updates inside backward and after it leave the same run", "[slow]") {
  for_every_promise(
      [](const Promise& promise) { check_same_run(promise, "updates after backward", "strict", {"optim.fused=off"}); });
}

TEST_CASE("a model is the same from its run, its checkpoint and its converted file") {
  for_every_promise([](const Promise& promise) {
    const Uninterrupted& uninterrupted = uninterrupted_run(promise, "strict");
    check(promise, "as files", [&] { return file_difference(uninterrupted.folder, uninterrupted.trace); });
  });
  CHECK(imports_compared() > 0);
}

TEST_CASE("every feature has a state of its own, but for those that promise the same", "[bits]") {
  std::map<std::string, std::string> features;
  const Promise* before = nullptr;
  for_every_promise(
      [&](const Promise& promise) {
        const Trace& trace = uninterrupted_run(promise, "strict").trace;
        const std::string hash = trace.results.at("state hash");
        if (promise.same_state) {
          Trace steps{trace.steps, {{"state hash", hash}}};
          check(promise, "as \"" + before->feature + '"',
                [&] { return first_difference(uninterrupted_run(*before, "strict").trace, steps); });
          return;
        }
        check(promise, "its state",
              [&] { return features[hash].empty() ? "" : "is that of \"" + features[hash] + '"'; });
        features[hash] = promise.feature;
        before = &promise;
      },
      /*stride=*/1);
}
