// Shared by the reader and the writer of safetensors files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/io/safetensors.h"

namespace bitgrad::safetensors {

inline constexpr size_t kLengthBytes = 8;
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
inline constexpr size_t kMaxRank = 32;
inline constexpr size_t kDataAlignment = 64;
inline constexpr std::string_view kMetadataName = "__metadata__";
inline constexpr std::string_view kDataCrcKey = "bitgrad.crc32c";
inline constexpr std::string_view kHeaderCrcKey = "bitgrad.header_crc32c";
inline constexpr std::string_view kNoCrc = "00000000";

// Bits per element; nullopt for an unknown name.
std::optional<int64_t> dtype_bits(std::string_view dtype);
// "BOOL, U8, ...", for errors.
std::string dtype_list();

// Bytes of a tensor; nullopt if a dimension is negative, the size overflows int64 or the bits do not fill whole bytes.
std::optional<int64_t> tensor_bytes(int64_t bits, const std::vector<int64_t>& shape);

std::string crc_text(uint32_t crc);
// Position of the 8 digits of the header's checksum in the JSON text; npos if it is not there in the form that we
// write. No other text in a header can be mistaken for it: inside a string every quote is escaped, and a tensor's value
// is an object.
size_t header_crc_place(std::string_view json);
// The checksum of length word and JSON, with the digits at `place` replaced by zeros.
std::string header_crc(std::string_view length_and_json, size_t place);

// The JSON header.
struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;  // in the order of the text; offsets are not yet compared with each other
};

// Accepts exactly the format: no duplicate or unknown keys, no other nesting, whole non-negative numbers, known dtypes,
// and byte ranges that agree with dtype and shape. Throws Error(kData) that names `path` and the tensor or byte.
Header parse_header(std::string_view json, const std::string& path);

}  // namespace bitgrad::safetensors
