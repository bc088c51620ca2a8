// Collects what is logged during its lifetime; the sink is restored even if the test throws.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/log.h"

namespace bitgrad::test {

class LogLines {
 public:
  LogLines() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines.emplace_back(line);
      if (level == LogLevel::kWarning) warnings.emplace_back(line);
    });
  }
  ~LogLines() { set_log_sink(nullptr); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  std::vector<std::string> lines, warnings;

 private:
  std::mutex mutex_;
};

}  // namespace bitgrad::test
