// Runs on several ranks, which are threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/expect_error.h"
#include "train/promises.h"

namespace bitgrad::test {

// The trainers of a run, one for each rank. `config_of(rank)`: normally the same for all.
inline std::vector<std::unique_ptr<Trainer>> trainers_of(int64_t size,
                                                         const std::function<RunConfig(int64_t)>& config_of,
                                                         const std::string& checkpoint = "") {
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const auto& rank : make_thread_ranks(size)) {
    Trainer& t = *trainers.emplace_back(std::make_unique<Trainer>(resolve_budget(config_of(rank->rank()))));
    t.set_ranks(rank);
    if (checkpoint.empty())
      t.start();
    else
      t.resume(checkpoint);
  }
  return trainers;
}

// Runs them at the same time: rank 0 with this folder, each with its hooks. What each of them ended with, and the error
// that did it.
struct RankEnd {
  TrainOutcome outcome = {};
  std::string error = {};
  ErrorCode code = ErrorCode::kUsage;  // of the error
};
inline std::vector<RankEnd> run_ranks(const std::vector<std::unique_ptr<Trainer>>& trainers, const std::string& folder,
                                      const std::vector<TrainHooks>& hooks) {
  std::vector<RankEnd> ends(trainers.size());
  std::vector<std::thread> threads;
  threads.reserve(trainers.size());
  for (size_t r = 0; r < trainers.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        ends[r].outcome = trainers[r]->run(r == 0 ? folder : "", hooks[r]);
      } catch (const Error& error) {
        ends[r].error = error.what();
        ends[r].code = error.code();
      }
    });
  for (std::thread& t : threads) t.join();
  return ends;
}

// The trace of rank 0; throws its error. All ranks must come to one state.
inline Trace trace_of_ranks(const RunConfig& config, int64_t size, const std::string& folder) {
  Trace trace;
  const auto trainers = trainers_of(size, [&](int64_t) { return RunConfig(config); });
  std::vector<TrainHooks> hooks(trainers.size());
  hooks[0] = traced(*trainers[0], trace);
  const std::vector<RankEnd> ends = run_ranks(trainers, folder, hooks);
  for (const RankEnd& end : ends) require(end.error.empty(), "test", end.error);
  for (const RankEnd& end : ends)
    require(end.outcome.ended == ends[0].outcome.ended && end.outcome.state_hash == ends[0].outcome.state_hash, "test",
            "a rank ended otherwise: ", end.outcome.ended);
  const StepTrace first{state_of(trainers[0]->learner()), ""};
  for (const auto& trainer : trainers)
    require(state_difference(first, state_of(trainer->learner())).empty(), "test",
            "ranks come to other states:", state_difference(first, state_of(trainer->learner())));
  add_results(trace, *trainers[0], ends[0].outcome, folder);
  return trace;
}

}  // namespace bitgrad::test
