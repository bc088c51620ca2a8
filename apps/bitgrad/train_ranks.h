// The ranks of a command besides that of the command itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bitgrad/dist/communicator.h"
#include "bitgrad/run/trainer.h"

namespace bitgrad::cli {

// Ranks 1 .. size-1, which are threads of this process, each with a device of its own or on the CPU. They log nothing
// and write nothing: rank 0 does.
class ThreadRanks {
 public:
  // Makes `first` rank 0, and trainers of the same run, which resume from `checkpoint` ("": they start). Throws Error
  // if size < 1, if the run cannot be shared by as many, and if there are fewer devices: rank r trains on device.index
  // + r.
  ThreadRanks(Trainer& first, const RunConfig& config, int64_t size, std::chrono::milliseconds timeout,
              const std::string& checkpoint, bool use_data);
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

// Rank 0 of those that a launcher has started, which tells the others what to run.
class FirstRank {
 public:
  // nullptr: there are no others.
  explicit FirstRank(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}
  // Ends the others: without an error if they were told of no run.
  ~FirstRank();
  FirstRank(const FirstRank&) = delete;
  FirstRank& operator=(const FirstRank&) = delete;

  const std::shared_ptr<Communicator>& ranks() const { return ranks_; }
  // What they are to make ready. `checkpoint`: the file from which the run is resumed, which the others need not have;
  // "": it starts.
  void tell(const RunConfig& config, const std::string& checkpoint, bool use_data);
  // Before Trainer::run of rank 0, after tell.
  void begin();
  // Ends the others with this error.
  void cancel(const std::exception& error);

 private:
  std::shared_ptr<Communicator> ranks_;
  bool begun_ = false;
};

// Runs `command` as a rank of a launcher, of which only the first logs. An Error ends the other ranks. Returns the exit
// code. Throws the Error of this rank; on ranks other than the first that of another, which says it itself, only
// becomes the code.
int run_as_rank(Communicator& ranks, const std::function<int()>& command);
// Trains as a rank other than the first, in the same way.
int train_as_other_rank(const std::shared_ptr<Communicator>& ranks);

// What rank 0 gives to all.
template <typename T>
std::vector<T> list_of_first(Communicator& ranks, std::span<const T> own) {
  return std::move(gather_lists(ranks, ranks.rank() == 0 ? own : std::span<const T>())[0]);
}

// A file with these bytes in the folder for such files, while it exists.
class CopiedFile {
 public:
  explicit CopiedFile(std::span<const uint8_t> bytes);
  ~CopiedFile();
  CopiedFile(const CopiedFile&) = delete;
  CopiedFile& operator=(const CopiedFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The device of each rank of a host is another one, unless the launcher shows each its own.
RunConfig on_own_device(RunConfig config, const Communicator& ranks);

}  // namespace bitgrad::cli
