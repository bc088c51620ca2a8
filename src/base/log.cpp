#include "bitgrad/base/log.h"

#include <memory>
#include <mutex>
#include <utility>

#include "bitgrad/base/text.h"

namespace bitgrad {
namespace {

struct SinkSlot {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;
};

// Never destroyed: threads may log while static objects are being destroyed.
SinkSlot& slot() {
  static SinkSlot* const instance = new SinkSlot;
  return *instance;
}

thread_local int t_silent = 0;

}  // namespace

SilentLog::SilentLog() { ++t_silent; }
SilentLog::~SilentLog() { --t_silent; }

void set_log_sink(LogSink sink) {
  auto next = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(slot().mutex);
  slot().sink.swap(next);
}

void log(LogLevel level, std::string_view line) {
  if (t_silent > 0) return;
  std::shared_ptr<const LogSink> sink;
  {
    const std::lock_guard lock(slot().mutex);
    sink = slot().sink;
  }
  // Called without the lock, so that a sink may log or replace itself.
  if (sink) (*sink)(level, printable_lines(line));
}

}  // namespace bitgrad
