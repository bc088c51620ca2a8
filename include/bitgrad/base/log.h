// Log lines of the library go to a sink that the application sets. Without a sink they are dropped.
//
// Lines may come from several threads concurrently, so the sink must be thread-safe. Unprintable bytes are escaped
// (printable_lines, base/text.h), since parts of a line may come from a file.
#pragma once

#include <functional>
#include <string_view>

namespace bitgrad {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
using LogSink = std::function<void(LogLevel, std::string_view)>;

// Thread-safe. An empty sink drops all lines. A sink may log or replace itself.
void set_log_sink(LogSink sink);
void log(LogLevel level, std::string_view line);

// While it exists, the lines of this thread are dropped: those of a rank that say what another one says too.
class SilentLog {
 public:
  SilentLog();
  ~SilentLog();
  SilentLog(const SilentLog&) = delete;
  SilentLog& operator=(const SilentLog&) = delete;
};

}  // namespace bitgrad
