#include "dist/host.h"

#include <unistd.h>

namespace bitgrad {

std::string detail::host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

}  // namespace bitgrad
