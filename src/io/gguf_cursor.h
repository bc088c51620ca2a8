// Reads a GGUF file front to back.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"

namespace bitgrad::gguf {

template <typename... Parts>
[[noreturn]] void fail_gguf(const std::string& path, const Parts&... parts) {
  fail_with(ErrorCode::kData, "gguf", printable(concat("'", path, "': ", parts...)));
}

// Checks every count against the rest of the file before allocating memory.
class Cursor {
 public:
  Cursor(InputFile& input, const std::string& path) : input_(input), path_(path), size_(input.size()) {}

  int64_t position() const { return position_; }
  int64_t rest() const { return size_ - position_; }
  void begin(std::string what) { what_ = std::move(what); }

  void bytes(void* to, int64_t count) {
    if (count > rest()) ends();
    auto* out = static_cast<uint8_t*>(to);
    while (count > 0) {
      if (position_ < buffer_begin_ || position_ >= buffer_begin_ + static_cast<int64_t>(buffer_.size())) refill();
      const int64_t at = position_ - buffer_begin_;
      const int64_t part = std::min(count, static_cast<int64_t>(buffer_.size()) - at);
      std::memcpy(out, buffer_.data() + at, static_cast<size_t>(part));
      out += part;
      position_ += part;
      count -= part;
    }
  }
  template <typename T>
  T number() {
    T value;
    bytes(&value, sizeof value);
    return value;
  }
  // Reads a count of items that take at least `least_bytes` each.
  int64_t count(std::string_view of, int64_t least_bytes) {
    const auto n = number<uint64_t>();
    if (n > static_cast<uint64_t>(rest() / least_bytes))
      fail_gguf(path_, what_, ": got ", n, ' ', of, ", more than the rest of the file holds (", rest(), " bytes).");
    return static_cast<int64_t>(n);
  }
  std::string text() {
    std::string value(static_cast<size_t>(count("bytes of text", 1)), '\0');
    bytes(value.data(), static_cast<int64_t>(value.size()));
    return value;
  }
  template <typename... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail_gguf(path_, what_, ": ", parts...);
  }

 private:
  [[noreturn]] void ends() const { fail_gguf(path_, "the file ends inside ", what_, ": it has ", size_, " bytes."); }
  void refill() {
    constexpr int64_t kBuffer = 1 << 16;
    buffer_.resize(static_cast<size_t>(std::min(kBuffer, rest())));
    buffer_.resize(input_.read_at(position_, buffer_.data(), buffer_.size()));
    buffer_begin_ = position_;
    if (buffer_.empty()) fail_gguf(path_, "the file became shorter while it was read.");
  }

  InputFile& input_;
  const std::string& path_;
  int64_t size_, position_ = 0, buffer_begin_ = 0;
  std::vector<uint8_t> buffer_;
  std::string what_ = "its first bytes";
};

}  // namespace bitgrad::gguf
