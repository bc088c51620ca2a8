// SHA-256 (FIPS 180-4, sections 5 and 6.2), used for the state hash of a run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bitgrad {

// An incremental hash. digest() may be called at any time, and update() again after it.
class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  // Digest of all bytes so far.
  std::array<uint8_t, 32> digest() const;
  // digest() as 64 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  uint64_t bytes_ = 0;  // buffer_ holds the last bytes_ % 64 of them
};

// hex() of one block of memory.
std::string sha256_hex(const void* data, size_t bytes);

}  // namespace bitgrad
