#include "bitgrad/base/program.h"

#include <unistd.h>

#include <algorithm>

namespace bitgrad {

std::string program_folder() {
  char path[4096] = {};
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  const std::string text(path, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return text.substr(0, std::min(text.rfind('/'), text.size()));
}

}  // namespace bitgrad
