// On a device a loss that is not finite is read with the flags of its step, one by one and recorded.
#include "cuda/same_as_cpu.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "train/wild_runs.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

TEST_CASE("Runs that overflow on a device end with an error that names the step, recorded or not") {
  const KeepModes keep;
  gpu();
  const TempDir temp;
  int64_t runs = 0;
  for (const WildRun& run : wild_runs())
    for (const char* graph : {"true", "false"}) {
      INFO(run.name << ", device.graph " << graph);
      std::vector<std::string> keys = run.keys;
      keys.insert(keys.end(), {"device.kind=cuda", std::string("device.graph=") + graph});
      const RunConfig config = small_config(keys, kWildNet);
      const DeviceGuard guard(device_of(config));
      CHECK(wrong_end(run, config, create_run_folder(config, temp.file(std::to_string(runs++)))) == "");
    }
}
