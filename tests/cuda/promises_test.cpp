// The runs of train/promises.inc on an (emulated) device, in strict mode: after every step the state of the CPU, also
// where a checkpoint of the CPU is resumed there.
#include "train/promises.h"

#include <algorithm>

#include "cuda/same_as_cpu.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

void check_promise(const PromiseFolder& data, const Promise& promise) {
  static int runs = 0;
  const auto fail = [&](const std::string& axis, const std::string& difference) {
    if (!difference.empty()) FAIL_CHECK("\"" << promise.feature << "\", " << axis << ": " << difference);
  };
  try {
    const RunConfig on_cpu = resolve_budget(config_of(data, promise, {"run.bits=strict"})),
                    on_gpu = resolve_budget(config_of(data, promise, {"run.bits=strict", "device.kind=cuda"}));
    const Trace uninterrupted = trace_of(on_cpu);
    fail("on the device", first_difference(uninterrupted, trace_of(on_gpu)));
    const std::string folder = start_run_folder(on_cpu, data.file("from_cpu" + std::to_string(runs++))).path;
    run_part(on_cpu, folder, 2 * on_cpu.batch.accumulate());
    Trace rest;
    Trainer trainer(on_gpu);
    trainer.resume(run_folder_checkpoint(folder));
    add_results(rest, trainer, trainer.run("", traced(trainer, rest)), "");
    for (const auto& [step, trace] : uninterrupted.steps) rest.steps.try_emplace(step, trace);
    fail("from a checkpoint of the CPU on the device", first_difference(uninterrupted, rest));
  } catch (const Error& error) {
    fail("on the device", concat("error: ", error.what()));
  }
}

// What the emulation runs in each gate: a row of each kind of numbers, network and data.
const std::vector<std::string> kInGate = {"fp32, batch norm, dropout, Adam",
                                          "8-bit moments",
                                          "two microbatches a step",
                                          "learned steps",
                                          "8-bit products, gradients in int8",
                                          "moving average of ranges",
                                          "phases: fp32, int4, int3, frozen",
                                          "values as targets, noise, blocks, branches",
                                          "tokens, drawn windows, a gated layer, a tied head",
                                          "convolutions in groups and by channel",
                                          "networks of integers, fixed ranges last",
                                          "Llama",
                                          "bf16 values, learned steps"};

size_t check_promises(bool gate) {
  const KeepModes keep;
  gpu();
  const PromiseFolder data;
  size_t checked = 0;
  for (const Promise& promise : promises()) {
    if ((std::count(kInGate.begin(), kInGate.end(), promise.feature) > 0) != gate) continue;
    check_promise(data, promise);
    ++checked;
  }
  return checked;
}

}  // namespace

TEST_CASE("Runs of each kind of numbers, network and data are those of the CPU on a device, and go on there",
          "[bits]") {
  CHECK(check_promises(true) == kInGate.size());
}

TEST_CASE("Every other feature's run is that of the CPU on a device, and goes on there", "[slow]") {
  CHECK(std::ssize(kInGate) + static_cast<int64_t>(check_promises(false)) == std::ssize(promises()));
}
