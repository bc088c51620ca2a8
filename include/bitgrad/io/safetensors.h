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
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/tensor/tensor.h"

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

// A file, in memory or held open, whose header is validated: every offset and shape in it can be trusted.
class SafetensorsFile {
 public:
  // Reads and checks all of it. Throws Error(kData) that names the path, the problem and its location.
  static SafetensorsFile read(const std::string& path);
  // Reads and checks the header, with its checksum and the length of the file, and holds the file open: copy reads one
  // tensor of it, check_data all. A file that is replaced meanwhile stays the one that was opened. Errors as in read.
  static SafetensorsFile open(const std::string& path);
  // The same from bytes in memory; `path` is used in errors only.
  static SafetensorsFile parse(std::vector<uint8_t> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  // The entries of __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // In order of the data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }
  // Throw Error(kData) if there is no tensor of that name. data() points to the bytes as stored (little endian, any
  // alignment), which a file in memory owns; of one that is held open, Error(kBug).
  const SafetensorsEntry& entry(std::string_view name) const;
  const uint8_t* data(std::string_view name) const;
  // Copies `bytes` bytes of a tensor, from its byte `begin` on. Throws Error(kData) if the file has become shorter.
  void copy(std::string_view name, int64_t begin, int64_t bytes, void* to) const;
  // Whether the file has the two checksums. That of the header has been verified, and that of the data if the file is
  // in memory.
  bool has_checksums() const { return has_checksums_; }
  // Verifies the checksum of the data, if there is one, in one pass that keeps a block of 1 MiB. Does nothing for a
  // file in memory.
  void check_data() const;

 private:
  SafetensorsFile() = default;
  static SafetensorsFile read(InputFile& input, const std::string& path);
  // The header alone; `front` receives the bytes before the data.
  static SafetensorsFile read_header(InputFile& input, const std::string& path, std::vector<uint8_t>& front);

  std::string path_;
  std::shared_ptr<InputFile> input_;  // nullptr: the file is in memory
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

// Saves and loads tensors as safetensors files, one call each way.
//
//   save_tensors("weights.safetensors", {{"w", w}, {"bias", bias}});
//   const Tensor w = load_tensors("weights.safetensors").at("w");
//
// fp64, fp32, bf16, fp16, int64, int32, and int8 and uint8 without scales, are stored as plain tensors (F64, F32, BF16,
// F16, I64, I32, I8, U8) that any reader of the format understands. Other codes, and everything with quantization
// parameters, are stored as in checkpoints (checkpoint/checkpoint.h): "<name>.codes" U8 [rows, row_bytes], canonical,
// rows byte-aligned; "<name>.scale" (F32), ".zero" (I32), ".offset" and ".statistic" (F32), flat. The metadata entry
// "bitgrad.tensors" holds the full dtype, shape, scheme and granularity.

using NamedTensors = std::map<std::string, Tensor>;

// Writes the tensors in order of their names, through write_file_atomically. Codes, scales and floats are stored bit
// for bit, NaN included; layouts other than canonical are not stored. Tensors of a device are copied to the host.
// Throws Error(kUsage) that names the tensor, before anything is written, for an undefined tensor, one in a kernel
// layout, and names that collide; file errors as in base/file.h.
void save_tensors(const std::string& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata = {});

// Loads all tensors of a file onto the current device (kind kBuffer). Reads files of save_tensors and of other
// programs, and bitgrad's checkpoints and model files ("layers.0.weight" with its scales, "layers.0.weight.master",
// ...). Registers dtypes that the file defines. Throws Error(kData) that names the file and the tensor for an
// unsupported dtype (BOOL, U32, F8_E4M3, ...), codes that the dtype does not have, and records that do not match the
// data.
NamedTensors load_tensors(const std::string& path);

}  // namespace bitgrad
