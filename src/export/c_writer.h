// Generates the C text of an exported model.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/error.h"
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
// Bound on the absolute value of a product's sum.
int64_t largest_sum(const inference::Node& in, const inference::Product& op);
// fp32(sx * sw) per output, or a single one.
std::vector<float> output_scales(const inference::Node& in, const inference::Product& op);
// The code of x for feature j by the quantizer's rule, equal to that of the quantize kernel.
int64_t code_of(const inference::Quantize& op, float x, size_t j);
// Why C code for this quantizer is not supported; empty if it is.
std::string quantize_refusal(const inference::Quantize& op);

// ---- C code of the loops that exported models call

// How weights of sums one by one are stored: INT8 and UINT8 arrays, or codes of `bits` bits in 32-bit words.
struct WeightForm {
  Held held = Held::kInt8;  // kFloat, kInt8, kUint8, kInt32: packed words
  int bits = 8;             // for kInt32
  enum class Code : uint8_t { kSigned, kUnsigned, kSign } code = Code::kSigned;
};

// Guards against contracted or wider arithmetic of floats.
std::string c_guards();
// Functions: the bits of a float, and its rounding to a code.
std::string c_bits_of();
std::string c_to_code();
// Everything before the functions: includes and guards.
std::string c_head(const std::string& header);
// Definitions of struct conv and, where they are read, the bits of a float and rounding.
std::string c_common(bool bits, bool rounds);
std::string type_of(Held held);  // "float", "int8_t", ...

class Writer {
 public:
  Writer(const inference::Graph& graph, Plan plan, std::string prefix, ExportReport& report);
  // comment: lines of the header on inputs and outputs. bytes: the value of each byte, [tables, 256], where inputs are
  // bytes; empty: they are floats.
  void describe_input(std::vector<std::string> comment, std::vector<float> bytes);
  // Writes all nodes, in order.
  void run();
  int64_t flash_bytes() const { return flash_bytes_; }
  // Of buffers beside those of the plan.
  int64_t scratch_bytes() const;
  // The source file, and its header.
  std::string source(const std::string& header_name) const;
  std::string header() const;

 private:
  using Node = inference::Node;
  using Value = inference::Value;
  using Fate = ExportedTensor::Fate;

  void write(const Node& node, const inference::Input&);
  void write(const Node& node, const inference::Quantize& op);
  void write(const Node& node, const inference::Requantize& op);
  void write(const Node& node, const inference::Dequantize& op);
  void write(const Node& node, const inference::Product& op);
  void write(const Node& node, const inference::Normalize& op);
  void write(const Node& node, const inference::Pointwise& op);
  void write(const Node& node, const inference::MaxPool& op);
  void write(const Node& node, const inference::AvgPool& op);
  void write(const Node& node, const inference::Shortcut& op);
  void write(const Node& node, const inference::Prelu& op);
  void write(const Node& node, const inference::Shift& op);
  void write(const Node& node, const inference::Reshape& op);
  void write(const Node& node, const inference::Join& op);
  void write(const Node& node, const inference::RowNorm& op);
  template <typename Operation>
  void write(const Node&, const Operation&) {
    refuse("layer", "C has no such layer. Use another format");
  }

  // A product and what follows its sums.
  void write_product(const Node& node, const inference::Product& op, bool integers);
  // Opens the loops over sums, one by one.
  void product_loop(const Node& node, const inference::Product& op, bool integers);
  WeightForm write_weight(const Node& node, const inference::Product& op);
  // The whole product if it is one with weights of signs and its result are signs; else returns false.
  bool signs_to_signs(const Node& node, const inference::Product& op);
  // Opens the loops over sums of signs times signs.
  void sums_of_signs(const Node& node, const inference::Product& op);
  void sign_weights(const Node& node, const inference::Product& op, const std::vector<bool>& inverted);
  void gathers_signs(const inference::Product& op);
  // The names of the C functions of a whole product with weights of signs, which are added.
  std::string signs_function(const Node& node, const inference::Product& op);
  std::string codes_function(const Node& node, const inference::Product& op);
  // Adds a C function once.
  void need(const std::string& name, const std::string& text);
  std::string scratch() const;
  void epilogue(const Node& node, const inference::Product& op, bool integers, const std::string& sum);
  void threshold_epilogue(Value product, const std::string& sum);
  void pool_signs(const Node& node, const inference::MaxPool& op);
  bool write_conv(const Node& node, const inference::Product& op);

  // C expressions for the buffer of a value and one of its elements, and a statement that stores an element.
  std::string buffer(Value v) const;
  std::string element(Value v, const std::string& index) const;  // not for kBits
  std::string load(Value v, const std::string& row, const std::string& column) const;
  std::string store(Value v, const std::string& row, const std::string& column, const std::string& code) const;
  Held held(Value v) const { return plan_.places[static_cast<size_t>(v)].held; }
  int64_t features(Value v) const { return graph_[v].form.features(); }
  int64_t numel(Value v) const { return graph_[v].form.sample.numel(); }
  Value own() const { return now_; }
  const char* input_type() const { return bytes_.empty() ? "float" : "uint8_t"; }

  // Writes constants: equal ones as a literal, others as an array with an index.
  std::string numbers(const std::string& name, const std::vector<float>& x, const std::string& index);
  template <typename T>
  void array(const std::string& type, const std::string& name, const std::vector<T>& x);
  void note(std::string operation, Fate fate = Fate::kExact, double error = 0, std::string reason = {});
  void refuse(std::string operation, std::string reason) {
    note(std::move(operation), Fate::kRefused, 0, std::move(reason));
  }
  // Opens a block with the indices p and j, and clears a result of bits.
  void begin_result(Value result);
  // A loop over all elements of the result, row p and feature j, that stores `value` behind the statements of `text`,
  // and the line of the report.
  void each(const Node& node, const std::string& text, const std::string& value, std::string operation);

  const inference::Graph& graph_;
  const Plan plan_;
  const std::string prefix_;
  ExportReport& report_;
  Value now_ = 0;
  TextWriter constants_, body_;
  std::set<std::string> functions_of_;
  std::vector<std::string> functions_;
  bool rounds_ = false;
  int64_t window_words_ = 0, table_words_ = 0;
  int64_t flash_bytes_ = 0;
  std::vector<std::string> comment_;
  std::vector<float> bytes_;
};

std::string c_number(float x);
// A text that nothing ends a comment in.
std::string c_comment(std::string_view text);
// The facts of a report as lines of a C comment, of at most 100 characters where words allow it.
std::vector<std::string> comment_lines(const ExportReport& report);

}  // namespace bitgrad::c_target
