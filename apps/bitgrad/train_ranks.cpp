#include "train_ranks.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <string_view>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/dist/engines.h"
#include "signals.h"

namespace bitgrad::cli {
namespace {

TrainHooks hooks_of_other() {
  TrainHooks hooks;
  hooks.stop_requested = stop_request;
  hooks.cut_evaluation = [] { return stop_request() != StopRequest::kNone; };
  return hooks;
}

}  // namespace

ThreadRanks::ThreadRanks(Trainer& first, const RunConfig& config, int64_t size, std::chrono::milliseconds timeout,
                         const std::string& checkpoint, bool use_data) {
  constexpr int64_t kMost = 64;
  require(size >= 1 && size <= kMost, "train", "--ranks: got ", size, ", expected 1 .. ", kMost);
  if (size == 1) return;
  if (config.device.kind != "cpu") {
    const int64_t devices = device_count(DeviceKind::kCuda) - config.device.index;
    require(size <= devices, "train", "--ranks: got ", size, ", expected at most ", devices,
            ", the number of devices from ", to_string(device_of(config)), " on, of which each rank has one");
  }
  const auto ranks = make_thread_ranks(size, timeout);
  first_ = ranks[0];
  first.set_ranks(first_);
  const SilentLog silent;
  for (int64_t r = 1; r < size; ++r) {
    const std::shared_ptr<Communicator>& rank = ranks[static_cast<size_t>(r)];
    Trainer& trainer = *trainers_.emplace_back(std::make_unique<Trainer>(on_own_device(config, *rank)));
    trainer.set_ranks(rank);
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
        trainer.run("", hooks_of_other());
      } catch (...) {  // run has ended the other ranks with it
      }
    });
}

ThreadRanks::~ThreadRanks() {
  if (threads_.empty()) return;
  first_->cancel(Error("[train] rank 0 has ended", ErrorCode::kBug));  // does nothing after a whole run
  for (std::thread& t : threads_) t.join();
}

namespace {

// What rank 0 tells: the configuration ("": there is nothing to train), a flag, the checkpoint.
int train_as_told(const std::shared_ptr<Communicator>& ranks) {
  const std::vector<char> text = list_of_first<char>(*ranks, {});
  if (text.empty()) return 0;
  const bool use_data = list_of_first<char>(*ranks, {}).at(0) != 0;
  std::vector<uint8_t> checkpoint = list_of_first<uint8_t>(*ranks, {});
  const RunConfig config = parse_config({text.data(), text.size()}, "the configuration of rank 0");
  std::optional<Trainer> trainer;
  try {
    trainer.emplace(on_own_device(config, *ranks));
    trainer->set_ranks(ranks);
    if (checkpoint.empty()) {
      trainer->start();
    } else {
      const CopiedFile copy(std::exchange(checkpoint, {}));
      trainer->resume(copy.path(), use_data);
    }
  } catch (const Error&) {
    list_of_first<char>(*ranks, {});  // throws if rank 0 has failed, too, which then says why
    throw;
  }
  if (list_of_first<char>(*ranks, {}).empty()) return 0;  // the run was finished
  return exit_code(trainer->run("", hooks_of_other()).stopped);
}

}  // namespace

FirstRank::~FirstRank() {
  if (!ranks_ || begun_) return;
  try {
    list_of_first<char>(*ranks_, {});
  } catch (const Error&) {  // the others have ended
  }
}

void FirstRank::begin() {
  begun_ = true;
  const char yes = 1;
  if (ranks_) list_of_first<char>(*ranks_, {&yes, 1});
}

void FirstRank::tell(const RunConfig& config, const std::string& checkpoint, bool use_data) {
  if (!ranks_) return;
  const std::string text = to_yaml(config);
  const char flag = use_data ? 1 : 0;
  std::vector<uint8_t> bytes;
  if (!checkpoint.empty()) bytes = file_system().read(checkpoint);
  list_of_first<char>(*ranks_, text);
  list_of_first<char>(*ranks_, {&flag, 1});
  list_of_first<uint8_t>(*ranks_, bytes);
}

void FirstRank::cancel(const std::exception& error) {
  if (!ranks_) return;
  begun_ = true;
  ranks_->cancel(error_for_ranks(error));
}

CopiedFile::CopiedFile(std::span<const uint8_t> bytes)
    : path_(concat(std::getenv("TMPDIR") == nullptr ? "/tmp" : std::getenv("TMPDIR"), "/bitgrad-checkpoint-XXXXXX")) {
  const int file = mkstemp(path_.data());
  if (file < 0)
    fail_with(ErrorCode::kMemory, "ranks", path_, ": no file can be made here for the checkpoint of rank 0");
  close(file);
  try {
    write_file_atomically(path_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (...) {
    std::remove(path_.c_str());
    throw;
  }
}

CopiedFile::~CopiedFile() { std::remove(path_.c_str()); }

RunConfig on_own_device(RunConfig config, const Communicator& ranks) {
  if (config.device.kind != "cpu" && device_count(DeviceKind::kCuda) > 1)
    config.device.index += ranks.info().local_rank;
  return config;
}

namespace {

// The rank that has ended the others, or rank 0 of one that is gone or of what all have found, says why.
bool said_by_another(std::string_view text) {
  return (text.starts_with("[ranks] rank ") && !text.starts_with("[ranks] rank 0 is gone") &&
          !text.starts_with("[ranks] rank 0 left")) ||
         text.starts_with("[ranks] ranks 0 and ");
}

}  // namespace

int run_as_rank(Communicator& ranks, const std::function<int()>& command) {
  if (ranks.rank() > 0) set_log_sink(nullptr);  // rank 0 logs
  try {
    return command();
  } catch (const Error& error) {
    ranks.cancel(error);
    if (ranks.rank() == 0 || !said_by_another(error.what())) throw;
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ranks.cancel(error_for_ranks(error));
    throw;
  }
}

int train_as_other_rank(const std::shared_ptr<Communicator>& ranks) {
  return run_as_rank(*ranks, [&] { return train_as_told(ranks); });
}

}  // namespace bitgrad::cli
