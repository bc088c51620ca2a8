// The metadata of a checkpoint, as texts and as plain data. Only records.cpp knows that they are JSON.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/io/safetensors.h"

#include "io/metadata.h"
#include "train/pieces.h"

namespace bitgrad::checkpoint {

// Throws Error(kData) that names the file.
[[noreturn]] void bad(const std::string& path, const std::string& what);

SavedKind kind_of(const SafetensorsFile& file);

using detail::CodesRecord;

// bitgrad.tensors: a record for each "<path>.codes".
std::string tensors_text(const std::vector<Parameter*>& parameters);
// Also registers the dtypes that the file defines. Throws Error(kData), e.g. if a known dtype has another record.
std::map<std::string, CodesRecord> read_tensors(const SafetensorsFile& file);

// Writes the file with the metadata of the header and `more`. Throws Error(kNonFinite) if a piece is useless.
void write_pieces(const std::string& path, const Pieces& pieces, const CheckpointHeader& header,
                  std::map<std::string, std::string> more);

// The header of a learner, for bitgrad.state; its texts are empty.
CheckpointHeader header_of(Learner& learner, const RunCounters& counters);
// bitgrad.state for the state hash: without times, and without the phase unless `phases`. state_text: in full, for the
// file.
std::string counters_text(const CheckpointHeader& header, bool phases);
std::string state_text(const CheckpointHeader& header);
// Throws Error(kData).
CheckpointHeader read_state(const SafetensorsFile& file);

// Runs `read` and turns an Error of kind kUsage or kBug into one of kind kData that names the file.
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
