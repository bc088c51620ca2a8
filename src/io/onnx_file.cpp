#include "io/onnx_file.h"

#include <cstring>
#include <string_view>

#include "bitgrad/base/error.h"
#include "io/protobuf.h"

namespace bitgrad::onnx {
namespace {

using Message = io::ProtoMessage;

Message message_of(const TensorValue& t) {
  Message m;
  for (const int64_t d : t.dims) m.integer(1, d);
  m.integer(2, static_cast<int64_t>(t.type));
  m.text(8, t.name);
  m.data(9, t.bytes);
  return m;
}

struct AttributeFields {
  Message& m;
  void operator()(int64_t x) const {
    m.integer(3, x);
    m.integer(20, 2);
  }
  void operator()(float x) const {
    m.number(2, x);
    m.integer(20, 1);
  }
  void operator()(const std::string& x) const {
    m.text(4, x);
    m.integer(20, 3);
  }
  void operator()(const std::vector<int64_t>& x) const {
    for (const int64_t each : x) m.integer(8, each);
    m.integer(20, 7);
  }
};

Message message_of(const NodeValue& n) {
  Message m;
  for (const std::string& input : n.inputs) m.text(1, input);
  for (const std::string& output : n.outputs) m.text(2, output);
  m.text(3, n.name);
  m.text(4, n.op);
  for (const auto& [name, value] : n.attributes) {
    Message a;
    a.text(1, name);
    std::visit(AttributeFields{a}, value);
    m.message(5, a);
  }
  if (!n.domain.empty()) m.text(7, n.domain);
  return m;
}

Message message_of(const ValueInfo& v) {
  Message shape;
  for (const int64_t d : v.dims) {
    Message dim;
    if (d < 0)
      dim.text(2, d == -1 ? "N" : "T");
    else
      dim.integer(1, d);
    shape.message(1, dim);
  }
  Message tensor, type, m;
  tensor.integer(1, static_cast<int64_t>(v.type));
  tensor.message(2, shape);
  type.message(1, tensor);
  m.text(1, v.name);
  m.message(2, type);
  return m;
}

Message message_of(const std::pair<std::string, std::string>& entry) {
  Message m;
  m.text(1, entry.first);
  m.text(2, entry.second);
  return m;
}

struct TypeRecord {
  Type type;
  std::string_view name;
  int bits, opset;
};
constexpr TypeRecord kTypes[] = {
    {Type::kFloat, "FLOAT", 32, 1},        {Type::kUint8, "UINT8", 8, 1},  {Type::kInt8, "INT8", 8, 1},
    {Type::kInt32, "INT32", 32, 1},        {Type::kInt64, "INT64", 64, 1}, {Type::kBool, "BOOL", 8, 1},
    {Type::kBfloat16, "BFLOAT16", 16, 13}, {Type::kUint4, "UINT4", 4, 21}, {Type::kInt4, "INT4", 4, 21},
    {Type::kUint2, "UINT2", 2, 25},        {Type::kInt2, "INT2", 2, 25}};

const TypeRecord& record_of(Type type) {
  for (const TypeRecord& record : kTypes)
    if (record.type == type) return record;
  fail_with(ErrorCode::kBug, "onnx", "no such type: ", static_cast<int>(type));
}

}  // namespace

std::string_view type_name(Type type) { return record_of(type).name; }
int type_bits(Type type) { return record_of(type).bits; }
int first_opset(Type type) { return record_of(type).opset; }

TensorValue tensor_of(std::string name, Type type, std::vector<int64_t> dims, const std::vector<int64_t>& numbers) {
  TensorValue out{std::move(name), type, std::move(dims), {}};
  const int bits = type_bits(type);
  out.bytes.assign((numbers.size() * static_cast<size_t>(bits) + 7) / 8, 0);
  const bool is_signed = type == Type::kInt8 || type == Type::kInt4 || type == Type::kInt2;
  const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0, high = low + (int64_t{1} << std::min(bits, 62)) - 1;
  for (size_t i = 0; i < numbers.size(); ++i) {
    ensure(bits > 8 || (numbers[i] >= low && numbers[i] <= high), "onnx", "the type holds the number");
    if (bits >= 8) {
      for (int b = 0; b < bits / 8; ++b)
        out.bytes[i * static_cast<size_t>(bits / 8) + static_cast<size_t>(b)] =
            static_cast<uint8_t>(static_cast<uint64_t>(numbers[i]) >> (8 * b));
    } else {
      const size_t bit = i * static_cast<size_t>(bits);
      const auto raw = static_cast<unsigned>(numbers[i]) & ((1U << bits) - 1U);
      out.bytes[bit / 8] = static_cast<uint8_t>(out.bytes[bit / 8] | raw << (bit % 8));
    }
  }
  return out;
}

TensorValue tensor_of(std::string name, std::vector<int64_t> dims, const std::vector<float>& numbers) {
  TensorValue out{std::move(name), Type::kFloat, std::move(dims), {}};
  out.bytes.resize(numbers.size() * 4);
  if (!numbers.empty()) std::memcpy(out.bytes.data(), numbers.data(), out.bytes.size());
  return out;
}

std::vector<uint8_t> encode(const ModelFile& model) {
  size_t bytes = 0;
  for (const TensorValue& t : model.initializers) bytes += t.bytes.size();
  require(bytes < (size_t{1} << 31) - (size_t{1} << 24), "onnx", "the weights have ", bytes,
          " bytes, and a file of Protocol Buffers holds less than 2 GiB. Quantize them to fewer bits.");
  Message graph;
  for (const NodeValue& n : model.nodes) graph.message(1, message_of(n));
  graph.text(2, model.graph_name);
  for (const TensorValue& t : model.initializers) graph.message(5, message_of(t));
  for (const ValueInfo& v : model.inputs) graph.message(11, message_of(v));
  for (const ValueInfo& v : model.outputs) graph.message(12, message_of(v));
  Message m;
  m.integer(1, model.ir_version);
  m.text(2, "bitgrad");
  m.message(7, graph);
  for (const auto& [domain, version] : model.opsets) {
    Message opset;
    if (!domain.empty()) opset.text(1, domain);
    opset.integer(2, version);
    m.message(8, opset);
  }
  for (const auto& entry : model.metadata) m.message(14, message_of(entry));
  return m.take();
}

}  // namespace bitgrad::onnx
