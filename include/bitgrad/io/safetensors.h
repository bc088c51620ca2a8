// Reader and writer of safetensors files (Hugging Face, github.com/huggingface/safetensors, README "Format"):
//   u64 little-endian N | N bytes of JSON, {name: {dtype, shape, data_offsets}, "__metadata__": {text: text}} | data.
// The data have no holes and no overlaps; offsets count from their start. N is at most 100,000,000.
//
// Files written here are ordinary ones with two extra metadata entries, so that any flipped bit is detected:
//   bitgrad.crc32c         CRC32C of the data,
//   bitgrad.header_crc32c  CRC32C of everything before the data (N included), computed with its own 8 digits as zeros,
// both as 8 lower-case hexadecimal digits. Having only one of them is an error. Files of other programs have neither.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

class InputFile;  // base/file.h

// Directory entry of one tensor.
struct SafetensorsEntry {
  std::string name = {};
  std::string dtype = {};           // the format's name: U8, F32, BF16, I64, ...
  std::vector<int64_t> shape = {};  // empty: a scalar
  int64_t offset = 0;               // from the start of the data section
  int64_t bytes = 0;
};

// A file in memory, fully validated: every offset and shape in it can be trusted.
class SafetensorsFile {
 public:
  // Throws Error(kData) that names the path, the problem and its location.
  static SafetensorsFile read(const std::string& path);
  // The same from bytes in memory; `path` is used in errors only.
  static SafetensorsFile parse(std::vector<uint8_t> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  // The entries of __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // In order of the data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }
  // Throw Error(kData) if there is no tensor of that name. data() points to the bytes as stored (little endian, any
  // alignment); the file owns them.
  const SafetensorsEntry& entry(std::string_view name) const;
  const uint8_t* data(std::string_view name) const;
  // Whether the file has the two checksums, which have then been verified.
  bool has_checksums() const { return has_checksums_; }

 private:
  SafetensorsFile() = default;
  static SafetensorsFile read(InputFile& input, const std::string& path);

  std::string path_;
  std::vector<uint8_t> bytes_;
  size_t data_begin_ = 0;
  std::map<std::string, std::string> metadata_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
  bool has_checksums_ = false;
};

// A tensor to write: row-major, little endian.
struct SafetensorsItem {
  std::string name = {};
  std::string dtype = {};
  std::vector<int64_t> shape = {};
  const void* data = nullptr;
  int64_t bytes = 0;  // must match dtype and shape
};

// Writes the items in the given order, with the two checksums and the data section at a multiple of 64 bytes, through
// write_file_atomically. Throws Error(kUsage) before anything is written for a duplicate or reserved name, an unknown
// dtype, a wrong byte count or text that is not UTF-8; file errors as in base/file.h.
void write_safetensors(const std::string& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata);

}  // namespace bitgrad
