// The characters that represent bytes in byte-level BPE vocabularies.
#pragma once

#include <array>
#include <string>

namespace bitgrad::data {

// The UTF-8 character for a byte: the byte itself if printable, else the next code point from 256 on (openai/gpt-2,
// src/encoder.py, bytes_to_unicode).
std::array<std::string, 256> byte_characters();

}  // namespace bitgrad::data
