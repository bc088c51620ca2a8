// Reads the tensors of a checkpoint or of a model file, each against the form that is expected of it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "train/checkpoint/records.h"

namespace bitgrad::checkpoint {

// All throw Error(kData), or Error(kNonFinite) where a tensor holds NaN or Inf, that names the file and the tensor. New
// tensors are on the CPU, those that are filled anywhere.
class Restorer {
 public:
  // `kind`: of file_kind, the one that is wanted; empty: either.
  Restorer(const std::string& path, std::string_view kind);
  const SafetensorsFile& file() const { return file_; }

  // A tensor of the file as a new one.
  Tensor plain(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind);
  void into(const std::string& name, const Tensor& t);
  // Master and codes of a checkpoint.
  void parameter(Parameter& p);
  // Codes or fp32 value of a model.
  void converted(Parameter& p);
  // Takes codes and scales as they are, for a parameter without a master, where the file has them in the same form;
  // false: it has not, or the parameter has a master.
  bool same_codes(Parameter& p);
  // What the file holds for a parameter that may be held in another way there, as fp32 [shape]: its master, else its
  // value, else the values of its codes.
  Tensor numbers(const std::string& path, const Shape& shape);
  // Throws for a tensor that was not asked for.
  void done() const;
  bool used(const std::string& name) const { return used_.count(name) > 0; }

 private:
  const SafetensorsEntry& entry(const std::string& name, const std::string& dtype, const Shape& shape);
  const CodesRecord& record(const std::string& name) const;
  Tensor bare_codes(const std::string& name, const CodesRecord& record);
  Tensor codes(const Parameter& p);
  // A scale, zero point, offset or statistic.
  std::shared_ptr<const Tensor> quant_part(const std::string& name, DType dtype, const Shape& shape, MemoryKind kind,
                                           DType codes);
  Tensor values_of_codes(const std::string& path, const Shape& shape);
  void check_codes(const std::string& name, const Tensor& t) const;

  SafetensorsFile file_;
  std::map<std::string, CodesRecord> tensors_;
  std::set<std::string> used_;
};

}  // namespace bitgrad::checkpoint
