#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/io/safetensors.h"
#include "io/safetensors_format.h"

namespace bitgrad {
namespace {

using namespace safetensors;
constexpr std::string_view kWhere = "write_safetensors";

// A JSON string literal with its quotes.
std::string json_string(std::string_view text) {
  try {
    return Json(text).dump();
  } catch (const JsonError&) {
    fail(kWhere, "a name or metadata text is not valid UTF-8.");
  }
}

void check_items(const std::vector<SafetensorsItem>& items, const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names;
  for (const SafetensorsItem& item : items) {
    require(item.name != kMetadataName, kWhere, "a tensor cannot be named ", kMetadataName, '.');
    require(names.insert(item.name).second, kWhere, "two tensors are named '", item.name, "'.");
    const auto bits = dtype_bits(item.dtype);
    if (!bits)
      fail(kWhere, "tensor '", item.name, "': got dtype '", item.dtype, "', expected one of ", dtype_list(), '.');
    require(item.shape.size() <= kMaxRank, kWhere, "tensor '", item.name, "': got ", item.shape.size(),
            " dimensions, expected at most ", kMaxRank, '.');
    const auto bytes = tensor_bytes(*bits, item.shape);
    require(bytes.has_value(), kWhere, "tensor '", item.name,
            "': the shape is negative, too large or does not fill whole bytes.");
    require(*bytes == item.bytes, kWhere, "tensor '", item.name, "': got ", item.bytes, " bytes, dtype and shape need ",
            *bytes, '.');
    require(item.data != nullptr || item.bytes == 0, kWhere, "tensor '", item.name, "' has no data.");
  }
  for (std::string_view key : {kDataCrcKey, kHeaderCrcKey})
    require(metadata.count(std::string(key)) == 0, kWhere, "the metadata key ", key,
            " is written by the library itself.");
}

std::string json_text(const std::vector<SafetensorsItem>& items, const std::map<std::string, std::string>& metadata,
                      const std::string& data_crc) {
  std::string json = concat('{', json_string(kMetadataName), ":{", json_string(kDataCrcKey), ":\"", data_crc, "\",",
                            json_string(kHeaderCrcKey), ":\"", kNoCrc, '"');
  for (const auto& [key, value] : metadata) json += concat(',', json_string(key), ':', json_string(value));
  json += '}';
  int64_t offset = 0;
  for (const SafetensorsItem& item : items) {
    json += concat(',', json_string(item.name), ":{\"dtype\":", json_string(item.dtype), ",\"shape\":[");
    for (size_t i = 0; i < item.shape.size(); ++i) json += concat(i == 0 ? "" : ",", item.shape[i]);
    json += concat("],\"data_offsets\":[", offset, ',', offset + item.bytes, "]}");
    offset += item.bytes;
  }
  json += '}';
  json.append((kDataAlignment - (kLengthBytes + json.size()) % kDataAlignment) % kDataAlignment, ' ');
  require(json.size() <= kMaxHeaderBytes, kWhere, "the header is too long: got ", json.size(), " bytes, at most ",
          kMaxHeaderBytes, " are allowed.");
  return json;
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata) {
  check_items(items, metadata);
  uint32_t data_crc = 0;
  for (const SafetensorsItem& item : items) data_crc = crc32c(item.data, static_cast<size_t>(item.bytes), data_crc);
  const std::string json = json_text(items, metadata, crc_text(data_crc));
  std::string front;
  for (size_t i = 0; i < kLengthBytes; ++i) front.push_back(static_cast<char>(uint64_t{json.size()} >> (8 * i)));
  front += json;
  const size_t place = header_crc_place(json);
  ensure(place != std::string::npos, kWhere, "the header has no place for its checksum.");
  front.replace(kLengthBytes + place, kNoCrc.size(), header_crc(front, place));
  write_file_atomically(path, [&](OutputFile& file) {
    file.write(front.data(), front.size());
    for (const SafetensorsItem& item : items) file.write(item.data, static_cast<size_t>(item.bytes));
  });
}

}  // namespace bitgrad
