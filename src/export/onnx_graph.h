// Builds the nodes of an ONNX graph, and tracks which tensors represent the values of a lowered model.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bitgrad/export/export.h"
#include "bitgrad/nn/inference.h"
#include "io/onnx_file.h"

namespace bitgrad::onnx {

// The tensor that represents a value of the model. Codes are INT8 or UINT8 (signs are -1 and 1). Images are [N,h,w,c]
// as in bitgrad, or [N,c,h,w] where an operator needs that.
struct OnnxValue {
  std::string name = {};
  Type type = Type::kFloat;
  bool channels_first = false;
  // For codes with scales computed at run time: tensors of their scale and zero point (empty: none).
  std::string scale = {}, zero = {};
  bool scale_of_rows = false;  // one scale per row; false: a scalar
};

// The opset that needs ONNX Runtime 1.23, which has a Cast of INT4 and MatMulNBits of 8 bits.
constexpr int kFirstOpsetOfCast = 23;
// The opset that needs ONNX Runtime 1.24, which has a ConvInteger of INT8; before, both sides are UINT8.
constexpr int kFirstOpsetOfInt8Conv = 24;
constexpr int64_t kShift = 128;

using NodeAttributes = std::vector<std::pair<std::string, AttributeValue>>;

class GraphBuilder {
 public:
  GraphBuilder(const inference::Graph& graph, const ExportSpec& spec, ExportReport& report);

  const inference::Graph& source() const { return source_; }
  bool qdq() const { return qdq_; }
  int opset() const { return opset_; }
  ExportReport& report() { return report_; }
  ModelFile& file() { return file_; }

  // Adds a node with one output and returns its name, made of the layer and the operator.
  std::string add(const std::string& op, std::vector<std::string> inputs, NodeAttributes attributes = {},
                  const std::string& domain = "");
  // Constant tensors; short ones are shared if equal.
  std::string numbers(const std::vector<float>& x, std::vector<int64_t> dims);
  std::string scalar(float x) { return numbers({x}, {}); }
  std::string integers(const std::vector<int64_t>& x, std::vector<int64_t> dims, Type type = Type::kInt64);
  std::string tensor(TensorValue value);  // not shared, under its own name
  // The tensor that `make` adds where this key is asked for first.
  std::string once(const std::string& key, const std::function<std::string()>& make);
  bool added(const std::string& key) const { return constants_.contains(key); }
  // The number of positions of a sequence [N,T,features], as INT64 [1].
  std::string positions(inference::Value sequence);
  // Values per feature, shaped to broadcast against `like`; a single one becomes a scalar.
  std::string per_feature(const std::vector<float>& x, const OnnxValue& like);

  // The tensor of a value. Each value is converted to the other order of axes at most once.
  const OnnxValue& stand(inference::Value value) const { return stands_.at(value); }
  void set(inference::Value value, OnnxValue stand) { stands_[value] = std::move(stand); }
  OnnxValue in_order(inference::Value value, bool first);
  OnnxValue channels_first(inference::Value value) { return in_order(value, true); }
  OnnxValue channels_last(inference::Value value) { return in_order(value, false); }
  std::string cast(const std::string& name, Type to) { return add("Cast", {name}, {{"to", static_cast<int64_t>(to)}}); }
  std::string to_float(const std::string& name) { return cast(name, Type::kFloat); }

  // Nodes added from now on belong to this layer.
  void begin(const inference::Node& node) { node_ = &node; }
  const std::string& layer() const { return node_->layer; }
  void note(std::string operation, ExportedTensor::Fate fate = ExportedTensor::Fate::kExact, double error = 0,
            std::string reason = {});
  // Codes that are ours for equal numbers; says where an earlier layer rounds these otherwise. step: the largest scale.
  void note_codes(std::string operation, const std::vector<float>& steps = {});
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
  std::map<inference::Value, OnnxValue> stands_, nchw_;
  std::map<std::string, int> names_;
  std::map<std::string, std::string> constants_;  // maps bytes and dims to names
};

// Write the operations of nn/inference.h. Each notes its result in the report, or refuses what it cannot express.
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::Quantize& op);
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::Requantize& op);
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::Dequantize& op);
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::Product& op);
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::Embedding& op);
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::Positions& op);
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::QkNorm& op);
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::Rope& op);
OnnxValue write(GraphBuilder& g, const inference::Node& node, const inference::Attention& op);
// Finds the one of the node's operation.
OnnxValue write_node(GraphBuilder& g, const inference::Node& node);

// Whether sequences of ids may have any length: no operation but attention mixes positions.
bool any_length(const inference::Graph& graph);
// Writes every node by `write`, then the file, unless something was refused or spec.dry_run is set.
ExportReport write_model(GraphBuilder& g, const ExportSource& source, const std::string& path, const ExportSpec& spec,
                         OnnxValue (*write)(GraphBuilder&, const inference::Node&));

// The levels that codes of a codebook name.
std::string levels_of(GraphBuilder& g, DType dtype, const std::string& codes);
// The fp32 values of the codes of `node`, which `codes` represents.
std::string values_of(GraphBuilder& g, const inference::Node& node, const OnnxValue& codes);
// The convolution of floats; outside: the value of pixels outside the image.
std::string write_conv(GraphBuilder& g, const std::string& x, const std::string& w, const Conv2dOptions& options,
                       float outside);
NodeAttributes conv_attributes(const Conv2dOptions& options, bool padded = false);  // padded: its input already is
NodeAttributes pool_attributes(const PoolOptions& options);
bool power_of_two(float x);
// Type of an ONNX tensor of codes: INT8 or UINT8.
Type byte_type(DType dtype);

// Writes a weight [o,k] as a constant, and its line of the report: codes in the smallest type of the opset, [k,o] for
// products, [o,c,h,w] for convolutions.
struct WeightCodes {
  std::string name = {};  // the codes as INT8 or UINT8
  Type stored = Type::kInt8;
};
// `shifted`: as UINT8, each code plus 128.
WeightCodes write_codes(GraphBuilder& g, const inference::Product& op, bool shifted);
// Writes its fp32 values in the same order: a constant, or dequantized codes. Sets `note` to the operators. `apart`:
// not as DequantizeLinear followed at once by the product, which ONNX Runtime would compute with inputs rounded to 8
// bits.
std::string write_values(GraphBuilder& g, const inference::Product& op, bool apart, std::string& note);
// Writes the values of a table [o,k] in this order. fp32 tables are shared with the product that has the same tensor.
std::string write_table(GraphBuilder& g, const Tensor& table, std::string& note);
// Whether write_values keeps the rows [o, k] of a weight of a product, for Gemm with transB.
bool keeps_rows(const GraphBuilder& g, const inference::Product& op, bool apart);
std::vector<int64_t> weight_dims(const inference::Product& op);

}  // namespace bitgrad::onnx
