#include "kernels/flag.h"

#include <unistd.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"

namespace bitgrad {
namespace {

constexpr size_t kWords = 4096;

constexpr size_t kNoWord = ~size_t{0};

struct Check {
  size_t word;
  std::function<void(uint32_t)> report;
};

using Handlers = std::vector<std::shared_ptr<const ErrorContext::Handler>>;
thread_local Handlers t_handlers;  // of the open scopes, outermost first

// Wraps `fail` in the handlers of the scopes that are open now.
std::function<void()> handled(std::function<void()> fail) {
  if (t_handlers.empty()) return fail;
  return [fail = std::move(fail), handlers = t_handlers] {
    std::function<void(size_t)> go = [&](size_t left) {
      if (left == handlers.size()) return fail();
      try {
        go(left + 1);
      } catch (const std::exception& error) {
        (*handlers[left])(error);
        throw;
      }
    };
    go(0);
  };
}

// Flag words of one device that this thread has handed out since they were last read.
struct Board {
  uint32_t* words = nullptr;
  size_t used = 0;
  std::vector<Check> checks;
  std::vector<Board*> expected;  // records whose work has been requested
};

thread_local Board* t_record = nullptr;

constexpr int kDevices = 256;  // Device::index

// Those of the main thread are never destroyed: the device's memory may be freed before its statics.
struct Boards {
  std::array<Board, kDevices>* const all = new std::array<Board, kDevices>;
  Boards() = default;
  ~Boards() {
    if (gettid() != getpid()) delete all;
  }
  Boards(const Boards&) = delete;
  Boards& operator=(const Boards&) = delete;
};
Board& main_board() {
  thread_local const Boards boards;
  return (*boards.all)[current_device().index];
}
Board& board() { return t_record != nullptr ? *t_record : main_board(); }

void make_words(Board& b) {
  constexpr int64_t bytes = kWords * sizeof(uint32_t);
  b.words = static_cast<uint32_t*>(tracked_allocate(bytes, MemoryKind::kWorkspace, current_device()));
  device_backend(current_device()).fill_zero(b.words, bytes);
}

}  // namespace

FlagWord::FlagWord() : word_(&on_host_) {
  const Device device = current_device();
  if (device.is_cpu()) return;
  Board& b = board();
  if (b.words == nullptr) make_words(b);
  ensure(b.used < kWords || t_record == nullptr, "flags", "recorded work has more than ", kWords, " flags");
  if (b.used == kWords) poll_errors();
  word_ = b.words + b.used++;
}

void FlagWord::check(std::function<void()> fail) const {
  if (word_ == &on_host_) {
    if (on_host_ != 0) fail();
    return;
  }
  read([fail = handled(std::move(fail))](uint32_t word) {
    if (word != 0) fail();
  });
}

void FlagWord::read(std::function<void(uint32_t)> report) const {
  if (word_ == &on_host_) return report(on_host_);
  Board& b = board();
  b.checks.push_back({static_cast<size_t>(word_ - b.words), std::move(report)});
}

void on_poll(std::function<void()> then) {
  if (current_device().is_cpu()) return then();
  board().checks.push_back({kNoWord, [then = handled(std::move(then))](uint32_t) { then(); }});
}

namespace {

// Reads the words of a board and resets them to zero.
std::vector<uint32_t> collect_words(const Board& b) {
  std::vector<uint32_t> words(b.used);
  DeviceBackend& backend = device_backend(current_device());
  const auto bytes = static_cast<int64_t>(b.used * sizeof(uint32_t));
  backend.copy_to_host(words.data(), b.words, bytes);
  backend.fill_zero(b.words, bytes);
  return words;
}

struct Collected {
  std::vector<Check> checks;
  std::vector<uint32_t> words;
};

// Collects everything that is due for checking, this thread's words first, and resets it all.
std::vector<Collected> collect_all() {
  Board& b = main_board();
  std::vector<Collected> out;
  if (b.used > 0 || !b.checks.empty()) {
    out.push_back({std::exchange(b.checks, {}), collect_words(b)});
    b.used = 0;
  }
  for (Board* record : std::exchange(b.expected, {})) out.push_back({record->checks, collect_words(*record)});
  return out;
}

}  // namespace

void poll_errors() {
  if (current_device().is_cpu()) return;
  ensure(t_record == nullptr, "flags", "the flags were read inside recorded work");
  for (const Collected& collected : collect_all())
    for (const Check& c : collected.checks) c.report(c.word == kNoWord ? 0 : collected.words[c.word]);
}

void discard_errors() {
  if (!current_device().is_cpu() && t_record == nullptr) collect_all();
}

struct FlagRecord::Impl {
  Device device;
  Board board;
};

FlagRecord::FlagRecord() : impl_(std::make_unique<Impl>()) {
  impl_->device = current_device();
  make_words(impl_->board);
}
FlagRecord::~FlagRecord() {
  const DeviceGuard guard(impl_->device);
  std::erase(main_board().expected, &impl_->board);
  tracked_release(impl_->board.words, kWords * sizeof(uint32_t), MemoryKind::kWorkspace, impl_->device);
}
void FlagRecord::expect() { main_board().expected.push_back(&impl_->board); }

FlagRecord::Scope::Scope(FlagRecord& record) : outer_(t_record) { t_record = &record.impl_->board; }
FlagRecord::Scope::~Scope() { t_record = static_cast<Board*>(outer_); }

ErrorContext::ErrorContext(Handler handler) {
  t_handlers.push_back(std::make_shared<const Handler>(std::move(handler)));
}
ErrorContext::~ErrorContext() { t_handlers.pop_back(); }

}  // namespace bitgrad
