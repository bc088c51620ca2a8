// How texts of tokens of byte-level BPE write bytes.
#pragma once

#include <array>
#include <string>

namespace bitgrad::data {

// The character that stands for a byte: itself where it is printable, else the next from 256 on (openai/gpt-2,
// src/encoder.py, bytes_to_unicode). UTF-8.
std::array<std::string, 256> byte_characters();

}  // namespace bitgrad::data
