// Files made by hand, and what the reader says about them.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/io/safetensors.h"
#include "support/expect_error.h"

namespace bitgrad::test {

// A file of another program: just a header and data.
inline std::vector<uint8_t> file_of(const std::string& json, const std::string& data) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(uint64_t{json.size()} >> (8 * i)));
  bytes.insert(bytes.end(), json.begin(), json.end());
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

// The error of reading such a file; it must be one of data, and name the path.
inline std::string refusal(const std::vector<uint8_t>& bytes) {
  const auto call = [&] { SafetensorsFile::parse(bytes, "some.path"); };
  std::string text = error_of(call);
  if (!text.empty() && (error_code_of(call) != 3 || !contains(text, "[safetensors] 'some.path': ")))
    return "wrong form: " + text;
  return text;
}
inline std::string refusal(const std::string& json, const std::string& data) { return refusal(file_of(json, data)); }

}  // namespace bitgrad::test
