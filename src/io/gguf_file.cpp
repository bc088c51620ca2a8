#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "io/gguf_format.h"

namespace bitgrad {
namespace {

using namespace gguf;

// Reads a file front to back. Checks every count against the rest of the file before allocating memory.
class Cursor {
 public:
  Cursor(InputFile& input, const std::string& path) : input_(input), path_(path), size_(input.size()) {}

  int64_t position() const { return position_; }
  int64_t rest() const { return size_ - position_; }
  void begin(std::string what) { what_ = std::move(what); }

  void bytes(void* to, int64_t count) {
    if (count > rest()) ends();
    auto* out = static_cast<uint8_t*>(to);
    while (count > 0) {
      if (position_ < buffer_begin_ || position_ >= buffer_begin_ + static_cast<int64_t>(buffer_.size())) refill();
      const int64_t at = position_ - buffer_begin_;
      const int64_t part = std::min(count, static_cast<int64_t>(buffer_.size()) - at);
      std::memcpy(out, buffer_.data() + at, static_cast<size_t>(part));
      out += part;
      position_ += part;
      count -= part;
    }
  }
  template <typename T>
  T number() {
    T value;
    bytes(&value, sizeof value);
    return value;
  }
  // Reads a count of items that take at least `least_bytes` each.
  int64_t count(std::string_view of, int64_t least_bytes) {
    const auto n = number<uint64_t>();
    if (n > static_cast<uint64_t>(rest() / least_bytes))
      fail_gguf(path_, what_, ": got ", n, ' ', of, ", more than the rest of the file holds (", rest(), " bytes).");
    return static_cast<int64_t>(n);
  }
  std::string text() {
    std::string value(static_cast<size_t>(count("bytes of text", 1)), '\0');
    bytes(value.data(), static_cast<int64_t>(value.size()));
    return value;
  }
  template <typename... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail_gguf(path_, what_, ": ", parts...);
  }

 private:
  [[noreturn]] void ends() const { fail_gguf(path_, "the file ends inside ", what_, ": it has ", size_, " bytes."); }
  void refill() {
    constexpr int64_t kBuffer = 1 << 16;
    buffer_.resize(static_cast<size_t>(std::min(kBuffer, rest())));
    buffer_.resize(input_.read_at(position_, buffer_.data(), buffer_.size()));
    buffer_begin_ = position_;
    if (buffer_.empty()) fail_gguf(path_, "the file became shorter while it was read.");
  }

  InputFile& input_;
  const std::string& path_;
  int64_t size_, position_ = 0, buffer_begin_ = 0;
  std::vector<uint8_t> buffer_;
  std::string what_ = "its first bytes";
};

constexpr const char* kSplitCount = "split.count";

GgufValue::Type read_type(Cursor& in, uint32_t id) {
  if (id == kArrayType || id > static_cast<uint32_t>(GgufValue::Type::kFloat64))
    in.wrong(id == kArrayType ? "an array of arrays, which is not supported."
                              : concat("got a value of type ", id, ", expected 0 .. 12."));
  return static_cast<GgufValue::Type>(id);
}

GgufValue::Integers integers(Cursor& in, GgufValue::Type type, int64_t count) {
  const auto [name, bytes, is_signed, alternative] = value_type(type);
  GgufValue::Integers out(static_cast<size_t>(count));
  for (int64_t& value : out) {
    in.bytes(&value, bytes);
    const int64_t above = 64 - 8 * bytes;
    if (is_signed) value = value << above >> above;
    if (type == GgufValue::Type::kBool && value > 1) in.wrong("got ", value, " as a bool, expected 0 or 1.");
  }
  return out;
}

GgufValue read_value(Cursor& in) {
  using Type = GgufValue::Type;
  auto id = in.number<uint32_t>();
  const bool array = id == kArrayType;
  if (array) id = in.number<uint32_t>();
  const Type type = read_type(in, id);
  const int64_t count = array ? in.count("values", value_type(type).bytes) : 1;
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

// Writing.

namespace {

constexpr std::string_view kWriteGguf = "write_gguf";

bool is_utf8_text(std::string_view text) {
  try {
    static_cast<void>(Json(text).dump());
    return true;
  } catch (const JsonError&) {
    return false;
  }
}

void check_gguf_items(const std::vector<GgufItem>& items) {
  std::set<std::string_view> names;
  for (const GgufItem& item : items) {
    require(!item.name.empty() && is_utf8_text(item.name) && item.name.size() <= kMostNameBytes, kWriteGguf, "tensor '",
            item.name, "': expected a name of 1 to ", kMostNameBytes, " bytes of UTF-8.");
    require(names.insert(item.name).second, kWriteGguf, "two tensors are named '", item.name, "'.");
    const GgufTypeInfo& type = gguf_type(item.type);
    require(!item.shape.empty() && item.shape.size() <= kMostAxes, kWriteGguf, "tensor '", item.name, "': got ",
            item.shape.size(), " axes, expected 1 to ", kMostAxes, '.');
    const int64_t bytes = tensor_bytes(type, item.shape);
    require(bytes >= 0, kWriteGguf, "tensor '", item.name, "': rows of ", item.shape.back(),
            " elements do not fill blocks of ", type.block_elements, " (", type.name,
            "), or the shape is negative or too large.");
    require(bytes == static_cast<int64_t>(item.data.size()), kWriteGguf, "tensor '", item.name, "': got ",
            item.data.size(), " bytes, type and shape need ", bytes, '.');
  }
}

void check_gguf_metadata(const GgufMetadata& metadata) {
  std::set<std::string_view> keys;
  for (const auto& [key, value] : metadata) {
    require(!key.empty() && is_utf8_text(key) && key.size() <= kMostKeyBytes, kWriteGguf, "key '", key,
            "': expected 1 to ", kMostKeyBytes, " bytes of UTF-8.");
    require(key != kAlignmentKey, kWriteGguf, "the key ", kAlignmentKey, " is written by the library itself.");
    require(keys.insert(key).second, kWriteGguf, "the key '", key, "' occurs twice.");
  }
}

// Everything before the tensor data.
class Head {
 public:
  template <typename T>
  void number(T value) {
    const auto* const bytes = reinterpret_cast<const char*>(&value);
    text_.append(bytes, sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    text_ += value;
  }

  void value(const GgufValue& value) {
    if (value.is_array()) {
      number(kArrayType);
      number(static_cast<uint32_t>(value.type()));
      number(static_cast<uint64_t>(value.count()));
    } else {
      number(static_cast<uint32_t>(value.type()));
    }
    if (const auto* const texts = std::get_if<GgufValue::Texts>(&value.data())) {
      for (const std::string& t : *texts) text(t);
    } else if (const auto* const floats = std::get_if<GgufValue::Floats>(&value.data())) {
      for (double x : *floats)
        if (value.type() == GgufValue::Type::kFloat32)
          number(static_cast<float>(x));
        else
          number(x);
    } else {
      for (int64_t x : std::get<GgufValue::Integers>(value.data()))
        text_.append(reinterpret_cast<const char*>(&x), static_cast<size_t>(value_type(value.type()).bytes));
    }
  }

  void pad(int64_t alignment) {
    text_.resize(static_cast<size_t>(aligned(static_cast<int64_t>(text_.size()), alignment)), '\0');
  }
  const std::string& bytes() const { return text_; }

 private:
  std::string text_;
};

std::string head_of(const std::vector<GgufItem>& items, const GgufMetadata& metadata) {
  Head head;
  head.number(kMagic);
  head.number(kVersion);
  head.number(static_cast<uint64_t>(items.size()));
  head.number(static_cast<uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    head.text(key);
    head.value(value);
  }
  int64_t offset = 0;
  for (const GgufItem& item : items) {
    head.text(item.name);
    head.number(static_cast<uint32_t>(item.shape.size()));
    for (size_t i = item.shape.size(); i-- > 0;) head.number(static_cast<uint64_t>(item.shape[i]));
    head.number(static_cast<uint32_t>(item.type));
    head.number(static_cast<uint64_t>(offset));
    offset += aligned(static_cast<int64_t>(item.data.size()), kAlignment);
  }
  head.pad(kAlignment);
  return head.bytes();
}

}  // namespace

void write_gguf(const std::string& path, const std::vector<GgufItem>& items, const GgufMetadata& metadata) {
  check_gguf_items(items);
  check_gguf_metadata(metadata);
  const std::string head = head_of(items, metadata);
  write_file_atomically(path, [&](OutputFile& file) {
    file.write(head.data(), head.size());
    constexpr char kZeros[kAlignment] = {};
    for (const GgufItem& item : items) {
      file.write(item.data.data(), item.data.size());
      const auto bytes = static_cast<int64_t>(item.data.size());
      file.write(kZeros, static_cast<size_t>(aligned(bytes, kAlignment) - bytes));
    }
  });
}

}  // namespace bitgrad
