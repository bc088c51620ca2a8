// The tests of this program need a GPU: without one it says why and ends with 77, which ctest counts as skipped.
#include <cstdio>
#include <cstdlib>

#include "cuda/runtime/runtime.h"

namespace {

[[maybe_unused]] const int g_skip = [] {
  if (bitgrad::cuda::device_count() > 0) return 0;
  std::printf("skipped: %s\n", bitgrad::cuda::why_no_device().c_str());
  std::fflush(stdout);
  std::_Exit(77);
}();

}  // namespace
