#include <algorithm>
#include <limits>
#include <new>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "io/gguf_cursor.h"
#include "io/gguf_format.h"

namespace bitgrad {
namespace {

using namespace gguf;

constexpr const char* kSplitCount = "split.count";

GgufValue::Type value_type(Cursor& in, uint32_t id) {
  if (id == kArrayType || id > static_cast<uint32_t>(GgufValue::Type::kFloat64))
    in.wrong(id == kArrayType ? "an array of arrays, which is not supported."
                              : concat("got a value of type ", id, ", expected 0 .. 12."));
  return static_cast<GgufValue::Type>(id);
}

template <typename T>
void read_integers(Cursor& in, GgufValue::Integers& out) {
  for (int64_t& value : out) value = static_cast<int64_t>(in.number<T>());
}

GgufValue::Integers integers(Cursor& in, GgufValue::Type type, int64_t count) {
  using Type = GgufValue::Type;
  GgufValue::Integers out(static_cast<size_t>(count));
  switch (type) {
    case Type::kInt8:
      read_integers<int8_t>(in, out);
      break;
    case Type::kUint16:
      read_integers<uint16_t>(in, out);
      break;
    case Type::kInt16:
      read_integers<int16_t>(in, out);
      break;
    case Type::kUint32:
      read_integers<uint32_t>(in, out);
      break;
    case Type::kInt32:
      read_integers<int32_t>(in, out);
      break;
    case Type::kUint64:
      read_integers<uint64_t>(in, out);
      break;
    case Type::kInt64:
      read_integers<int64_t>(in, out);
      break;
    default:
      read_integers<uint8_t>(in, out);
      break;
  }
  if (type == Type::kBool)
    for (int64_t value : out)
      if (value > 1) in.wrong("got ", value, " as a bool, expected 0 or 1.");
  return out;
}

GgufValue read_value(Cursor& in) {
  using Type = GgufValue::Type;
  auto id = in.number<uint32_t>();
  const bool array = id == kArrayType;
  if (array) id = in.number<uint32_t>();
  const Type type = value_type(in, id);
  const int64_t count = array ? in.count("values", value_bytes(type)) : 1;
  if (type == Type::kText) {
    GgufValue::Texts texts;
    texts.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) texts.push_back(in.text());
    return {type, array, std::move(texts)};
  }
  if (type == Type::kFloat32 || type == Type::kFloat64) {
    GgufValue::Floats floats(static_cast<size_t>(count));
    for (double& value : floats)
      value = type == Type::kFloat32 ? static_cast<double>(in.number<float>()) : in.number<double>();
    return {type, array, std::move(floats)};
  }
  return {type, array, integers(in, type, count)};
}

GgufEntry read_entry(Cursor& in, int64_t alignment) {
  GgufEntry entry;
  in.begin("the list of tensors");
  entry.name = in.text();
  in.begin(concat("tensor '", entry.name, "'"));
  const auto axes = in.number<uint32_t>();
  if (axes == 0 || axes > kMostAxes) in.wrong("got ", axes, " axes, expected 1 to ", kMostAxes, '.');
  for (uint32_t i = 0; i < axes; ++i)
    entry.shape.insert(entry.shape.begin(), static_cast<int64_t>(in.number<uint64_t>()));
  const auto id = in.number<uint32_t>();
  const GgufTypeInfo* const type = find_gguf_type(id);
  if (type == nullptr) in.wrong("got type ", id, ", which is not a type of ggml that bitgrad knows.");
  entry.type = type->type;
  entry.bytes = tensor_bytes(*type, entry.shape);
  if (entry.bytes < 0)
    in.wrong("rows of ", entry.shape.back(), " elements do not fill blocks of ", type->block_elements, " (", type->name,
             "), or the shape is too large.");
  const auto offset = in.number<uint64_t>();
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
      static_cast<int64_t>(offset) % alignment != 0)
    in.wrong("its data begin at ", offset, ", expected a multiple of ", alignment, '.');
  entry.offset = static_cast<int64_t>(offset);
  return entry;
}

// Tensors must lie within the data section, without overlaps.
void check_places(const std::vector<GgufEntry>& entries, int64_t data_bytes, const std::string& path) {
  std::vector<const GgufEntry*> order;
  for (const GgufEntry& entry : entries) {
    if (entry.offset > data_bytes || entry.bytes > data_bytes - entry.offset)
      fail_gguf(path, "tensor '", entry.name, "': its ", entry.bytes, " bytes from ", entry.offset,
                " end after the data, which have ", data_bytes, " bytes. The file is damaged or was cut off.");
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const GgufEntry* a, const GgufEntry* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
  });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
      fail_gguf(path, "the data of tensors '", order[i - 1]->name, "' and '", order[i]->name, "' overlap.");
}

int64_t checked_alignment(const GgufValue* value, const std::string& path) {
  if (value == nullptr) return kAlignment;
  const int64_t n = value->type() == GgufValue::Type::kUint32 && !value->is_array()
                        ? std::get<GgufValue::Integers>(value->data())[0]
                        : 0;
  constexpr int64_t kLeast = 8, kMost = 1 << 20;
  if (n < kLeast || n > kMost || !std::has_single_bit(static_cast<uint64_t>(n)))
    fail_gguf(path, kAlignmentKey, ": expected a uint32, a power of 2 from ", kLeast, " to ", kMost, '.');
  return n;
}

}  // namespace

GgufFile GgufFile::read(const std::string& path) {
  GgufFile file = read(file_system().open_read(path), path);
  const int64_t count = file.find(kSplitCount) == nullptr ? 1 : file.integer(kSplitCount);
  return count <= 1 ? std::move(file) : read_split(std::move(file), count);
}

GgufFile GgufFile::read_split(GgufFile given, int64_t count) {
  constexpr int64_t kMostParts = 4096;
  const std::string path = given.path_;
  const int64_t own = given.integer("split.no");
  const auto ending = [count](int64_t part) {
    std::string number = std::to_string(part + 1), all = std::to_string(count);
    number.insert(0, 5 - std::min<size_t>(5, number.size()), '0');
    all.insert(0, 5 - std::min<size_t>(5, all.size()), '0');
    return concat('-', number, "-of-", all, ".gguf");
  };
  if (count > kMostParts || own < 0 || own >= count || !path.ends_with(ending(own)))
    fail_gguf(path, "it is file ", own + 1, " of the ", count, " files of a model, expected a name that ends in '",
              ending(own), "', and the others beside it. llama-gguf-split --merge joins them.");
  const std::string stem = path.substr(0, path.size() - ending(own).size());
  GgufFile all;
  for (int64_t part = 0; part < count; ++part) {
    const std::string other = stem + ending(part);
    if (part != own && !file_system().exists(other))
      fail_gguf(path, "it is file ", own + 1, " of the ", count, " files of a model, and '", other, "' is missing.");
    GgufFile file = part == own ? std::move(given) : read(file_system().open_read(other), other);
    if (file.find(kSplitCount) == nullptr || file.integer(kSplitCount) != count || file.integer("split.no") != part)
      fail_gguf(other, "it is not file ", part + 1, " of ", count, ", as its name says.");
    if (part == 0) {
      all.path_ = path;
      all.metadata_ = std::move(file.metadata_);
      all.keys_ = std::move(file.keys_);
    }
    all.parts_.push_back(std::move(file.parts_[0]));
    for (GgufEntry& entry : file.entries_) {
      entry.part = static_cast<size_t>(part);
      if (!all.index_.emplace(entry.name, all.entries_.size()).second)
        fail_gguf(other, "tensor '", entry.name, "' is in an earlier file of the model, too.");
      all.entries_.push_back(std::move(entry));
    }
  }
  return all;
}

GgufFile GgufFile::parse(std::vector<uint8_t> bytes, const std::string& path) {
  return read(memory_file(std::move(bytes)), path);
}

GgufFile GgufFile::read(std::shared_ptr<InputFile> input, const std::string& path) {
  Cursor in(*input, path);
  GgufFile file;
  file.path_ = path;
  const auto magic = in.number<uint32_t>(), version = in.number<uint32_t>();
  if (magic != kMagic) fail_gguf(path, "it does not begin with 'GGUF': not a GGUF file.");
  if (version < kOldestVersion || version > kVersion)
    fail_gguf(path, "version: got ", version, ", expected 2 or 3",
              (version & 0xFFFF) == 0 ? " (big-endian files are not read)." : ".");
  constexpr int64_t kLeastEntry = 24, kLeastKey = 13;
  in.begin("its head");
  const int64_t tensors = in.count("tensors", kLeastEntry), keys = in.count("keys", kLeastKey);
  for (int64_t i = 0; i < keys; ++i) {
    in.begin("the metadata");
    std::string key = in.text();
    in.begin(concat("key '", key, "'"));
    if (!file.keys_.emplace(key, file.metadata_.size()).second) in.wrong("it occurs twice.");
    GgufValue value = read_value(in);
    file.metadata_.emplace_back(std::move(key), std::move(value));
  }
  const int64_t alignment = checked_alignment(file.find(kAlignmentKey), path);
  for (int64_t i = 0; i < tensors; ++i) {
    file.entries_.push_back(read_entry(in, alignment));
    if (!file.index_.emplace(file.entries_.back().name, file.entries_.size() - 1).second)
      in.wrong("the name occurs twice.");
  }
  const int64_t data_begin = aligned(in.position(), alignment);
  check_places(file.entries_, std::max<int64_t>(0, input->size() - data_begin), path);
  file.parts_.push_back({std::move(input), data_begin});
  return file;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second].second;
}

const GgufValue& GgufFile::value(std::string_view key) const {
  const GgufValue* const found = find(key);
  if (found == nullptr) fail_gguf(path_, "the metadata have no key '", key, "'.");
  return *found;
}

const std::string& GgufFile::text(std::string_view key) const {
  const GgufValue& v = value(key);
  if (v.is_array() || v.type() != GgufValue::Type::kText)
    fail_gguf(path_, "key '", key, "': got ", v.describe(), ", expected text.");
  return std::get<GgufValue::Texts>(v.data())[0];
}

int64_t GgufFile::integer(std::string_view key) const {
  const GgufValue& v = value(key);
  const auto* const integers = std::get_if<GgufValue::Integers>(&v.data());
  if (v.is_array() || integers == nullptr || v.type() == GgufValue::Type::kBool)
    fail_gguf(path_, "key '", key, "': got ", v.describe(), ", expected an integer.");
  if (v.type() == GgufValue::Type::kUint64 && (*integers)[0] < 0)
    fail_gguf(path_, "key '", key, "': got ", static_cast<uint64_t>((*integers)[0]), ", expected at most 2^63 - 1.");
  return (*integers)[0];
}

double GgufFile::number(std::string_view key) const {
  const GgufValue& v = value(key);
  const auto* const floats = std::get_if<GgufValue::Floats>(&v.data());
  if (floats == nullptr) return static_cast<double>(integer(key));
  if (v.is_array()) fail_gguf(path_, "key '", key, "': got ", v.describe(), ", expected a number.");
  return (*floats)[0];
}

bool GgufFile::boolean(std::string_view key) const {
  const GgufValue& v = value(key);
  if (v.is_array() || v.type() != GgufValue::Type::kBool)
    fail_gguf(path_, "key '", key, "': got ", v.describe(), ", expected a bool.");
  return std::get<GgufValue::Integers>(v.data())[0] != 0;
}

const GgufValue::Texts& GgufFile::texts(std::string_view key) const {
  const GgufValue& v = value(key);
  if (!v.is_array() || v.type() != GgufValue::Type::kText)
    fail_gguf(path_, "key '", key, "': got ", v.describe(), ", expected an array of text.");
  return std::get<GgufValue::Texts>(v.data());
}

const GgufEntry& GgufFile::entry(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) fail_gguf(path_, "no such tensor: '", name, "' in the file.");
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
    fail_gguf(path_, "the file became shorter while it was read.");
  return bytes;
}

}  // namespace bitgrad
