// What a run will be and take, found without a run folder: the data are opened, the model is built, and a few optimizer
// steps run in memory to measure what the account of memory comes to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/nn/layer_table.h"
#include "bitgrad/train/config.h"

namespace bitgrad {

struct DryRun {
  struct Data {
    std::string name = {};  // "idx train-images ...": what was opened
    int64_t samples = 0;
    Shape sample = {};
    DType dtype = dtypes::fp32;
  };
  std::vector<std::string> warnings = {};  // keys without effect, a batch larger than the data, too many threads
  Data train = {};
  std::optional<Data> valid = {}, test = {};
  LayerTable layers = {};                  // as the first phase of quantization has them
  std::string table = {};                  // print_layer_table
  int64_t steps = 0;                       // optimizer steps of the whole run
  int64_t steps_per_epoch = 0;             // rounded up
  std::optional<MemoryAccount> peak = {};  // bytes by kind at the peak; none: not measured
};

// Throws ConfigError, Error as a run would before its first step. measure: run one optimizer step in each phase of
// quantization, a report of quantization and one batch of evaluation; their values are dropped. Applies device.threads
// and run.bits to the process, as Trainer does, and starts new peaks of memory.
DryRun dry_run(RunConfig config, bool measure = true);

}  // namespace bitgrad
