// Types and values of GGUF files.
#include "bitgrad/io/gguf.h"

#include "bitgrad/base/error.h"
#include "io/gguf_format.h"

namespace bitgrad {
namespace {

using Type = GgufValue::Type;

size_t alternative_of(Type type) {
  if (type == Type::kText) return 2;
  return type == Type::kFloat32 || type == Type::kFloat64 ? 1 : 0;
}

}  // namespace

const std::vector<GgufTypeInfo>& gguf_types() {
  static const std::vector<GgufTypeInfo> types{
#define BITGRAD_GGUF_TYPE(symbol, id, elements, bytes) {#symbol, GgufType::k##symbol, elements, bytes},
#include "bitgrad/io/gguf_types.inc"
#undef BITGRAD_GGUF_TYPE
  };
  return types;
}

const GgufTypeInfo* find_gguf_type(uint32_t id) {
  for (const GgufTypeInfo& type : gguf_types())
    if (static_cast<uint32_t>(type.type) == id) return &type;
  return nullptr;
}

const GgufTypeInfo& gguf_type(GgufType type) {
  const GgufTypeInfo* const found = find_gguf_type(static_cast<uint32_t>(type));
  require(found != nullptr, "gguf", "got type ", static_cast<uint32_t>(type), ", which is none of the known ones.");
  return *found;
}

std::string_view type_name(Type type) {
  switch (type) {
    case Type::kUint8:
      return "uint8";
    case Type::kInt8:
      return "int8";
    case Type::kUint16:
      return "uint16";
    case Type::kInt16:
      return "int16";
    case Type::kUint32:
      return "uint32";
    case Type::kInt32:
      return "int32";
    case Type::kFloat32:
      return "float32";
    case Type::kBool:
      return "bool";
    case Type::kText:
      return "text";
    case Type::kUint64:
      return "uint64";
    case Type::kInt64:
      return "int64";
    case Type::kFloat64:
      return "float64";
  }
  return "?";
}

GgufValue::GgufValue(Type type, bool array, Data data) : type_(type), array_(array), data_(std::move(data)) {
  require(data_.index() == alternative_of(type), "gguf", "a value of type ", type_name(type),
          " was given data of another kind.");
  require(array || count() == 1, "gguf", "one value of type ", type_name(type), ": got ", count(), '.');
}

int64_t GgufValue::count() const {
  return std::visit([](const auto& values) { return static_cast<int64_t>(values.size()); }, data_);
}

std::string GgufValue::describe() const {
  return array_ ? concat("array of ", count(), ' ', type_name(type_)) : std::string(type_name(type_));
}

int64_t gguf::tensor_bytes(const GgufTypeInfo& type, const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (int64_t n : shape)
    if (n < 0 || __builtin_mul_overflow(elements, n, &elements) || elements > kMostElements) return -1;
  if (shape.empty() || shape.back() % type.block_elements != 0) return -1;
  return elements / type.block_elements * type.block_bytes;  // at most 8 bytes per element
}

}  // namespace bitgrad
