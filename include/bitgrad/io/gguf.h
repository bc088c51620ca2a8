// Reader and writer of GGUF, ggml's format of named tensors; version 3 (github.com/ggml-org/ggml, docs/gguf.md), little
// endian:
//   "GGUF" | u32 version | u64 tensors | u64 keys | keys with typed values | names, shapes, types, offsets | pad | data
// The data of each tensor begin at a multiple of `general.alignment` (32 by default).
//
// Tensor types and their block layouts: io/gguf_types.inc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

class InputFile;  // base/file.h

enum class GgufType : uint32_t {
#define BITGRAD_GGUF_TYPE(symbol, id, elements, bytes) k##symbol = id,
#include "bitgrad/io/gguf_types.inc"
#undef BITGRAD_GGUF_TYPE
};
struct GgufTypeInfo {
  std::string_view name = {};  // ggml's name: "Q4_0"
  GgufType type = GgufType::kF32;
  int64_t block_elements = 1, block_bytes = 4;
};
const GgufTypeInfo& gguf_type(GgufType type);
// Looks up a type by its id in files. Returns nullptr for an unknown id.
const GgufTypeInfo* find_gguf_type(uint32_t id);
const std::vector<GgufTypeInfo>& gguf_types();

// A metadata value: a scalar, or an array of one type. Arrays of arrays are not supported.
class GgufValue {
 public:
  enum class Type : uint32_t {  // ids of the format; id 9 (array) is represented by is_array()
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

  // Throws Error unless `data` holds the alternative of `type`, with exactly one element if it is no array.
  GgufValue(Type type, bool array, Data data);
  static GgufValue text(std::string value) { return {Type::kText, false, Texts{std::move(value)}}; }
  static GgufValue uint32(int64_t value) { return {Type::kUint32, false, Integers{value}}; }
  static GgufValue float32(double value) { return {Type::kFloat32, false, Floats{value}}; }
  static GgufValue boolean(bool value) { return {Type::kBool, false, Integers{value ? 1 : 0}}; }
  static GgufValue texts(Texts values) { return {Type::kText, true, std::move(values)}; }
  static GgufValue int32s(Integers values) { return {Type::kInt32, true, std::move(values)}; }

  Type type() const { return type_; }
  bool is_array() const { return array_; }
  const Data& data() const { return data_; }
  int64_t count() const;
  std::string describe() const;  // e.g. "uint32", "array of 50257 text"
  friend bool operator==(const GgufValue&, const GgufValue&) = default;

 private:
  Type type_;
  bool array_;
  Data data_;
};
std::string_view type_name(GgufValue::Type type);

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;  // in file order

// Directory entry of one tensor.
struct GgufEntry {
  std::string name = {};
  GgufType type = GgufType::kF32;
  std::vector<int64_t> shape = {};  // row-major, last axis fastest (the format stores the axes in reverse)
  int64_t offset = 0;               // from the start of the data section
  int64_t bytes = 0;
  size_t part = 0;  // of a split model: the file
};

// A parsed and fully validated header: every shape, type and offset fits the file. Tensor data are read on demand.
class GgufFile {
 public:
  // Reads the other files of a split model, too (key split.count; NAME-00001-of-00002.gguf): `path` is any of them, and
  // the metadata are those of the first. Throws Error(kData) that names the path, the problem and its location.
  static GgufFile read(const std::string& path);
  // The same from bytes in memory; `path` is used in errors only.
  static GgufFile parse(std::vector<uint8_t> bytes, const std::string& path);

  const std::string& path() const { return path_; }
  const GgufMetadata& metadata() const { return metadata_; }
  // Returns nullptr if there is no such key.
  const GgufValue* find(std::string_view key) const;
  // Typed access to a value. Throw Error(kData) that names the key if it is absent or has another type.
  const std::string& text(std::string_view key) const;
  int64_t integer(std::string_view key) const;  // any integer type; throws above 2^63 - 1
  double number(std::string_view key) const;    // any integer or float type
  bool boolean(std::string_view key) const;
  const GgufValue::Texts& texts(std::string_view key) const;  // an array of text

  // In file order.
  const std::vector<GgufEntry>& entries() const { return entries_; }
  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }
  // Both throw Error(kData) if there is no tensor of that name. data() returns the raw blocks, row after row.
  const GgufEntry& entry(std::string_view name) const;
  std::vector<uint8_t> data(std::string_view name) const;

 private:
  GgufFile() = default;
  static GgufFile read(std::shared_ptr<InputFile> input, const std::string& path);
  static GgufFile read_split(GgufFile given, int64_t count);
  const GgufValue& value(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, const GgufValue& got, std::string_view expected) const;

  std::string path_;
  struct Part {  // a file, and where its data begin
    std::shared_ptr<InputFile> input;
    int64_t data_begin = 0;
  };
  std::vector<Part> parts_;
  GgufMetadata metadata_;
  std::vector<GgufEntry> entries_;
  std::map<std::string, size_t, std::less<>> keys_, index_;  // index into metadata_ and entries_
};

// A tensor to write.
struct GgufItem {
  std::string name = {};
  GgufType type = GgufType::kF32;
  std::vector<int64_t> shape = {};  // row-major, 1 to 4 axes; the last is a multiple of the type's block
  std::vector<uint8_t> data = {};   // raw blocks, row after row
};

// Writes version 3 with alignment 32 through write_file_atomically. Throws Error(kUsage) before anything is written for
// a name or key that is duplicate, empty, not UTF-8 or too long (tensor names: 64 bytes, ggml's limit), for the key
// general.alignment, and for shapes or byte counts that do not match; file errors as in base/file.h.
void write_gguf(const std::string& path, const std::vector<GgufItem>& items, const GgufMetadata& metadata);

// ---- conversion between Tensor and the tensor types of GGUF files
//
// ggml stores fp16 scales per block. A tensor of codes keeps its codes; its scales become block scales. The result is
// exact if the scales are representable in fp16 and each covers whole blocks; otherwise they are rounded, which
// gguf_fit reports.

// How well a tensor can be stored as a given type.
struct GgufFit {
  enum class Kind : uint8_t { kExact, kRounded, kRefused };
  Kind kind = Kind::kExact;
  bool other_codes = false;  // kRefused because the type does not hold such codes
  double largest_error = 0;  // kRounded: largest relative error of a scale, offset or float
  std::string why = {};      // kRounded: what is rounded; kRefused: the reason
};

// value = s * q:              Q8_0 int2..int8; Q5_0 int2..int5; Q4_0 int2..int4; TQ1_0, TQ2_0 ternary;
//                             Q2_0 ternary, int2, int1; Q1_0 bint1 (value = s * +-1)
// value = s * q + m:          Q4_1 uint2..uint4, int1; Q5_1 uint2..uint5, int1; integer zero points too, as m = -s * z
// fp32, bf16, fp16, fp64:     F32, F16, BF16, F64
// int32, int64; int8 without scales: I32, I64; I8
// Everything else is refused, as are rows that do not fill whole blocks, scales that change within a block, and scales
// or offsets outside the range of fp16 (above 65504; below 2^-24 and not 0).
GgufFit gguf_fit(const Tensor& tensor, GgufType type);
// Converts a tensor of 1 to 4 axes from any device. Throws Error that names the tensor if gguf_fit refuses it.
GgufItem gguf_item(const std::string& name, const Tensor& tensor, GgufType type);

// Reads a tensor onto the current device (kind kBuffer). Floats and integers are loaded as such (I16 as int32). Q8_0
// becomes int8, Q5_0 int5, Q5_1 uint5, Q4_0 int4, Q4_1 uint4, TQ1_0 and TQ2_0 ternary, Q2_0 ternary (int2 if a block
// contains code 3) and Q1_0 bint1, each with scheme `fixed` and one scale (and offset) per block; Q2_K to Q6_K are
// dequantized to fp32. Throws Error(kData) for other types and for codes that a type does not define.
Tensor gguf_tensor(const GgufFile& file, std::string_view name);

}  // namespace bitgrad
