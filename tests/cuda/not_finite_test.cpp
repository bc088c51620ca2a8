// On a device a loss that is not finite is read with the flags of its step, one by one and recorded.
#include "cuda/same_as_cpu.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "train/wild_runs.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

void check_end(const WildRun& run, const std::string& graph) {
  INFO(run.name << ", device.graph " << graph);
  const KeepModes keep;
  gpu();
  const TempDir temp;
  std::vector<std::string> keys = run.keys;
  keys.insert(keys.end(), {"device.kind=cuda", "device.graph=" + graph});
  const RunConfig config = small_config(keys, kWildNet);
  const DeviceGuard guard(device_of(config));
  CHECK(wrong_end(run, config, create_run_folder(config, temp.file("run"))) == "");
}

}  // namespace

TEST_CASE("A run that overflows on a device ends with an error that names the step, recorded or not") {
  for (const char* graph : {"true", "false"}) check_end(wild_runs().front(), graph);
}

TEST_CASE("Every run that overflows on a device ends with an error that names the step", "[slow]") {
  for (const WildRun& run : wild_runs())
    for (const char* graph : {"true", "false"}) check_end(run, graph);
}
