// Generates the C text of an exported model.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/error.h"
#include "export/c_kernels.h"
#include "export/c_plan.h"

namespace bitgrad::c_target {

class Writer {
 public:
  Writer(const inference::Graph& graph, Plan plan, std::string prefix, ExportReport& report);
  // comment: lines of the header on inputs and outputs. bytes: the value of each byte, [tables, 256], where inputs are
  // bytes; empty: they are floats.
  void describe_input(std::vector<std::string> comment, std::vector<float> bytes);
  // Writes all nodes, in order.
  void run();
  int64_t flash_bytes() const { return flash_bytes_; }
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

  void product_loop(const Node& node, const inference::Product& op, bool integers);
  WeightForm write_weight(const Node& node, const inference::Product& op, bool integers);
  void epilogue(const Node& node, const inference::Product& op, bool integers, const std::string& sum);
  void threshold_epilogue(Value product, const std::string& sum);
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
  // A loop over all elements of the result: row p, feature j.
  void each(const Node& node, const std::string& text);

  const inference::Graph& graph_;
  const Plan plan_;
  const std::string prefix_;
  ExportReport& report_;
  Value now_ = 0;
  TextWriter constants_, body_;
  std::set<std::string> dot_names_;
  std::vector<std::string> functions_;
  bool popcount_ = false, rounds_ = false;
  int64_t flash_bytes_ = 0;
  std::vector<std::string> comment_;
  std::vector<float> bytes_;
};

std::string c_number(float x);
// A text that nothing ends a comment in.
std::string c_comment(std::string_view text);

}  // namespace bitgrad::c_target
