// The ranks of a run of bitgrad train besides that of the command itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bitgrad/dist/communicator.h"
#include "bitgrad/run/trainer.h"

namespace bitgrad::cli {

// Ranks 1 .. size-1, which are threads of this process. They log nothing and write nothing: rank 0 does.
class ThreadRanks {
 public:
  // Makes `first` rank 0, and trainers of the same run, which resume from `checkpoint` ("": they start). Throws Error
  // if size < 1, if the run cannot be shared by as many, and for devices other than the CPU.
  ThreadRanks(Trainer& first, const RunConfig& config, int64_t size, const std::string& checkpoint, bool use_data);
  // Begins to train. Call before first.run, whose errors, and those of the other ranks, end all.
  void run();
  // Ends them, if they train.
  ~ThreadRanks();
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

 private:
  std::shared_ptr<Communicator> first_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<std::thread> threads_;
};

}  // namespace bitgrad::cli
