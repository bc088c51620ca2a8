#include "bitgrad/base/program.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace bitgrad {

std::string program_folder() {
  char path[4096] = {};
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  // Without /proc, as in a bare chroot: the path by which the program was started.
  if (length <= 0) {
    const uint64_t at = getauxval(AT_EXECFN);
    const char* started = nullptr;
    std::memcpy(&started, &at, sizeof started);
    if (started == nullptr || realpath(started, path) == nullptr) return "";
  }
  const std::string text(path);
  return text.substr(0, std::min(text.rfind('/'), text.size()));
}

}  // namespace bitgrad
