// A network of integers alone (nn/integer_graph.h) as C: one arena of bytes, int8 codes in and out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/interop/interop.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/quant/fixed_softmax.h"

namespace bitgrad::c_integer {

using inference::Graph;
using inference::Value;

// One call of the C file. `node` does the work; a product's codes are those of `stage`, and where the sum behind it is
// computed with them, those of `sum`.
struct Step {
  Value node = -1;
  Value stage = -1;                // Requantize of a product; -1: none
  Value sum = -1;                  // IntegerAdd that the product's output stage computes too; -1: none
  std::vector<Value> inputs = {};  // values of codes; of a fused sum the other operand is last
  Value result = -1;
  // Rows of the result, and of the first input, that are kept in a ring; 0: all. A step that keeps rows runs in turns
  // with the next one, which reads them.
  int64_t kept = 0, reads = 0;
};

// Where the codes of a value are.
struct Spot {
  enum class Where : uint8_t { kNone, kInput, kArena, kOutput } where = Where::kNone;
  int64_t offset = 0;  // in the arena
  int64_t bytes = 0;   // of the value, or of the rows that are kept of it
};

struct Plan {
  std::vector<Step> steps = {};
  std::vector<Spot> spots = {};    // per node of the graph
  int64_t arena = 0;               // bytes, a multiple of 4
  int64_t columns = 0;             // elements of the gathered pixels of the largest product, a multiple of 4
  std::vector<int64_t> live = {};  // bytes of the arena that each step needs
};

// Values that are never needed at once share bytes, results take the place of an operand where each code is read before
// it is written, and a convolution whose codes only a sum reads computes the sum. own_input, own_output: the codes of
// the input, and of the result, are in the arena, not where the caller has them.
// rings: values of which only the rows that the next window reads are kept (can_stream).
Plan make_plan(const Graph& graph, bool own_input = false, bool own_output = false,
               const std::vector<Value>& rings = {});

// c_integer_stream.cpp: plans with rings, and their text.
// The rows that a window reads: output row y those from y * stride - top on.
struct RowWindow {
  int64_t extent = 1, stride = 1, top = 0;
};
std::optional<RowWindow> row_window(const Graph& graph, const Step& step);
// Whether `makes` may run in turns with `reads`, the only reader of its result.
bool can_stream(const Graph& graph, const Step& makes, const Step& reads);
// The fewest rows to keep with which each row of the result of `reads` may be written over the input of `makes`: none
// that is read later is lost. Empty: as many as there are.
std::optional<int64_t> kept_in_place(const Graph& graph, const Step& makes, const Step& reads);
// The plan with the rings that make the arena smaller; without any if none does.
Plan make_stream_plan(const Graph& graph, bool own_input, bool own_output);
bool has_rings(const Plan& plan);
// What the report says of them.
std::string described_rings(const Graph& graph, const Plan& plan, int64_t arena_without);

// A call as the statement of a file: `head` up to the values, codes of `in` to `out`, what follows them, and of a sum
// the other operand.
struct Call {
  std::string head, in, out, more = {}, other = {};
};
std::string statement(const Graph& graph, const Plan& plan, const Step& step, const Call& call);
// Texts of loops, for files with rings or for others.
std::string in_rows(std::string text, bool rings);
std::string replaced(std::string text, std::string_view from, std::string_view to);

// What the caller has in the place of codes.
struct Doors {
  bool floats_in = false, floats_out = false;
  std::vector<int8_t> code_of_byte = {};  // [tables, 256]: inputs are bytes; empty: they are not
  inference::CodeScale codes_out = {};    // of the outputs

  bool bytes_in() const { return !code_of_byte.empty(); }
  bool own_input() const { return floats_in || bytes_in(); }  // codes of inputs are in the arena
  const char* in_type() const { return floats_in ? "float" : bytes_in() ? "uint8_t" : "int8_t"; }
  const char* out_type() const { return floats_out ? "float" : "int8_t"; }
  // Texts: functions that the others call, and statements of `codes`, an array.
  std::string functions() const;
  std::string read(const Graph& graph, const std::string& codes) const;
  std::string write(const Graph& graph, const std::string& codes) const;
};
// value_of_byte: of --with-normalization, the values of bytes, [tables, 256]; else empty.
Doors doors_of(const Graph& graph, const ExportSpec& spec, const std::vector<float>& value_of_byte);

// The softmax behind the outputs (--softmax).
struct Softmax {
  FixedSoftmax form = {};
  int64_t rows = 0, n = 0;  // of a sample; no rows: there is none
  // Texts: the function, and its call, which overwrites `codes`.
  std::string function() const;
  std::string call(const std::string& codes) const;
};
Softmax softmax_of(const Graph& graph, const ExportSpec& spec);

// Options of the texts below.
struct Texts {
  OutputRounding rule = OutputRounding::kDouble;
  bool left = false;  // multipliers with e > 0
  bool wide = false;  // sums of 2^30 and more
  bool bytes = false, nibbles = false, grouped = false, dense = false, add = false, multiply = false, max_pool = false,
       avg_pool = false, table = false, concat = false, fused = false;  // functions that the model calls
  int64_t depthwise_taps = 0;                                           // of the largest window; 0: none is called
  bool long_dims = false;                                               // dimensions above 2^15
  bool stream = false;                                                  // rings
  std::string prefix = {};
};
// The functions that a model calls.
std::string functions(const Texts& texts);

// Columns of a row of weights as they are stored, and of a window: a multiple of 8.
int64_t stored_columns(int64_t columns);
// Weights [rows, columns] in the order of the inner loops: words of four bytes, or of eight nibbles, of two rows in
// turns; zeros behind the columns and in the row that an odd number lacks.
std::vector<int8_t> ordered_bytes(const std::vector<int64_t>& codes, int64_t rows, int64_t columns);
std::vector<uint32_t> ordered_nibbles(const std::vector<int64_t>& codes, int64_t rows, int64_t columns);
// Whether a convolution is one of each channel by itself that `depthwise` computes; the function, for windows of at
// most so many pixels; and its weights, from [channels, taps].
bool is_depthwise(const inference::Product& op);
std::string depthwise_function(int64_t most_taps);
std::vector<int8_t> taps_first(const std::vector<int64_t>& codes, int64_t channels);
// A multiplier of rule float as m * 2^-e with m < 2^24, exactly.
FixedPoint float_parts(float factor);

// Writes `path` and its header, unless spec.dry_run. Throws Error that names what C cannot hold.
ExportReport write_c(const Graph& graph, const std::string& path, const ExportSpec& spec, ExportReport report,
                     const std::vector<float>& value_of_byte = {});

}  // namespace bitgrad::c_integer
