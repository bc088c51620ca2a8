// Runs of a few small steps for the tests of the trainer, and the process-wide modes that a run leaves behind.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/budget.h"
#include "support/catch.h"
#include "support/data_folder.h"

namespace bitgrad::test {

// Runs of these tests have data roots of their own: the tester's $BITGRAD_DATA, which wins over what a run remembers,
// does not reach them. data_folder() keeps it.
inline const bool kNoDataFolder = (data_folder(), ::unsetenv("BITGRAD_DATA") == 0);

// Puts threads, mode of the bits and cap of the ISA back.
class KeepModes {
 public:
  KeepModes() : threads_(num_threads()), bits_(bits_mode()), cap_(isa_cap()) {}
  ~KeepModes() {
    set_num_threads(threads_);
    set_bits_mode(bits_);
    set_isa_cap(cap_);
  }

 private:
  int threads_;
  BitsMode bits_;
  IsaLevel cap_;
};

// TFC in small: 1-bit weights, 1-bit activations, dropout on codes; 50 digits in microbatches of 10.
inline constexpr const char* kSmallTfc = R"yaml(version: 1
run: {name: small, seed: 5}
data:
  train: {format: digits, size: 50}
  test: {format: digits, size: 30}
  affine: [2, -1]
model:
  layers:
    - quantize: {}
    - dropout: {p: 0.2}
    - linear: {out: 12, bias: false}
    - batch_norm: {}
    - quantize: {}
    - dropout: {p: 0.2}
    - linear: {out: 10, bias: false}
    - tensor_norm: {}
quant:
  weights: {dtype: bint1, scheme: binary, ste: identity, init: "uniform(-1,1)", latent_clamp: 1}
  activations: {dtype: bint1, scheme: binary}
  requantize_every: 1
batch: {global: 10, micro: 10}
loss: squared_hinge
optim: {name: adam, lr: 0.02}
schedule: {name: step, every: 1 epochs, factor: 0.5}
train: {stop: 3 epochs}
checkpoint: {every: 1 epochs}
log: {every: 2 steps}
)yaml";

// int4 weights by stochastic rounding, bf16 gradients, biases, momentum: what TFC leaves out.
inline constexpr const char* kSmallInt4 = R"yaml(version: 1
run: {name: small_int4, seed: 6}
data:
  train: {format: digits, size: 50}
  test: {format: digits, size: 30}
model:
  layers:
    - linear: {out: 12}
    - batch_norm: {}
    - relu: {}
    - quantize: {dtype: int8, scheme: affine, rounding: stochastic}
    - linear: {out: 10}
quant:
  weights: {dtype: int4, scheme: symmetric, granularity: channel, rounding: stochastic, grad: bf16}
  requantize_every: 1
batch: {global: 10, micro: 10}
loss: softmax_cross_entropy
optim: {name: sgd, lr: 0.1, momentum: 0.9, clip_norm: 1}
schedule: {name: cosine, warmup: 2 steps}
train: {stop: 3 epochs}
checkpoint: {every: 4 steps}
log: {every: 3 steps}
)yaml";

inline RunConfig small_config(const std::vector<std::string>& overrides = {}, const char* text = kSmallTfc) {
  return parse_config(text, "small.yaml", overrides);
}

// The path of a new run folder, which stays unlocked.
inline std::string create_run_folder(const RunConfig& config, const std::string& out) {
  return start_run_folder(resolve_budget(config), out).path;
}

// Runs a configuration to its end; the folder may be empty (nothing is written).
inline TrainOutcome run_all(const RunConfig& config, const std::string& folder = "") {
  return Trainer(resolve_budget(config)).run(folder);
}

// Runs until `microbatches` were done and the open window is finished.
inline TrainOutcome run_part(const RunConfig& config, const std::string& folder, int64_t microbatches,
                             StopRequest how = StopRequest::kTerminate) {
  TrainHooks hooks;
  int64_t polls = 0;
  hooks.stop_requested = [&] { return ++polls >= microbatches ? how : StopRequest::kNone; };
  return Trainer(resolve_budget(config)).run(folder, hooks);
}

inline TrainOutcome resume_run(const std::string& folder) {
  Trainer trainer(run_folder_config(folder));
  trainer.resume(run_folder_checkpoint(folder));
  return trainer.run(folder);
}

inline std::string text_of(const std::string& path) {
  const std::vector<uint8_t> bytes = file_system().read(path);
  return {bytes.begin(), bytes.end()};
}

// Ends as a killed process does: nothing is written after this microbatch.
inline void run_and_die(const RunConfig& config, const std::string& folder, int64_t microbatches) {
  struct Killed {};
  TrainHooks hooks;
  int64_t polls = 0;
  hooks.stop_requested = [&]() -> StopRequest {
    if (++polls > microbatches) throw Killed();
    return StopRequest::kNone;
  };
  Trainer trainer(resolve_budget(config));
  CHECK_THROWS_AS(trainer.run(folder, hooks), Killed);
}

}  // namespace bitgrad::test
