#include <algorithm>
#include <string_view>

#include "bitgrad/base/rng.h"
#include "fuzz/fuzz.h"
#include "io/safetensors_format.h"

namespace bitgrad::fuzz {
namespace {

using namespace safetensors;

constexpr size_t kMostData = size_t{1} << 16;

// The largest end of "data_offsets":[a,b].
size_t data_bytes(std::string_view json) {
  constexpr std::string_view kKey = "\"data_offsets\":[";
  size_t upper = 0;
  for (size_t at = json.find(kKey); at != std::string_view::npos; at = json.find(kKey, at + 1)) {
    size_t i = json.find(',', at), number = 0;
    if (i == std::string_view::npos) break;
    for (++i; i < json.size() && json[i] >= '0' && json[i] <= '9' && number <= kMostData; ++i)
      number = number * 10 + static_cast<size_t>(json[i] - '0');
    upper = std::max(upper, number);
  }
  return std::min(upper, kMostData);
}

// Writes 8 digits behind "key":" where they have their place.
void set_digits(std::string& json, std::string_view key, const std::string& digits) {
  const std::string pattern = concat('"', key, "\":\"");
  const size_t at = json.find(pattern);
  if (at != std::string::npos && at + pattern.size() + digits.size() <= json.size())
    json.replace(at + pattern.size(), digits.size(), digits);
}

}  // namespace

std::vector<uint8_t> forged_safetensors(const uint8_t* data, size_t size) {
  if (size == 0) return {};
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'R') return {input.begin(), input.end()};
  const size_t end = std::min(input.find('\n'), input.size());
  std::string json(input.substr(0, end)), content(input.substr(std::min(end + 1, input.size())));
  content.resize(data_bytes(json));
  set_digits(json, kDataCrcKey, crc_text(crc32c(content.data(), content.size())));
  std::string front;
  for (size_t i = 0; i < kLengthBytes; ++i) front.push_back(static_cast<char>(uint64_t{json.size()} >> (8 * i)));
  if (const size_t place = header_crc_place(json); place != std::string_view::npos)
    json.replace(place, kNoCrc.size(), header_crc(front + json, place));
  front += json + content;
  return {front.begin(), front.end()};
}

}  // namespace bitgrad::fuzz
