// Plans how a lowered model becomes C: how values are stored, which chains of layers become thresholds, and buffers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/inference.h"

namespace bitgrad::c_target {

enum class Held : uint8_t { kFloat, kInt32, kInt8, kUint8, kBits };  // kBits: signs, in rows of whole 32-bit words

// Codes of a product as a function of its sum: base + direction * (number of the channel's thresholds <= sum).
struct Thresholds {
  int64_t count = 0;             // per channel
  std::vector<int64_t> at = {};  // [channels, count], ascending; 2^31 - 1: never reached
  std::vector<int> base = {}, direction = {};
};

struct Place {
  Held held = Held::kFloat;
  bool made = true;      // false: inside a chain of thresholds, or the input
  int64_t elements = 0;  // of the buffer: values, or words
  int64_t offset = 0;    // in the pool of its type
};

struct Plan {
  std::vector<Place> places = {};           // per node
  std::vector<inference::Value> ends = {};  // per product: the quantizer that its thresholds replace, else -1
  std::vector<Thresholds> thresholds = {};  // of those products
  int64_t pool[5] = {};                     // elements per type
};

// own_input: the input has a buffer of its own, for floats made of bytes.
Plan make_plan(const inference::Graph& graph, bool own_input);
// The same model with quantizers before the max pools (and reshapes) that feed them: the largest of codes is the code
// of the largest value, and codes take less memory and may become thresholds of the product.
inference::Graph pooled_codes(const inference::Graph& graph);
int64_t bytes_of(Held held);

// Whether the product is summed in integers.
bool sums_integers(const inference::Graph& graph, const inference::Node& node, const inference::Product& op);
// fp32(sx * sw) per output, or a single one.
std::vector<float> output_scales(const inference::Node& in, const inference::Product& op);
// The code of x for feature j by the quantizer's rule, equal to that of the quantize kernel.
int64_t code_of(const inference::Quantize& op, float x, size_t j);
// Why C code for this quantizer is not supported; empty if it is.
std::string quantize_refusal(const inference::Quantize& op);

}  // namespace bitgrad::c_target
