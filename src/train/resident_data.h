// A data set in device memory, in the format in which the host stores it (Dataset::stored), and batches gathered from
// it.
#pragma once

#include <memory>
#include <string>

#include "bitgrad/data/dataset.h"
#include "bitgrad/tensor/tensor.h"
#include "data/augment.h"

namespace bitgrad::detail {

class ResidentData {
 public:
  // Bytes of device memory that the data set needs; 0 if it does not report how it is stored.
  static int64_t bytes_of(const Dataset& dataset);
  // Copies the samples to the current device; targets stay on the host. Throws Error if the data set does not report
  // how it is stored or the report is inconsistent, and Error(kMemory) if the device is full.
  explicit ResidentData(const Dataset& dataset);

  // Writes the samples `ids` [n], int64 and in range, to x [n, features] of the data set's dtype, on the current
  // device.
  void gather(const Tensor& ids, const Tensor& x) const;
  // The same for images, augmented; `images` must be of the same data set.
  void gather(const Tensor& ids, const Tensor& x, const data::AugmentedImages& images) const;

 private:
  Storage codes_, numbers_;  // numbers_: undefined for ids and fp32 values
  int64_t stride_, code_bytes_, tables_;
};

// Copies `data` to the current device if `choice` (device.resident_data) says so; returns nullptr if it stays on the
// host. Appends a line about this to `notes`, in which `name` is the section. transformed: the host transforms the
// samples. Throws Error if the data must reside on the device but cannot.
std::unique_ptr<ResidentData> place_data(const std::string& choice, const std::string& name, const Dataset& data,
                                         std::string& notes, bool transformed = false);

}  // namespace bitgrad::detail
