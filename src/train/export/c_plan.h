// How a lowered model becomes C: what its values are held in, which chains of layers become thresholds, and buffers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/nn/inference.h"
#include "bitgrad/train/interop.h"

namespace bitgrad::c_target {

enum class Held : uint8_t { kFloat, kInt32, kInt8, kUint8, kBits };  // bits: signs, rows of whole 32-bit words

// Codes of a product by its sum alone: base + direction * (how many of the channel's thresholds are at most the sum).
struct Thresholds {
  int64_t count = 0;             // for each channel
  std::vector<int64_t> at = {};  // [channels, count], ascending; 2^31 - 1: never
  std::vector<int> base = {}, direction = {};
};

struct Place {
  Held held = Held::kFloat;
  bool made = true;      // false: inside a chain of thresholds, or the input
  int64_t elements = 0;  // of the buffer: numbers, or words
  int64_t offset = 0;    // in the pool of its type
};

struct Plan {
  std::vector<Place> places = {};           // of each node
  std::vector<inference::Value> ends = {};  // of a product: the quantizer that its thresholds stand for; else -1
  std::vector<Thresholds> thresholds = {};  // of those products
  int64_t pool[5] = {};                     // elements of each type
};

Plan make_plan(const inference::Graph& graph);

// Whether the product sums integers.
bool sums_integers(const inference::Graph& graph, const inference::Node& node, const inference::Product& op);
// fp32(sx * sw) of each output, or one.
std::vector<float> output_scales(const inference::Node& in, const inference::Product& op);
// The code of x by the rule, for feature j, as the quantize kernel makes it.
int64_t code_of(const inference::Quantize& op, float x, size_t j);
// Why a quantizer has no such code in C; empty: it has.
std::string quantize_refusal(const inference::Quantize& op);

}  // namespace bitgrad::c_target
