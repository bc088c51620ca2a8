// The main function of each layer's test program.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/kernel.h"
#include "kernels/flag.h"
#include "support/catch.h"
#include "support/device_run.h"

namespace bitgrad::test {
namespace {

struct Counts {
  int ran = 0;     // cases that launched a kernel
  int failed = 0;  // cases that left an error which nobody polled
};
Counts g_counts;

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

class CasesOnDevice final : public Listener {
 public:
  using Listener::Listener;
  void testCaseStarting(const Catch::TestCaseInfo&) override { before_ = launches(); }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (!runs_on_device()) return;
    if (launches() > before_) ++g_counts.ran;
    try {
      poll_errors();
    } catch (const std::exception& error) {
      std::printf("%s\n  left an error on the device: %s\n", stats.testInfo.name.c_str(), error.what());
      ++g_counts.failed;
    }
    discard_errors();
  }

 private:
  static int64_t launches() { return launches_on_device == nullptr ? 0 : launches_on_device(); }
  int64_t before_ = 0;
};
CATCH_REGISTER_LISTENER(CasesOnDevice)

// BITGRAD_TEST_DEVICE_CASES: how many cases must have launched a kernel.
int check_counts() {
  if (!runs_on_device()) return 0;
  const char* const text = std::getenv("BITGRAD_TEST_DEVICE_CASES");
  const int least = text == nullptr ? 0 : std::atoi(text);
  std::printf("%d cases launched kernels, expected at least %d\n", g_counts.ran, least);
  return g_counts.ran < least || g_counts.failed > 0 ? 1 : 0;
}

int run(int argc, char** argv) {
  std::optional<DeviceGuard> device;
  if (const char* const threads = std::getenv("BITGRAD_TEST_THREADS")) {
    int count = 0;
    const char* const end = threads + std::strlen(threads);
    const auto [at, error] = std::from_chars(threads, end, count);
    require(error == std::errc() && at == end, "BITGRAD_TEST_THREADS", "got '", threads, "', expected a number.");
    set_num_threads(count);
  }
  if (runs_on_device()) {
    const char* const name = std::getenv("BITGRAD_TEST_DEVICE");
    require(std::strcmp(name, "cuda") == 0, "BITGRAD_TEST_DEVICE", "got ", name, ", expected cuda.");
    set_bits_mode(BitsMode::kStrict);  // the bits that the cases expect of the CPU
    device.emplace(Device::cuda());
  }
  const int failed = Catch::Session().run(argc, argv);
  return failed != 0 ? failed : check_counts();
}

}  // namespace
}  // namespace bitgrad::test

// AddressSanitizer asks. Eight frames of an allocation mostly name its test; with all 30 the table of distinct stacks
// outgrows the caches.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" const char* __asan_default_options() { return "malloc_context_size=8"; }

int main(int argc, char** argv) {
  try {
    return bitgrad::test::run(argc, argv);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
