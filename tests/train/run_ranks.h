// Runs on several ranks, which are threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "optim/shards.h"
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
        trainers[r]->learner().gather_state();  // the tests look at all of them
      } catch (const Error& error) {
        ends[r].error = error.what();
        ends[r].code = error.code();
      }
    });
  for (std::thread& t : threads) t.join();
  return ends;
}

// While it lives, parameters of any size are shared by rows, and no rank may read what others update.
class SharedRowsOnly {
 public:
  SharedRowsOnly() {
    detail::least_shared_bytes = 1;
    detail::poison_foreign_rows = true;
    detail::most_of_one_owner = 1000;
  }
  SharedRowsOnly(const SharedRowsOnly&) = delete;
  SharedRowsOnly& operator=(const SharedRowsOnly&) = delete;
  ~SharedRowsOnly() {
    detail::least_shared_bytes = least_;
    detail::poison_foreign_rows = false;
    detail::most_of_one_owner = 2;
  }

 private:
  const int64_t least_ = detail::least_shared_bytes;
};

// At every step all ranks bring the whole state to each, before the hook that they have.
inline void gather_at_steps(const std::vector<std::unique_ptr<Trainer>>& trainers, std::vector<TrainHooks>& hooks) {
  for (size_t r = 0; r < trainers.size(); ++r)
    hooks[r].on_tick = [&learner = trainers[r]->learner(), tick = hooks[r].on_tick](const TrainEvent& e) {
      learner.gather_state();
      if (tick) tick(e);
    };
}

// The trace of rank 0; throws its error. All ranks must come to one state. With `steps` the state after each of them.
inline Trace trace_of_ranks(const RunConfig& config, int64_t size, const std::string& folder, bool steps = true) {
  Trace trace;
  const auto trainers = trainers_of(size, [&](int64_t) { return RunConfig(config); });
  std::vector<TrainHooks> hooks(trainers.size());
  if (steps) hooks[0] = traced(*trainers[0], trace);
  if (steps) gather_at_steps(trainers, hooks);
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
