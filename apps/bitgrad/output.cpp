#include "output.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"

namespace bitgrad::cli {
namespace {

bool g_dropped = false;

// Whether this is a pipe or socket without a reader (POSIX reports POLLERR even if it was not requested).
bool reader_is_gone(int descriptor) {
  pollfd state{descriptor, 0, 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

std::ostream& text_output(bool json) {
  static std::ostream nowhere(nullptr);
  return json ? nowhere : std::cout;
}

void prepare_streams() {
  open_missing_streams();
  std::signal(SIGPIPE, SIG_IGN);
}

std::string why_no_more(int descriptor) {
  return reader_is_gone(descriptor) ? "the reader has exited" : "a full disk?";
}

void flush_or_drop_output() {
  if (g_dropped || std::cout.flush()) return;
  g_dropped = true;
  log(LogLevel::kWarning,
      concat("standard output cannot be written (", why_no_more(STDOUT_FILENO), "): further output is dropped"));
}

int checked_output(int code) {
  if (g_dropped || std::cout.flush()) return code;
  if (!reader_is_gone(STDOUT_FILENO))
    fail_with(ErrorCode::kMemory, "output", "standard output cannot be written (", why_no_more(STDOUT_FILENO), ')');
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  return 128 + SIGPIPE;  // reached in the first process of a container, which its own signal does not end
}

}  // namespace bitgrad::cli
