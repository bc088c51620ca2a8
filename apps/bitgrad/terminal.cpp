#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace bitgrad::cli {

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
