// bitgrad version
#include <iostream>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/version.h"
#include "command.h"

namespace bitgrad::cli {
namespace {

// Name and description of each device; of none, why.
std::vector<std::pair<std::string, std::string>> devices() {
  const int count = device_count(DeviceKind::kCuda);
  std::vector<std::pair<std::string, std::string>> all;
  for (int i = 0; i < count; ++i) {
    const DeviceGuard guard(Device::cuda(i));
    all.emplace_back(to_string(current_device()), device_backend(current_device()).describe());
  }
  if (count > 0) return all;
  try {
    device_backend(Device::cuda());
  } catch (const Error& why) {
    all.emplace_back("cuda", why.what());
  }
  return all;
}

}  // namespace

Run setup_version(Arguments& args) {
  auto json = std::make_shared<bool>(false);
  args.flag("--json", *json, "one JSON object on standard output");
  return [json] {
    const auto found = devices();
    if (*json) {
      Json j{{"version", BITGRAD_VERSION},        {"commit", build_commit()}, {"build", BITGRAD_BUILD_TYPE},
             {"compiler", BITGRAD_COMPILER},      {"cpu", cpu_model_name()},  {"isa", isa_names(cpu_isa())},
             {"threads", int64_t{num_threads()}}, {"devices", Json::object()}};
      for (const auto& [name, text] : found) j["devices"][name] = text;
      std::cout << j.dump(2) << '\n';
      return 0;
    }
    std::cout << "bitgrad " << BITGRAD_VERSION << " (" << build_commit() << ", " << BITGRAD_BUILD_TYPE << ")\n"
              << "compiler  " << BITGRAD_COMPILER << "\n"
              << "cpu       " << cpu_model_name() << "\n"
              << "isa       " << isa_names(cpu_isa()) << "\n"
              << "threads   " << num_threads() << "\n";
    for (const auto& [name, text] : found) std::cout << name << std::string(10 - name.size(), ' ') << text << '\n';
    return 0;
  };
}

}  // namespace bitgrad::cli
