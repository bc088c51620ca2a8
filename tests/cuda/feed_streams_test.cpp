// Batches that are copied ahead while the computation's own stream runs late: a place that is filled too early, or read
// before its copy, would show in the state.
#include "cuda/same_as_cpu.h"
#include "emulation/cuda/emulation.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

class LateStreams {
 public:
  LateStreams() { cuda::emulation::set_lazy_main_streams(true); }
  ~LateStreams() { cuda::emulation::set_lazy_main_streams(false); }
};

}  // namespace

TEST_CASE("Runs whose streams run late end with the state of the CPU, wherever their batches come from") {
  const KeepModes keep;
  gpu();
  const auto config = [](const std::string& device, const std::string& resident) {
    return small_config({"run.bits=strict", "train.stop=7 steps", "train.eval.every=3 steps", "device.kind=" + device,
                         "device.resident_data=" + resident},
                        kSmallInt4);
  };
  const TrainOutcome cpu = run_all(config("cpu", "auto"));
  for (const char* resident : {"false", "true"}) {
    const LateStreams late;
    const TrainOutcome cuda = run_all(config("cuda", resident));
    CHECK(cuda.state_hash == cpu.state_hash);
    CHECK(cuda.evaluation->loss == cpu.evaluation->loss);
  }
}
