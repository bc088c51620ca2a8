// The metadata of a checkpoint, as texts and as plain data; records.cpp alone knows that they are JSON.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "bitgrad/io/safetensors.h"
#include "bitgrad/train/checkpoint.h"
#include "io/codes_record.h"

namespace bitgrad::checkpoint {

// Throws Error(kData) that names the file.
[[noreturn]] void bad(const std::string& path, const std::string& what);

// What bitgrad.kind says; a checkpoint has none.
inline constexpr std::string_view kModelKind = "model", kCheckpointKind = "checkpoint";
std::string kind_of(const SafetensorsFile& file);

using detail::CodesRecord;

// bitgrad.tensors: a record for each "<path>.codes".
std::string tensors_text(Module& model);
// Registers the dtypes that the file brings along; another record under a known name is an error. Throws Error(kData).
std::map<std::string, CodesRecord> read_tensors(const SafetensorsFile& file);

// What bitgrad.state says of a learner; the texts are empty.
CheckpointHeader header_of(Learner& learner, const RunCounters& counters);
// bitgrad.state without times, and without the phase where there is one alone: part of the state hash. And with them,
// for the file.
std::string counters_text(const CheckpointHeader& header, bool phases);
std::string state_text(const CheckpointHeader& header);
// Throws Error(kData).
CheckpointHeader read_state(const SafetensorsFile& file);

// Runs `read` and turns an Error of usage (or a broken promise) into one of kind kData that names the file.
template <typename F>
auto reading(const std::string& path, F&& read) {
  try {
    return read();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUsage && e.code() != ErrorCode::kBug) throw;
    bad(path, e.what());
  }
}

}  // namespace bitgrad::checkpoint
