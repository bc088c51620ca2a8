// Event files of TensorBoard, written without any library: records of TFRecord (length, CRC, data, CRC), each an Event
// of event.proto (github.com/tensorflow/tensorboard, tensorboard/compat/proto).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/file.h"

namespace bitgrad::io {

// One record: length in 8 bytes, its masked CRC32C in 4, data, its masked CRC32C; all little endian.
std::vector<uint8_t> tf_record(const std::vector<uint8_t>& data);

using Scalars = std::vector<std::pair<std::string, float>>;  // by tag
// Events of one file; wall_time in seconds since 1970.
std::vector<uint8_t> version_event(double wall_time);
std::vector<uint8_t> start_event(double wall_time, int64_t step);
std::vector<uint8_t> scalars_event(double wall_time, int64_t step, const Scalars& scalars);

// Appends to an event file of its own in a folder: a reader takes the files of a folder in the order of their names,
// which is that of their making. Errors as OutputFile.
class EventFile {
 public:
  // Makes <folder>/events.out.tfevents.<seconds>.bitgrad, whose name sorts after those that are there. Where there are
  // some, readers forget what those hold of step `from_step` and later.
  EventFile(const std::string& folder, int64_t from_step);
  // Whether the folder had no event file before.
  bool first() const { return first_; }
  void write(int64_t step, const Scalars& scalars);

 private:
  void record(const std::vector<uint8_t>& event);
  std::unique_ptr<OutputFile> file_;
  bool first_ = true;
};

}  // namespace bitgrad::io
