#include "bitgrad/base/file.h"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

#include "bitgrad/base/error.h"

namespace bitgrad {

void open_missing_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // open returns the lowest free descriptor, which is this one: all lower ones are open by now.
    if (::open("/dev/null", O_RDWR) < 0)
      fail_with(ErrorCode::kMemory, "streams", "stream ", fd,
                " is closed and /dev/null cannot be opened in its place: ", std::generic_category().message(errno),
                '.');
  }
}

}  // namespace bitgrad
