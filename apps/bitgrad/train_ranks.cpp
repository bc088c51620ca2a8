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
  require(config.device.kind == "cpu", "train", "--ranks: got device.kind ", config.device.kind,
          ": threads train on the CPU. Start one process for each device with mpirun (docs/ranks.md)");
  const auto ranks = make_thread_ranks(size, timeout);
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

// What rank 0 tells the others, one list after another: the configuration ("": there is nothing to train), a flag, the
// checkpoint.
template <typename T>
std::vector<T> list_of_first(Communicator& ranks, std::span<const T> own) {
  return std::move(gather_lists(ranks, ranks.rank() == 0 ? own : std::span<const T>())[0]);
}

// A copy of rank 0's checkpoint, while it exists.
class CopiedFile {
 public:
  explicit CopiedFile(std::span<const uint8_t> bytes)
      : path_(concat(std::getenv("TMPDIR") == nullptr ? "/tmp" : std::getenv("TMPDIR"), "/bitgrad-checkpoint-XXXXXX")) {
    const int file = mkstemp(path_.data());
    if (file < 0)
      fail_with(ErrorCode::kMemory, "train", path_, ": no file can be made here for the checkpoint of rank 0");
    close(file);
    try {
      write_file_atomically(path_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    } catch (...) {
      std::remove(path_.c_str());
      throw;
    }
  }
  ~CopiedFile() { std::remove(path_.c_str()); }
  CopiedFile(const CopiedFile&) = delete;
  CopiedFile& operator=(const CopiedFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A device for each rank of a host, unless the launcher shows each its own.
RunConfig on_own_device(RunConfig config, const Communicator& ranks) {
  if (config.device.kind != "cpu" && device_count(DeviceKind::kCuda) > 1)
    config.device.index += ranks.info().local_rank;
  return config;
}

int train_as_told(const std::shared_ptr<Communicator>& ranks) {
  const std::vector<char> text = list_of_first<char>(*ranks, {});
  if (text.empty()) return 0;
  const bool use_data = list_of_first<char>(*ranks, {}).at(0) != 0;
  const std::vector<uint8_t> checkpoint = list_of_first<uint8_t>(*ranks, {});
  const RunConfig config = parse_config({text.data(), text.size()}, "the configuration of rank 0");
  std::optional<Trainer> trainer;
  try {
    trainer.emplace(on_own_device(config, *ranks));
    trainer->set_ranks(ranks);
    if (checkpoint.empty())
      trainer->start();
    else
      trainer->resume(CopiedFile(checkpoint).path(), use_data);
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
  const auto* const known = dynamic_cast<const Error*>(&error);
  ranks_->cancel(known != nullptr ? *known : Error(error.what(), ErrorCode::kBug));
}

int run_other_rank(const std::shared_ptr<Communicator>& ranks) {
  set_log_sink(nullptr);  // rank 0 logs
  try {
    return train_as_told(ranks);
  } catch (const Error& error) {
    ranks->cancel(error);
    // The rank that has ended the others, or rank 0 of one that is gone, says why.
    const std::string_view text = error.what();
    if (!text.starts_with("[ranks] rank ") || text.starts_with("[ranks] rank 0 is gone")) throw;
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ranks->cancel(Error(error.what(), ErrorCode::kBug));
    throw;
  }
}

}  // namespace bitgrad::cli
