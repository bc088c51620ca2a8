// ONNX model files, written without a library: the messages of onnx.proto (github.com/onnx/onnx) that a model of
// tensors needs, in the wire format of Protocol Buffers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace bitgrad::onnx {

// TensorProto.DataType.
enum class Type : int32_t {
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kBfloat16 = 16,
  kUint4 = 21,
  kInt4 = 22,
  kUint2 = 25,
  kInt2 = 26,
};
std::string_view type_name(Type type);  // e.g. "INT4"
int type_bits(Type type);
// The first opset whose operators accept the type.
int first_opset(Type type);

struct TensorValue {
  std::string name = {};
  Type type = Type::kFloat;
  std::vector<int64_t> dims = {};
  std::vector<uint8_t> bytes = {};  // little endian; below 8 bits: packed over the whole tensor, low bits first
};
using AttributeValue = std::variant<int64_t, float, std::string, std::vector<int64_t>>;
struct NodeValue {
  std::string op = {}, domain = {}, name = {};
  std::vector<std::string> inputs = {}, outputs = {};
  std::vector<std::pair<std::string, AttributeValue>> attributes = {};
};
struct ValueInfo {
  std::string name = {};
  Type type = Type::kFloat;
  std::vector<int64_t> dims = {};  // -1: the batch axis, -2: positions, each of any size
};
struct ModelFile {
  int64_t ir_version = 10;
  std::vector<std::pair<std::string, int64_t>> opsets = {};  // version by domain; "": ONNX's own operators
  std::string graph_name = {};
  std::vector<NodeValue> nodes = {};
  std::vector<TensorValue> initializers = {};
  std::vector<ValueInfo> inputs = {}, outputs = {};
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

// A tensor of these values. Throws Error (bug) if a value is not representable in the type.
TensorValue tensor_of(std::string name, Type type, std::vector<int64_t> dims, const std::vector<int64_t>& numbers);
TensorValue tensor_of(std::string name, std::vector<int64_t> dims, const std::vector<float>& numbers);

// The bytes of the file. Throws Error at 2 GiB and above, the limit of Protocol Buffers.
std::vector<uint8_t> encode(const ModelFile& model);

}  // namespace bitgrad::onnx
