// A data set in memory of a device, as it is stored on the host (Dataset::stored), and batches made of it there.
#pragma once

#include <memory>
#include <string>

#include "bitgrad/data/dataset.h"
#include "bitgrad/tensor/tensor.h"
#include "data/augment.h"

namespace bitgrad::detail {

class ResidentData {
 public:
  // What it takes of a device; 0 where a data set does not tell how it is stored.
  static int64_t bytes_of(const Dataset& dataset);
  // Copies the samples to the current device; targets stay on the host. Throws Error for a data set that does not tell
  // how it is stored, or tells what does not fit together, and Error(kMemory) where the device is full.
  explicit ResidentData(const Dataset& dataset);

  // x [n, features] of the data set's dtype = its samples ids [n], int64 and all in range, on the current device.
  void gather(const Tensor& ids, const Tensor& x) const;
  // The same of images, changed by their draws: `images` of the same data set.
  void gather(const Tensor& ids, const Tensor& x, const data::AugmentedImages& images) const;

 private:
  Storage codes_, numbers_;  // numbers_: undefined for ids and values
  int64_t stride_, code_bytes_, tables_;
};

// Puts `data` on the current device where `choice` (device.resident_data) says so, and adds a line about it to `notes`;
// `name` is that of the section. transformed: its samples are changed on the way, which the host does. nullptr: it
// stays on the host. Throws Error where it must be on the device and cannot.
std::unique_ptr<ResidentData> place_data(const std::string& choice, const std::string& name, const Dataset& data,
                                         std::string& notes, bool transformed = false);

}  // namespace bitgrad::detail
