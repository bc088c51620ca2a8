// Log lines of the library go to a sink that the application sets; without one they are dropped.
//
// Lines come from any thread, also at the same time: a sink must be safe for that. They are made printable
// (base/text.h): parts of them may come from a file.
#pragma once

#include <functional>
#include <string_view>

namespace bitgrad {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
using LogSink = std::function<void(LogLevel, std::string_view)>;

void set_log_sink(LogSink sink);
void log(LogLevel level, std::string_view line);

}  // namespace bitgrad
