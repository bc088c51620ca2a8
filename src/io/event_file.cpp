#include "io/event_file.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "bitgrad/base/error.h"
#include "bitgrad/base/rng.h"
#include "io/protobuf.h"

namespace bitgrad::io {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

void put(std::vector<uint8_t>& out, uint64_t x, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(x >> (8 * i)));
}

// The masked CRC of TFRecord, so that the CRC of data that contain CRCs stays meaningful.
uint32_t masked_crc(const void* data, size_t bytes) {
  const uint32_t crc = crc32c(data, bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::vector<uint8_t> tf_record(const std::vector<uint8_t>& data) {
  std::vector<uint8_t> out;
  out.reserve(data.size() + 16);
  put(out, data.size(), 8);
  put(out, masked_crc(out.data(), 8), 4);
  out.insert(out.end(), data.begin(), data.end());
  put(out, masked_crc(data.data(), data.size()), 4);
  return out;
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::vector<uint8_t> version_event(double time) {
  ProtoMessage event;
  event.real(1, time);
  event.text(3, "brain.Event:2");
  return event.take();
}

std::vector<uint8_t> start_event(double time, int64_t step) {
  ProtoMessage log, event;
  log.integer(1, 1);  // SessionLog: status = 1, START
  event.real(1, time);
  event.integer(2, step);
  event.message(7, log);
  return event.take();
}

std::vector<uint8_t> scalars_event(double time, int64_t step, const Scalars& scalars) {
  ProtoMessage summary, event;
  for (const auto& [tag, value] : scalars) {
    ProtoMessage item;
    item.text(1, tag);  // Summary.Value: tag = 1, simple_value = 2
    item.number(2, value);
    summary.message(1, item);
  }
  event.real(1, time);
  event.integer(2, step);
  event.message(5, summary);
  return event.take();
}

EventFile::EventFile(const std::string& folder, int64_t from_step) {
  auto seconds = static_cast<int64_t>(wall_time());
  for (const std::string& name : file_system().list(folder)) {
    if (!name.starts_with(kPrefix)) continue;
    first_ = false;
    seconds = std::max<int64_t>(seconds, std::atoll(name.c_str() + kPrefix.size()) + 1);
  }
  file_ = file_system().open_append(concat(folder, '/', kPrefix, seconds, ".bitgrad"));
  record(version_event(wall_time()));
  if (!first_) record(start_event(wall_time(), from_step));
}

void EventFile::write(int64_t step, const Scalars& scalars) {
  if (!scalars.empty()) record(scalars_event(wall_time(), step, scalars));
}

void EventFile::record(const std::vector<uint8_t>& event) {
  const std::vector<uint8_t> bytes = tf_record(event);
  file_->write(bytes.data(), bytes.size());
}

}  // namespace bitgrad::io
