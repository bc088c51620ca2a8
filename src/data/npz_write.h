// Writes archives of arrays as numpy.savez does: stored members NAME.npy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad::data {

struct NpzArray {
  std::string name = {};
  std::string descr = {};  // numpy type string: "<f4", "|i1", "|u1", "<i4"
  std::vector<int64_t> shape = {};
  std::vector<uint8_t> bytes = {};  // row-major, little-endian
};
// Returns the bytes of the archive. Throws Error for 4 GiB or more and for more than 65535 arrays, which would need
// ZIP64 records.
std::vector<uint8_t> npz_bytes(const std::vector<NpzArray>& arrays);

}  // namespace bitgrad::data
