#include "data/npz_write.h"

#include <zlib.h>

#include "bitgrad/base/error.h"

namespace bitgrad::data {
namespace {

using Bytes = std::vector<uint8_t>;

void put_number(Bytes& out, uint64_t x, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(x >> (8 * i)));
}
void put_text(Bytes& out, const std::string& text) { out.insert(out.end(), text.begin(), text.end()); }

// Format version 1.0: the header is padded to a multiple of 64 bytes.
Bytes npy_of(const NpzArray& a) {
  std::string text = concat("{'descr': '", a.descr, "', 'fortran_order': False, 'shape': (");
  for (const int64_t d : a.shape) text += concat(d, ", ");
  text += "), }";
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  Bytes out;
  put_text(out, std::string("\x93NUMPY\x01\x00", 8));
  put_number(out, text.size(), 2);
  put_text(out, text);
  out.insert(out.end(), a.bytes.begin(), a.bytes.end());
  return out;
}

// Fields shared by the local header and the central directory, starting at the version (APPNOTE 4.3.7, 4.3.12).
void put_record(Bytes& out, const std::string& name, uint32_t crc, size_t size) {
  put_number(out, 20, 2);  // version needed to extract
  put_number(out, 0, 2);   // flags
  put_number(out, 0, 2);   // method: stored
  put_number(out, 0, 2);   // time and date 1980-01-01, so that the same model gives the same file
  put_number(out, 0x21, 2);
  put_number(out, crc, 4);
  put_number(out, size, 4);
  put_number(out, size, 4);
  put_number(out, name.size(), 2);
  put_number(out, 0, 2);  // no extra field
}

}  // namespace

std::vector<uint8_t> npz_bytes(const std::vector<NpzArray>& arrays) {
  Bytes out, directory;
  require(arrays.size() < 65535, "npz", "got ", arrays.size(), " arrays, expected fewer than 65535");
  for (const NpzArray& a : arrays) {
    const Bytes content = npy_of(a);
    require(out.size() + content.size() < (size_t{1} << 32) - (size_t{1} << 20), "npz",
            "the arrays have 4 GiB or more. Use safetensors");
    const std::string name = a.name + ".npy";
    const auto crc = static_cast<uint32_t>(::crc32_z(::crc32_z(0, nullptr, 0), content.data(), content.size()));
    put_number(directory, 0x02014b50, 4);
    put_number(directory, 20, 2);
    put_record(directory, name, crc, content.size());
    put_number(directory, 0, 2);  // no comment, disk 0, attributes
    put_number(directory, 0, 2);
    put_number(directory, 0, 2);
    put_number(directory, 0, 4);
    put_number(directory, out.size(), 4);
    put_text(directory, name);
    put_number(out, 0x04034b50, 4);
    put_record(out, name, crc, content.size());
    put_text(out, name);
    out.insert(out.end(), content.begin(), content.end());
  }
  const size_t begin = out.size();
  out.insert(out.end(), directory.begin(), directory.end());
  put_number(out, 0x06054b50, 4);
  put_number(out, 0, 4);  // disks
  put_number(out, arrays.size(), 2);
  put_number(out, arrays.size(), 2);
  put_number(out, directory.size(), 4);
  put_number(out, begin, 4);
  put_number(out, 0, 2);
  return out;
}

}  // namespace bitgrad::data
