#include "bitgrad/base/profile.h"

#include <cstdlib>

#include "bitgrad/base/device.h"
#include "bitgrad/base/log.h"

namespace bitgrad {

void detail::warn_without_profiler() {
  [[maybe_unused]] static const bool once = [] {
    const char* const wish = std::getenv("BITGRAD_NVTX");
    if (wish == nullptr || std::string_view(wish).empty() || std::string_view(wish) == "0") return false;
    device_count(DeviceKind::kCuda);  // the backend brings it
    if (g_profiler == nullptr)
      log(LogLevel::kWarning,
          "BITGRAD_NVTX has no effect: this build was made without the CUDA Toolkit, whose header nvtx3/nvToolsExt.h "
          "it needs");
    return true;
  }();
}

}  // namespace bitgrad
