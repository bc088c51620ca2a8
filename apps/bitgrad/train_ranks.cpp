#include "train_ranks.h"

#include <exception>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "signals.h"

namespace bitgrad::cli {

ThreadRanks::ThreadRanks(Trainer& first, const RunConfig& config, int64_t size, const std::string& checkpoint,
                         bool use_data) {
  constexpr int64_t kMost = 64;
  require(size >= 1 && size <= kMost, "train", "--ranks: got ", size, ", expected 1 .. ", kMost);
  if (size == 1) return;
  require(config.device.kind == "cpu", "train", "--ranks: got device.kind ", config.device.kind,
          ": threads train on the CPU. Start one process for each device with mpirun (docs/ranks.md)");
  const auto ranks = make_thread_ranks(size);
  first_ = ranks[0];
  first.set_ranks(first_);
  const SilentLog silent;
  for (int64_t r = 1; r < size; ++r) {
    Trainer& trainer = *trainers_.emplace_back(std::make_unique<Trainer>(config));
    trainer.set_ranks(ranks[static_cast<size_t>(r)]);
    if (checkpoint.empty())
      trainer.start();
    else
      trainer.resume(checkpoint, use_data);
  }
}

void ThreadRanks::run() {
  threads_.reserve(trainers_.size());
  for (const auto& trainer : trainers_)
    threads_.emplace_back([&trainer = *trainer] {
      const SilentLog silent;
      try {
        TrainHooks hooks;
        hooks.stop_requested = stop_request;
        hooks.cut_evaluation = [] { return stop_request() != StopRequest::kNone; };
        trainer.run("", hooks);
      } catch (const std::exception&) {  // run has ended the other ranks with it
      }
    });
}

ThreadRanks::~ThreadRanks() {
  if (threads_.empty()) return;
  first_->cancel(Error("[train] rank 0 has ended", ErrorCode::kBug));  // does nothing after a whole run
  for (std::thread& t : threads_) t.join();
}

}  // namespace bitgrad::cli
