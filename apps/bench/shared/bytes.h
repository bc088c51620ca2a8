// Memory for operands: aligned to 64 bytes and zeroed.
#pragma once

#include <cstdint>
#include <vector>

namespace bitgrad::bench {

class Bytes {
 public:
  explicit Bytes(int64_t bytes) : data_(static_cast<size_t>(bytes / 64 + 1)) {}
  void* data() { return data_.data(); }
  float* floats() { return reinterpret_cast<float*>(data_.data()); }
  uint16_t* halves() { return reinterpret_cast<uint16_t*>(data_.data()); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> data_;
};

}  // namespace bitgrad::bench
