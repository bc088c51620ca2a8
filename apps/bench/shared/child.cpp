#include "shared/child.h"

#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"

namespace bitgrad::bench {

Json run_in_child(const std::string& what, const std::function<Json()>& run) {
  int ends[2];
  require(pipe(ends) == 0, "bench", "no pipe to a child process");
  const pid_t child = fork();
  require(child >= 0, "bench", "no child process");
  if (child == 0) {
    std::string text;
    try {
      text = run().dump();
    } catch (const std::exception& e) {
      text = Json{{"error", e.what()}}.dump();
    }
    const bool sent = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  Json row = status == 0 ? Json::parse(text) : Json{{"error", "the child process died"}};
  require(!row.contains("error"), "bench", what, ": ", row.value("error", ""));
  return row;
}

Json bytes_at_peak() {
  const MemoryAccount peak = memory_at_peak();
  Json bytes = Json::object();
  for (int i = 0; i < kMemoryKinds; ++i)
    if (peak.bytes[static_cast<size_t>(i)] > 0)
      bytes[std::string(memory_kind_name(static_cast<MemoryKind>(i)))] = peak.bytes[static_cast<size_t>(i)];
  bytes["total"] = peak.total;
  return bytes;
}

}  // namespace bitgrad::bench
