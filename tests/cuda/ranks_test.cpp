// Ranks on (emulated) devices: which they may have, and that they train the run of one process on the CPU.
#include "cuda/same_as_cpu.h"
#include "support/log_lines.h"
#include "train/run_ranks.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr const char* kNet = R"yaml(version: 1
run: {name: small_ranks, seed: 3, bits: strict}
data:
  train: {format: digits, size: 40}
  test: {format: digits, size: 20}
model:
  layers:
    - linear: {out: 12}
    - batch_norm: {}
    - relu: {}
    - linear: {out: 10}
batch: {global: 10, micro: 5, sum: tree}
quant: {observer_update: window}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.02}
train: {stop: 3 steps}
)yaml";

// How two ranks on these devices end.
std::vector<RankEnd> ends_on(const std::vector<std::vector<std::string>>& devices) {
  const auto trainers = trainers_of(2, [&](int64_t r) { return small_config(devices[static_cast<size_t>(r)], kNet); });
  return run_ranks(trainers, "", std::vector<TrainHooks>(2));
}

}  // namespace

TEST_CASE("Ranks of which one has a device and one the CPU are refused, and both are named") {
  const KeepModes keep;
  gpu();
  for (const RankEnd& end : ends_on({{"device.kind=cpu"}, {"device.kind=cuda"}})) {
    CHECK(end.code == ErrorCode::kUsage);
    CHECK(end.error == "[ranks] ranks 0 and 1 differ in device.kind: \"cpu\" and \"cuda\": expected the same on all");
  }
}

TEST_CASE("Ranks that have the same device train, and a warning names it") {
  const KeepModes keep;
  gpu();
  const LogLines lines;
  const std::vector<RankEnd> ends = ends_on({{"device.kind=cuda"}, {"device.kind=cuda"}});
  for (const RankEnd& end : ends) CHECK(end.error.empty());
  std::string all;
  for (const std::string& warning : lines.warnings) all += warning;
  CHECK(contains(all, "[ranks] ranks 0 and 1 have the same device (" + device_backend(gpu()).describe() + " of "));
}

TEST_CASE("Threads with a device each come to the state of one process on the CPU") {
  if (device_count(gpu().kind) < 2) {
    WARN("skipped: there is one device");
    return;
  }
  const KeepModes keep;
  Trainer alone(small_config({"device.kind=cpu"}, kNet));
  alone.start();
  const TrainOutcome one = alone.run("", {});
  for (const RankEnd& end : ends_on({{"device.kind=cuda"}, {"device.kind=cuda", "device.index=1"}})) {
    CHECK(end.error.empty());
    CHECK(end.outcome.state_hash == one.state_hash);
  }
}
