// Types and values of GGUF files, and what a file that was read says by name.
#include "bitgrad/io/gguf.h"

#include <new>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "io/gguf_format.h"

namespace bitgrad {
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

std::string_view type_name(GgufValue::Type type) { return gguf::value_type(type).name; }

GgufValue::GgufValue(Type type, bool array, Data data) : type_(type), array_(array), data_(std::move(data)) {
  require(data_.index() == gguf::value_type(type).alternative, "gguf", "a value of type ", type_name(type),
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

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second].second;
}

const GgufValue& GgufFile::value(std::string_view key) const {
  const GgufValue* const found = find(key);
  if (found == nullptr) gguf::fail_gguf(path_, "the metadata have no key '", key, "'.");
  return *found;
}

void GgufFile::refuse(std::string_view key, const GgufValue& got, std::string_view expected) const {
  gguf::fail_gguf(path_, "key '", key, "': got ", got.describe(), ", expected ", expected, '.');
}

const std::string& GgufFile::text(std::string_view key) const {
  const GgufValue& v = value(key);
  if (v.is_array() || v.type() != GgufValue::Type::kText) refuse(key, v, "text");
  return std::get<GgufValue::Texts>(v.data())[0];
}

int64_t GgufFile::integer(std::string_view key) const {
  const GgufValue& v = value(key);
  const auto* const integers = std::get_if<GgufValue::Integers>(&v.data());
  if (v.is_array() || integers == nullptr || v.type() == GgufValue::Type::kBool) refuse(key, v, "an integer");
  if (v.type() == GgufValue::Type::kUint64 && (*integers)[0] < 0)
    gguf::fail_gguf(path_, "key '", key, "': got ", static_cast<uint64_t>((*integers)[0]),
                    ", expected at most 2^63 - 1.");
  return (*integers)[0];
}

double GgufFile::number(std::string_view key) const {
  const GgufValue& v = value(key);
  const auto* const floats = std::get_if<GgufValue::Floats>(&v.data());
  if (floats == nullptr) return static_cast<double>(integer(key));
  if (v.is_array()) refuse(key, v, "a number");
  return (*floats)[0];
}

bool GgufFile::boolean(std::string_view key) const {
  const GgufValue& v = value(key);
  if (v.is_array() || v.type() != GgufValue::Type::kBool) refuse(key, v, "a bool");
  return std::get<GgufValue::Integers>(v.data())[0] != 0;
}

const GgufValue::Texts& GgufFile::texts(std::string_view key) const {
  const GgufValue& v = value(key);
  if (!v.is_array() || v.type() != GgufValue::Type::kText) refuse(key, v, "an array of text");
  return std::get<GgufValue::Texts>(v.data());
}

const GgufEntry& GgufFile::entry(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) gguf::fail_gguf(path_, "no such tensor: '", name, "' in the file.");
  return entries_[found->second];
}

std::vector<uint8_t> GgufFile::data(std::string_view name) const {
  const GgufEntry& e = entry(name);
  std::vector<uint8_t> bytes;
  try {
    bytes.resize(static_cast<size_t>(e.bytes));
  } catch (const std::bad_alloc&) {
    fail_with(ErrorCode::kMemory, "gguf", "'", path_, "': no memory for the ", e.bytes, " bytes of tensor '", name,
              "'.");
  }
  const Part& part = parts_[e.part];
  if (part.input->read_at(part.data_begin + e.offset, bytes.data(), bytes.size()) != bytes.size())
    gguf::fail_gguf(path_, "the file became shorter while it was read.");
  return bytes;
}

}  // namespace bitgrad
