// The metadata of a checkpoint, as texts and as plain data. Only records.cpp knows that they are JSON.
#pragma once

#include <map>
#include <memory>
#include <set>
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

// Reads the tensors of a checkpoint or model file and checks each against its expected form.

// Functions throw Error(kData), or Error(kNonFinite) for NaN and Inf, that names file and tensor. New tensors are on
// the CPU; existing ones may be on any device.
class Restorer {
 public:
  // `kind`: the required result of file_kind; nullopt: a model or a checkpoint.
  Restorer(const std::string& path, std::optional<SavedKind> kind);
  const SafetensorsFile& file() const { return file_; }

  // Reads a tensor of the file into a new one.
  Tensor plain(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind);
  void into(const std::string& name, const Tensor& t);
  // Reads master and codes from a checkpoint.
  void parameter(Parameter& p);
  // Reads codes and scales of the file's parameter `path`, whose names begin with `path` and `prefix`, for the low-bit
  // parameter `p`.
  Tensor codes(const Parameter& p, const std::string& path, const std::string& prefix = ".");
  // Reads codes or fp32 values from a model file.
  void converted(Parameter& p);
  // Copies codes and scales of the file's parameter `path` unchanged into a low-bit parameter, and its values into the
  // master, if there is one. Returns false, and changes nothing, if the file has none or others: another dtype, scheme
  // or granularity, or other parts.
  bool same_codes(Parameter& p, const std::string& path);
  // The values of a parameter as fp32 [shape], whatever its precision in the file: its master, else its value, else its
  // dequantized codes.
  Tensor numbers(const std::string& path, const Shape& shape);
  // Throws if a tensor of the file was not read, unless it is an average (train.ema), which evaluation does not need.
  void done() const;
  bool used(const std::string& name) const { return used_.count(name) > 0; }

 private:
  const SafetensorsEntry& entry(const std::string& name, const std::string& dtype, const Shape& shape);
  const CodesRecord& record(const std::string& name) const;
  Tensor bare_codes(const std::string& name, const CodesRecord& record);
  // Reads a scale, zero point, offset or statistic.
  std::shared_ptr<const Tensor> quant_part(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind,
                                           DType codes);
  Tensor values_of_codes(const std::string& path, const Shape& shape);
  void check_codes(const std::string& name, const Tensor& t) const;

  SafetensorsFile file_;
  std::map<std::string, CodesRecord> tensors_;
  std::set<std::string> used_;
};

}  // namespace bitgrad::checkpoint
