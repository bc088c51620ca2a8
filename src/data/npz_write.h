// Archives of arrays as numpy.savez writes them: stored members NAME.npy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad::data {

struct NpzArray {
  std::string name = {};
  std::string descr = {};  // numpy's name of the type: "<f4", "|i1", "|u1", "<i4"
  std::vector<int64_t> shape = {};
  std::vector<uint8_t> bytes = {};  // row-major, little endian
};
// The bytes of the archive. Throws Error for 4 GiB and more, and for more than 65535 arrays: those need other records.
std::vector<uint8_t> npz_bytes(const std::vector<NpzArray>& arrays);

}  // namespace bitgrad::data
