// Files of named tensors in the GGUF format of ggml, version 3 (github.com/ggml-org/ggml, docs/gguf.md), little endian:
//   "GGUF" | u32 version | u64 tensors | u64 keys | keys with typed values | names, shapes, types, offsets | pad | data
// A tensor's data begin at a multiple of `general.alignment` (32 unless the file says otherwise).
//
// Types of tensors and the layout of their blocks: io/gguf_types.inc. Tensors in and out: io/gguf_tensors.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace bitgrad {

class InputFile;  // base/file.h

enum class GgufType : uint32_t {
#define BITGRAD_GGUF_TYPE(symbol, id, elements, bytes) k##symbol = id,
#include "bitgrad/io/gguf_types.inc"
#undef BITGRAD_GGUF_TYPE
};
struct GgufTypeInfo {
  std::string_view name = {};  // as ggml's: "Q4_0"
  GgufType type = GgufType::kF32;
  int64_t block_elements = 1, block_bytes = 4;
};
const GgufTypeInfo& gguf_type(GgufType type);
// By the number in a file; nullptr: none that is known.
const GgufTypeInfo* find_gguf_type(uint32_t id);
const std::vector<GgufTypeInfo>& gguf_types();

// A value of the metadata: one, or an array of one type. Arrays of arrays are not supported.
class GgufValue {
 public:
  enum class Type : uint32_t {  // ids of the format; 9, array, is none of its own here
    kUint8 = 0,
    kInt8 = 1,
    kUint16 = 2,
    kInt16 = 3,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kText = 8,
    kUint64 = 10,
    kInt64 = 11,
    kFloat64 = 12,
  };
  using Integers = std::vector<int64_t>;  // all integer types and bool; uint64 modulo 2^64
  using Floats = std::vector<double>;
  using Texts = std::vector<std::string>;
  using Data = std::variant<Integers, Floats, Texts>;

  // The alternative of `data` must be that of the type, with one element unless it is an array: else Error.
  GgufValue(Type type, bool array, Data data);
  static GgufValue text(std::string value) { return {Type::kText, false, Texts{std::move(value)}}; }
  static GgufValue uint32(int64_t value) { return {Type::kUint32, false, Integers{value}}; }
  static GgufValue float32(double value) { return {Type::kFloat32, false, Floats{value}}; }
  static GgufValue boolean(bool value) { return {Type::kBool, false, Integers{value ? 1 : 0}}; }
  static GgufValue texts(Texts values) { return {Type::kText, true, std::move(values)}; }
  static GgufValue int32s(Integers values) { return {Type::kInt32, true, std::move(values)}; }
  static GgufValue float32s(Floats values) { return {Type::kFloat32, true, std::move(values)}; }

  Type type() const { return type_; }
  bool is_array() const { return array_; }
  const Data& data() const { return data_; }
  int64_t count() const;
  std::string describe() const;  // "uint32", "array of 50257 text"
  friend bool operator==(const GgufValue&, const GgufValue&) = default;

 private:
  Type type_;
  bool array_;
  Data data_;
};
std::string_view type_name(GgufValue::Type type);

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;  // in the order of the file

// One tensor of a file.
struct GgufEntry {
  std::string name = {};
  GgufType type = GgufType::kF32;
  std::vector<int64_t> shape = {};  // row-major: the last axis is the fastest (the format lists it first)
  int64_t offset = 0;               // from the start of the data
  int64_t bytes = 0;
};

// The head of a file, wholly checked: every shape, type and place in it fits the file. Data are read on demand.
class GgufFile {
 public:
  // Throws Error(kData) that names the path, what is wrong and where.
  static GgufFile read(const std::string& path);
  // The same of bytes; `path` is only for errors.
  static GgufFile parse(std::vector<uint8_t> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  const GgufMetadata& metadata() const { return metadata_; }
  // nullptr: the file has no such key.
  const GgufValue* find(std::string_view key) const;
  // Of one value of the type. Throw Error(kData) that names the key where it is absent or something else.
  const std::string& text(std::string_view key) const;
  int64_t integer(std::string_view key) const;  // of any integer type; above 2^63 - 1: Error
  double number(std::string_view key) const;    // of any integer or float type
  bool boolean(std::string_view key) const;
  const GgufValue::Texts& texts(std::string_view key) const;  // an array

  // In the order of the file.
  const std::vector<GgufEntry>& entries() const { return entries_; }
  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }
  // Both throw Error(kData) for an absent name.
  const GgufEntry& entry(std::string_view name) const;
  std::vector<uint8_t> data(std::string_view name) const;

 private:
  GgufFile() = default;
  static GgufFile read(std::shared_ptr<InputFile> input, const std::string& path);
  const GgufValue& value(std::string_view key) const;

  std::string path_;
  std::shared_ptr<InputFile> input_;
  int64_t data_begin_ = 0;
  GgufMetadata metadata_;
  std::vector<GgufEntry> entries_;
  std::map<std::string, size_t, std::less<>> keys_, index_;  // of metadata_, of entries_
};

// A tensor to be written.
struct GgufItem {
  std::string name = {};
  GgufType type = GgufType::kF32;
  std::vector<int64_t> shape = {};  // row-major, 1 to 4 axes; the last a multiple of the type's block
  std::vector<uint8_t> data = {};   // blocks, row after row
};

// Writes version 3 with alignment 32 through write_file_atomically. Throws Error(kUsage) before anything is written for
// a name or key that stands twice, is empty, not UTF-8 or too long (64 bytes for tensors, ggml's limit), the key
// general.alignment, and shapes or numbers of bytes that do not fit; file errors as base/file.h says.
void write_gguf(const std::string& path, const std::vector<GgufItem>& items, const GgufMetadata& metadata);

}  // namespace bitgrad
