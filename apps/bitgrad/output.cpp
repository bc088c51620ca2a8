#include "output.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
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

int terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int given = columns != nullptr ? std::atoi(columns) : 0;
  return given > 0 ? given : 80;
}

bool draws_on_terminal() {
  const char* ci = std::getenv("CI");
  return isatty(STDERR_FILENO) == 1 && (ci == nullptr || *ci == '\0');
}

}  // namespace bitgrad::cli
