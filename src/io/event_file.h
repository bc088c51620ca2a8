// Event files of TensorBoard, written without a library: TFRecord records (length, CRC, data, CRC), each an Event of
// event.proto (github.com/tensorflow/tensorboard, tensorboard/compat/proto).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::io {

// One record, little endian: length (8 bytes), its masked CRC32C (4 bytes), data, its masked CRC32C.
std::vector<uint8_t> tf_record(const std::vector<uint8_t>& data);

using Scalars = std::vector<std::pair<std::string, float>>;  // tag and value
// Serialized events of a file; wall_time in seconds since 1970.
std::vector<uint8_t> version_event(double wall_time);
std::vector<uint8_t> start_event(double wall_time, int64_t step);
std::vector<uint8_t> scalars_event(double wall_time, int64_t step, const Scalars& scalars);

// Writes an event file of its own in a folder. Readers process the files of a folder in the order of their names, which
// is the order of creation. Errors as OutputFile.
class EventFile {
 public:
  // Creates <folder>/events.out.tfevents.<seconds>.bitgrad, whose name sorts after existing event files. If there are
  // any, readers discard their events from step `from_step` on.
  EventFile(const std::string& folder, int64_t from_step);
  // Whether the folder had no event files before.
  bool first() const { return first_; }
  void write(int64_t step, const Scalars& scalars);

 private:
  void record(const std::vector<uint8_t>& event);
  std::unique_ptr<OutputFile> file_;
  bool first_ = true;
};

}  // namespace bitgrad::io
