#include "io/safetensors_format.h"

#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/base/text.h"

namespace bitgrad::safetensors {
namespace {

struct DtypeRecord {
  std::string_view name;
  int64_t bits;
};
// safetensors 0.6, enum Dtype.
constexpr DtypeRecord kDtypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},
    {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64}, {"U64", 64},
};

}  // namespace

std::optional<int64_t> dtype_bits(std::string_view dtype) {
  for (const DtypeRecord& record : kDtypes)
    if (record.name == dtype) return record.bits;
  return std::nullopt;
}

std::string dtype_list() { return joined(kDtypes, ", ", &DtypeRecord::name); }

std::optional<int64_t> tensor_bytes(int64_t bits, const std::vector<int64_t>& shape) {
  // Zeros are excluded from the product, so that an absurd shape is refused wherever it has its 0.
  int64_t product = bits;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, size, &product))
      return std::nullopt;
  }
  if (empty) return 0;
  if (product % 8 != 0) return std::nullopt;
  return product / 8;
}

std::string crc_text(uint32_t crc) {
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text.push_back("0123456789abcdef"[(crc >> shift) & 15u]);
  return text;
}

size_t header_crc_place(std::string_view json) {
  const std::string pattern = concat('"', kHeaderCrcKey, "\":\"");
  const size_t at = json.find(pattern);
  if (at == std::string_view::npos) return at;
  const size_t place = at + pattern.size();
  const bool full = json.size() > place + kNoCrc.size() && json[place + kNoCrc.size()] == '"';
  return full ? place : std::string_view::npos;
}

std::string header_crc(std::string_view length_and_json, size_t place) {
  const size_t at = kLengthBytes + place;
  uint32_t crc = crc32c(length_and_json.data(), at);
  crc = crc32c(kNoCrc.data(), kNoCrc.size(), crc);
  const std::string_view rest = length_and_json.substr(at + kNoCrc.size());
  return crc_text(crc32c(rest.data(), rest.size(), crc));
}

}  // namespace bitgrad::safetensors
