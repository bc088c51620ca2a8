// Files of named tensors in the safetensors format (Hugging Face, github.com/huggingface/safetensors, README "Format"):
//   u64 little-endian N | N bytes of JSON, {name: {dtype, shape, data_offsets}, "__metadata__": {text: text}} | data.
// Data has no holes and no overlaps; offsets count from its start. N is at most 100,000,000.
//
// Our files are ordinary ones with two more metadata entries, so that any flipped bit is found:
//   bitgrad.crc32c         CRC32C of the data,
//   bitgrad.header_crc32c  CRC32C of everything before the data (N too), taken with its own 8 digits replaced by zeros,
// both as 8 lower-case hexadecimal digits. One without the other is an error. Files of other programs have neither.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bitgrad {

class InputFile;  // base/file.h

// One tensor of a file.
struct SafetensorsEntry {
  std::string name = {};
  std::string dtype = {};           // the format's name: U8, F32, BF16, I64 ...
  std::vector<int64_t> shape = {};  // empty: one element
  int64_t offset = 0;               // from the start of the data
  int64_t bytes = 0;
};

// A file in memory, wholly checked: whoever holds one may trust every offset and shape in it.
class SafetensorsFile {
 public:
  // Throws Error(kData) that names the path, what is wrong and where.
  static SafetensorsFile read(const std::string& path);
  // The same from bytes; `path` is only for errors.
  static SafetensorsFile parse(std::vector<uint8_t> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  // All of __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // In the order of the data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }
  // Throw Error(kData) for an absent name. The bytes are as in the file (little endian), at any alignment; the file
  // owns them.
  const SafetensorsEntry& entry(std::string_view name) const;
  const uint8_t* data(std::string_view name) const;
  // Whether the file has the two checksums (they are right, then). What must not be trusted without them may ask.
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

// A tensor to be written: row-major, little endian.
struct SafetensorsItem {
  std::string name = {};
  std::string dtype = {};
  std::vector<int64_t> shape = {};
  const void* data = nullptr;
  int64_t bytes = 0;  // must be what dtype and shape say
};

// Writes the items in the given order with the two checksums, the data at a multiple of 64, through
// write_file_atomically. Throws Error(kUsage) before anything is written for a duplicate or reserved name, an unknown
// dtype, a wrong number of bytes or text that is not UTF-8; file errors as base/file.h says.
void write_safetensors(const std::string& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata);

}  // namespace bitgrad
