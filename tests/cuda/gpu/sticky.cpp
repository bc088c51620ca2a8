// An asynchronous fault of a kernel ends every later call of the process. The program then ends after the test that did
// it, so that one fault is one red test and not all that come after it.
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // Catch2 of version 2; so this file takes no precompiled headers
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "bitgrad/base/device.h"
#include "cuda/runtime/runtime.h"
#include "support/catch.h"

namespace {

#if defined(CATCH_VERSION_MAJOR) && CATCH_VERSION_MAJOR >= 3
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

// What the device says now; empty when it says nothing.
std::string fault() {
  try {
    const bitgrad::DeviceGuard guard(bitgrad::Device::cuda());
    bitgrad::cuda::device_synchronize();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

std::string name_of(const Catch::TestCaseStats& stats) {
#if defined(CATCH_VERSION_MAJOR) && CATCH_VERSION_MAJOR >= 3
  return stats.testInfo->name;
#else
  return stats.testInfo.name;
#endif
}

class EndsAtFaults final : public Listener {
 public:
  using Listener::Listener;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    // The first call may give an error that is not sticky and forgets it.
    if (fault().empty()) return;
    const std::string text = fault();
    if (text.empty()) return;
    std::printf("the device is lost after \"%s\": %s\n", name_of(stats).c_str(), text.c_str());
    std::printf("Hint: BITGRAD_CUDA_SYNC=1 names the kernel.\n");
    std::fflush(stdout);
    std::_Exit(70);
  }
};
CATCH_REGISTER_LISTENER(EndsAtFaults)

}  // namespace
