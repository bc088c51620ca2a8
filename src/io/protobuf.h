// Messages in the wire format of Protocol Buffers (protobuf.dev, "Encoding"), written without a library.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace bitgrad::io {

// Writes the fields of one message in call order: a key (field number and wire type), followed by a varint, four or
// eight bytes (little endian), or a length and that many bytes.
class ProtoMessage {
 public:
  void integer(int field, int64_t x) {
    key(field, 0);
    varint(static_cast<uint64_t>(x));
  }
  void real(int field, double x) {
    key(field, 1);
    uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    fixed(bits, 8);
  }
  void number(int field, float x) {
    key(field, 5);
    uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    fixed(bits, 4);
  }
  void text(int field, std::string_view x) { data(field, x); }
  template <typename Bytes>
  void data(int field, const Bytes& x) {
    key(field, 2);
    varint(x.size());
    bytes_.insert(bytes_.end(), x.begin(), x.end());
  }
  void message(int field, const ProtoMessage& x) { data(field, x.bytes_); }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  void key(int field, int wire) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire)); }
  void varint(uint64_t x) {
    for (; x >= 0x80; x >>= 7) bytes_.push_back(static_cast<uint8_t>(x | 0x80));
    bytes_.push_back(static_cast<uint8_t>(x));
  }
  void fixed(uint64_t bits, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  }
  std::vector<uint8_t> bytes_;
};

}  // namespace bitgrad::io
