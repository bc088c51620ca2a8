// Ranges for Nsight Systems. NVTX is a header of the CUDA Toolkit that asks the profiler, if one runs, for its library.
#include "cuda/runtime/nvtx.h"

#include <cstdlib>
#include <string>

#include "bitgrad/base/profile.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace bitgrad::cuda {

void install_nvtx() {
  static constexpr Profiler kNvtx{[](std::string_view name) { nvtxRangePushA(std::string(name).c_str()); },
                                  [] { nvtxRangePop(); }};
  const char* const wish = std::getenv("BITGRAD_NVTX");
  if (wish != nullptr && *wish != '\0' && std::string_view(wish) != "0") set_profiler(&kNvtx);
}

}  // namespace bitgrad::cuda
#else
void bitgrad::cuda::install_nvtx() {}
#endif
