// The nodes of an ONNX graph as they are made, and what stands in them for the values of a lowered model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bitgrad/nn/inference.h"
#include "bitgrad/train/export.h"
#include "io/onnx_file.h"

namespace bitgrad::onnx {

// A value of the model as the graph has it. Codes are numbers of INT8 or UINT8 (signs -1 and 1); images are [N,h,w,c]
// as ours, or [N,c,h,w] where an operator wants that.
struct Stand {
  std::string name = {};
  Type type = Type::kFloat;
  bool channels_first = false;
  // Of codes whose scales are found at run time: tensors of their scale and zero point (empty: none).
  std::string scale = {}, zero = {};
};

using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

class GraphBuilder {
 public:
  GraphBuilder(const inference::Graph& graph, const ExportSpec& spec, ExportReport& report);

  const inference::Graph& source() const { return source_; }
  bool qdq() const { return qdq_; }
  int opset() const { return opset_; }
  ExportReport& report() { return report_; }
  ModelFile& file() { return file_; }

  // Adds a node of one output and gives its name. `layer` and the operator name it.
  std::string add(const std::string& op, std::vector<std::string> inputs, Attributes attributes = {},
                  const std::string& domain = "");
  // Tensors that do not change; equal short ones are one.
  std::string numbers(const std::vector<float>& x, std::vector<int64_t> dims);
  std::string scalar(float x) { return numbers({x}, {}); }
  std::string integers(const std::vector<int64_t>& x, std::vector<int64_t> dims, Type type = Type::kInt64);
  std::string tensor(TensorValue value);  // under a name of its own
  // Numbers of each feature of a value as they broadcast against it; one number: a scalar.
  std::string per_feature(const std::vector<float>& x, const Stand& like);

  // Stands of values; those of one value in either order of axes are made once.
  const Stand& stand(inference::Value value) const { return stands_.at(value); }
  void set(inference::Value value, Stand stand) { stands_[value] = std::move(stand); }
  Stand channels_first(inference::Value value);
  Stand channels_last(inference::Value value);
  Stand in_order(inference::Value value, bool first) { return first ? channels_first(value) : channels_last(value); }
  std::string to_float(const std::string& name) {
    return add("Cast", {name}, {{"to", static_cast<int64_t>(Type::kFloat)}});
  }

  // What follows belongs to this layer.
  void begin(const inference::Node& node) { node_ = &node; }
  const std::string& layer() const { return node_->layer; }
  void note(std::string operation, ExportedTensor::Fate fate = ExportedTensor::Fate::kExact, double error = 0,
            std::string reason = {});
  void refuse(std::string operation, std::string reason) {
    note(std::move(operation), ExportedTensor::Fate::kRefused, 0, std::move(reason));
  }

 private:
  std::string unique(const std::string& name);
  const inference::Graph& source_;
  bool qdq_;
  int opset_;
  ExportReport& report_;
  ModelFile file_;
  const inference::Node* node_ = nullptr;
  std::map<inference::Value, Stand> stands_, turned_;
  std::map<std::string, int> names_;
  std::map<std::string, std::string> constants_;  // bytes and dims, to names
};

// The operations of nn/inference.h; each notes what becomes of it, and refuses what it cannot say.
Stand write_quantize(GraphBuilder& g, const inference::Node& node, const inference::Quantize& op);
Stand write_requantize(GraphBuilder& g, const inference::Node& node, const inference::Requantize& op);
Stand write_dequantize(GraphBuilder& g, const inference::Node& node);
Stand write_product(GraphBuilder& g, const inference::Node& node, const inference::Product& op);
Stand write_node(GraphBuilder& g, const inference::Node& node);

// Every node by `write`, then the file, unless something is refused or spec.dry_run.
ExportReport write_model(GraphBuilder& g, const ExportSource& source, const std::string& path, const ExportSpec& spec,
                         Stand (*write)(GraphBuilder&, const inference::Node&));

// The fp32 values of codes: those of `node` as the stand has them.
std::string values_of(GraphBuilder& g, const inference::Node& node, const Stand& codes);
// Type of an ONNX tensor of codes: INT8 or UINT8.
Type byte_type(DType dtype);

// A weight [o,k] as a constant: its codes in the smallest type of the opset, [k,o] of products, [o,c,h,w] of
// convolutions, and the report's line.
struct WeightCodes {
  std::string name = {};  // of INT8 or UINT8
  Type stored = Type::kInt8;
};
WeightCodes write_codes(GraphBuilder& g, const inference::Node& node, const inference::Product& op);
// Its values, fp32, in the same order: a constant, or codes that are dequantized. `note` gets the operators.
std::string write_values(GraphBuilder& g, const inference::Node& node, const inference::Product& op, std::string& note);
std::vector<int64_t> weight_dims(const inference::Product& op);

}  // namespace bitgrad::onnx
