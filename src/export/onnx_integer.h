// Networks of integers (nn/integer_graph.h) as ONNX files. Codes are UINT8, each code plus 128: ONNX Runtime for x86
// rewrites INT8 codes to these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "export/onnx_graph.h"

namespace bitgrad::onnx {

// Writes a node of an integer graph. A product is written with its output stage. Form integer: operators that compute
// the model's codes in any session. Form qdq: float operators between DequantizeLinear and QuantizeLinear, which
// ONNX Runtime computes in integers, by roundings of its own; those are rounded in the report.
OnnxValue write_integer_node(GraphBuilder& g, const inference::Node& node);
// Says in the report in which sessions the codes are equal.
void note_rounding(ExportReport& report, OutputRounding rule, bool qdq);

// The output stage of rules other than float, in INT64 operators. sums: INT64 [n, c, ..]; multipliers: one, or one for
// each c of images [n, c, h, w]. Returns INT64, not clamped.
std::string requantized(GraphBuilder& g, std::string sums, const std::vector<FixedPoint>& multipliers,
                        OutputRounding rule);
// A number for each c of [n, c, h, w], or one for all.
std::string per_channel(GraphBuilder& g, std::vector<int64_t> x, Type type);
// clamp(x + zero, lo, hi) of INT32 or INT64 x, as codes.
std::string codes_of_integers(GraphBuilder& g, const std::string& x, int64_t zero, int64_t lo, int64_t hi, Type type);

}  // namespace bitgrad::onnx
