// Reads the tensors of a checkpoint or model file and checks each against its expected form.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/load.h"
#include "checkpoint/records.h"

namespace bitgrad::checkpoint {

// Functions throw Error(kData), or Error(kNonFinite) for NaN and Inf, that names file and tensor. New tensors are on
// the CPU; existing ones may be on any device. Of the file only what they ask for is read.
class Restorer {
 public:
  // `kind`: the required result of file_kind; nullopt: a model or a checkpoint. By path, the file's checksum is
  // verified first; a file that is given has been verified (open_verified).
  Restorer(const std::string& path, std::optional<SavedKind> kind);
  Restorer(OpenFile file, std::optional<SavedKind> kind);
  const SafetensorsFile& file() const { return *file_; }

  // Reads a tensor of the file into a new one.
  Tensor plain(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind);
  // The same of F32, F16 or BF16, as fp32; as_stored: in the dtype of the file.
  Tensor floats(const std::string& name, const Shape& shape, MemoryKind kind, bool as_stored = false);
  void into(const std::string& name, const Tensor& t);
  // Reads master and codes from a checkpoint; for a read-only parameter only its value, while the form of a master that
  // training would have is checked.
  void parameter(Parameter& p);
  // Reads codes and scales of the file's parameter `path`, whose names begin with `path` and `prefix`, for the low-bit
  // parameter `p`.
  Tensor codes(const Parameter& p, const std::string& path, const std::string& prefix = ".");
  // Reads codes or values from a model file: F32, or F16 or BF16, which a read-only parameter keeps.
  void converted(Parameter& p);
  // Copies codes and scales of the file's parameter `path` unchanged into a low-bit parameter, and its values into the
  // master, if there is one. Returns false, and changes nothing, if the file has none or others: another dtype, scheme
  // or granularity, or other parts.
  bool same_codes(Parameter& p, const std::string& path);
  // The values of a parameter as fp32 [shape], whatever its precision in the file: its master, else its value, else its
  // dequantized codes.
  Tensor numbers(const std::string& path, const Shape& shape);
  // Throws if a tensor of the file was not read, unless it is an average (train.ema), which evaluation does not need.
  // `model`: one that is only read, and needs none of what training keeps of its parameters (moments, learned parts).
  void done(Module* model = nullptr) const;
  bool used(const std::string& name) const { return used_.count(name) > 0; }

 private:
  const SafetensorsEntry& entry(const std::string& name, const std::string& dtype, const Shape& shape);
  const CodesRecord& record(const std::string& name) const;
  Tensor bare_codes(const std::string& name, const CodesRecord& record, MemoryKind kind);
  // Reads a scale, zero point, offset or statistic.
  std::shared_ptr<const Tensor> quant_part(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind,
                                           DType codes);
  Tensor values_of_codes(const std::string& path, const Shape& shape);
  void check_codes(const std::string& name, const Tensor& t) const;
  void fill(const std::string& name, const Tensor& t) const;
  Tensor room(const Shape& shape, DType dtype, MemoryKind kind) const;

  OpenFile file_;
  std::map<std::string, CodesRecord> tensors_;
  std::set<std::string> used_;
};

}  // namespace bitgrad::checkpoint
