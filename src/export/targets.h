// The functions of targets.inc, and what they share: facts about inputs, codes of weights in other orders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/export/export.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/ops/spatial.h"
#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

// They run with the CPU as device, after ExportTarget::write has checked the options.
#define BITGRAD_EXPORT(name, ending, companion, holds, options, carries, function, doc) \
  ExportReport function(const ExportSource& source, const std::string& path, const ExportSpec& spec);
#include "export/targets.inc"
#undef BITGRAD_EXPORT

// By key: bitgrad.input.layout, bitgrad.input.scaling (a formula of x, a number of the data); only if known, as JSON:
// bitgrad.class_names, and of a table bitgrad.input.features, .missing, .names.
std::vector<std::pair<std::string, std::string>> input_metadata(const ExportSource& source, const ExportSpec& spec,
                                                                const inference::Graph& graph);
// The same as facts of a report: "input", "features", "missing", "names" and "classes".
void note_inputs(ExportReport& report, const ExportSource& source, const ExportSpec& spec,
                 const inference::Graph& graph);

// Of a network of integers (nn/integer_graph.h): what the codes of its inputs and outputs stand for.
void note_codes(ExportReport& report, const inference::Graph& graph, const ExportSpec& spec);
// Of a network of integers: what the codes mean that the file gives. Throws Error for a softmax of too many.
inference::CodeScale output_scale(const inference::Graph& graph, const ExportSpec& spec);

// Codes of a weight [o, k], row by row; of a codebook its indices.
std::vector<int64_t> codes_of(const Tensor& weight);
// Scales etc. of a weight as [rows, cols]: a single one, one per row of the weight, or one per group along rows.
struct Blocks {
  std::vector<float> scale = {}, offset = {};
  std::vector<int64_t> zero = {};
  int64_t rows = 1, cols = 1, block = 1;  // shape of the scales; elements of a row that share one
};
Blocks blocks_of(const Tensor& weight);
// Whether the codes are integers or signs, which products of integers multiply.
bool are_integers(DType dtype);
// From [o, k] with k = taps, channels to the order of other programs: [o, channels, taps] for convolutions, else
// [k, o].
template <typename T>
std::vector<T> reordered(const std::vector<T>& x, int64_t o, int64_t k, const std::optional<Conv2dOptions>& conv) {
  std::vector<T> out(x.size());
  const int64_t taps = conv ? conv->kernel[0] * conv->kernel[1] : 1, c = k / taps;
  for (int64_t r = 0; r < o; ++r)
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t i = 0; i < c; ++i) {
        const int64_t from = r * k + t * c + i, to = conv ? (r * c + i) * taps + t : (t * c + i) * o + r;
        out[static_cast<size_t>(to)] = x[static_cast<size_t>(from)];
      }
  return out;
}

}  // namespace bitgrad
