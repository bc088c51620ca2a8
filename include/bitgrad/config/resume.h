// What a resumed run may do with the keys of its configuration.
#pragma once

#include <cstdint>
#include <string>

#include "bitgrad/config/config.h"

namespace bitgrad {

enum class ResumeRule : uint8_t {
  kFixed,         // must be that of the saved run
  kOfCheckpoint,  // may change; the checkpoint's value counts, whatever config.yaml says: device, end of the run
  kSamplePath,    // may change if it leads to the same samples; the value in config.yaml counts
};
// `key` as in ConfigDifference. `config`: the formats of its data sets say which keys are paths.
ResumeRule resume_rule(const RunConfig& config, const std::string& key);
// Takes all keys of rule kSamplePath from `from`.
void take_sample_paths(const RunConfig& from, RunConfig& to);

}  // namespace bitgrad
