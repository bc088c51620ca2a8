// bitgrad version
#include <iostream>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/version.h"
#include "command.h"

namespace bitgrad::cli {
namespace {

void list_devices() {
  const int count = device_count(DeviceKind::kCuda);
  for (int i = 0; i < count; ++i) {
    const DeviceGuard guard(Device::cuda(i));
    std::cout << to_string(current_device()) << "    " << device_backend(current_device()).describe() << '\n';
  }
  if (count > 0) return;
  try {
    device_backend(Device::cuda());
  } catch (const Error& why) {
    std::cout << "cuda      " << why.what() << '\n';
  }
}

}  // namespace

Run setup_version(Arguments&) {
  return [] {
    std::cout << "bitgrad " << BITGRAD_VERSION << " (" << build_commit() << ", " << BITGRAD_BUILD_TYPE << ")\n"
              << "compiler  " << BITGRAD_COMPILER << "\n"
              << "cpu       " << cpu_model_name() << "\n"
              << "isa       " << isa_names(cpu_isa()) << "\n"
              << "threads   " << num_threads() << "\n";
    list_devices();
    return 0;
  };
}

}  // namespace bitgrad::cli
