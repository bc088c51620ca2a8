#include <algorithm>
#include <set>
#include <span>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "io/gguf_format.h"

namespace bitgrad {
namespace {

using namespace gguf;
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
