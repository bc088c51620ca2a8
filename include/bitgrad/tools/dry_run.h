// Dry run: predicts what a run will do and need, without a run folder. Opens the data, builds the model, and runs a few
// optimizer steps in memory to measure peak memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/config/config.h"
#include "bitgrad/nn/layer_table.h"
#include "bitgrad/optim/optimizer.h"

namespace bitgrad {

struct DryRun {
  struct Data {
    std::string name = {};  // e.g. "idx train-images ..."
    int64_t samples = 0;
    Shape sample = {};
    DType dtype = dtypes::fp32;
    std::vector<std::string> about = {};  // of a table: what its first line and its columns were taken for, and why
  };
  std::vector<std::string> warnings = {};  // unused keys, a batch larger than the data, too many threads
  Data train = {};
  std::optional<Data> valid = {}, test = {};
  LayerTable layers = {};       // as in the first quantization phase
  std::string table = {};       // output of print_layer_table
  int64_t steps = 0;            // optimizer steps of the whole run
  int64_t steps_per_epoch = 0;  // rounded up
  int64_t rule_macs = 0;        // multiplications of the update rule in one optimizer step (Optimizer::macs)
  std::optional<RankTraffic> traffic = {};  // on several ranks
  // For each export target that fits the model's inputs: name, and why it does not take the model (empty: it does). Not
  // known (empty) without `measure`, on a device, and for more than 2 million parameters.
  std::vector<std::pair<std::string, std::string>> exports = {};
  std::optional<MemoryAccount> peak = {};  // bytes by kind at the peak; nullopt: not measured
};

// Throws ConfigError or Error like a run would before its first step. With `measure`, runs one optimizer step in each
// quantization phase, a quantization report and one batch of evaluation, and discards their values. Applies
// device.threads and run.bits to the process, like Trainer, and resets the memory peaks. `ranks`: that the run would
// have, for DryRun::traffic; the steps here are those of one.
DryRun dry_run(RunConfig config, bool measure = true, int64_t ranks = 1);

}  // namespace bitgrad
