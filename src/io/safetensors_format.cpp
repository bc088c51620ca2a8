// A handler of parse events instead of a tree: only what the format allows is ever stored, so neither deep nesting nor
// repeated keys can do harm.

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/base/text.h"
#include "io/safetensors_format.h"

namespace bitgrad::safetensors {

namespace {

struct DtypeRecord {
  std::string_view name;
  int64_t bits;
};
// safetensors 0.6, enum Dtype.
constexpr DtypeRecord kDtypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},
    {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64}, {"U64", 64},
};

}  // namespace

std::optional<int64_t> dtype_bits(std::string_view dtype) {
  for (const DtypeRecord& record : kDtypes)
    if (record.name == dtype) return record.bits;
  return std::nullopt;
}

std::string dtype_list() { return joined(kDtypes, ", ", &DtypeRecord::name); }

std::optional<int64_t> tensor_bytes(int64_t bits, const std::vector<int64_t>& shape) {
  // Zeros are excluded from the product, so that an absurd shape is refused wherever it has its 0.
  int64_t product = bits;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, size, &product))
      return std::nullopt;
  }
  if (empty) return 0;
  if (product % 8 != 0) return std::nullopt;
  return product / 8;
}

std::string crc_text(uint32_t crc) {
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text.push_back("0123456789abcdef"[(crc >> shift) & 15u]);
  return text;
}

size_t header_crc_place(std::string_view json) {
  const std::string pattern = concat('"', kHeaderCrcKey, "\":\"");
  const size_t at = json.find(pattern);
  if (at == std::string_view::npos) return at;
  const size_t place = at + pattern.size();
  const bool full = json.size() > place + kNoCrc.size() && json[place + kNoCrc.size()] == '"';
  return full ? place : std::string_view::npos;
}

std::string header_crc(std::string_view length_and_json, size_t place) {
  const size_t at = kLengthBytes + place;
  uint32_t crc = crc32c(length_and_json.data(), at);
  crc = crc32c(kNoCrc.data(), kNoCrc.size(), crc);
  const std::string_view rest = length_and_json.substr(at + kNoCrc.size());
  return crc_text(crc32c(rest.data(), rest.size(), crc));
}

namespace {

using LibraryJson = nlohmann::json;

// A name for error messages: shortened, without control characters.
std::string shown(const std::string& name) {
  std::string text = name.substr(0, 80);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  return concat('\'', text, name.size() > 80 ? "...'" : "'");
}

class Handler final : public nlohmann::json_sax<LibraryJson> {
 public:
  Header header;
  std::string error;  // set if a handler returned false

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) return move_to(Place::kTop);
    if (place_ != Place::kTop) return refuse("an object instead of a value");
    if (name_ == kMetadataName) return move_to(Place::kMetadata);
    entry_ = {};
    entry_.name = name_;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return move_to(Place::kEntry);
  }
  bool end_object() override {
    if (place_ == Place::kTop) return move_to(Place::kOutside);
    if (place_ == Place::kEntry && !finish_entry()) return false;
    return move_to(Place::kTop);
  }
  bool key(string_t& text) override {
    if (place_ == Place::kTop) {
      name_ = text;
      field_.clear();
      return names_.insert(text).second || refuse("the name occurs twice");
    }
    field_ = text;
    if (place_ == Place::kMetadata) return header.metadata.count(text) == 0 || refuse("the key occurs twice");
    bool* const seen = text == "dtype"          ? &has_dtype_
                       : text == "shape"        ? &has_shape_
                       : text == "data_offsets" ? &has_offsets_
                                                : nullptr;
    if (seen == nullptr) return refuse("unknown key, expected dtype, shape or data_offsets");
    if (*seen) return refuse("the key occurs twice");
    return *seen = true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      header.metadata[field_] = text;
      return true;
    }
    if (place_ != Place::kEntry || field_ != "dtype") return refuse("an unexpected string");
    entry_.dtype = text;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::kEntry || field_ == "dtype") return refuse("an unexpected list");
    return move_to(field_ == "shape" ? Place::kShape : Place::kOffsets);
  }
  bool end_array() override { return move_to(Place::kEntry); }
  bool number_unsigned(number_unsigned_t number) override {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return refuse("a number is too large");
    std::vector<int64_t>* const list = place_ == Place::kShape     ? &entry_.shape
                                       : place_ == Place::kOffsets ? &offsets_
                                                                   : nullptr;
    if (list == nullptr) return refuse("an unexpected number");
    if (list->size() >= kMaxRank) return refuse(concat("a list is longer than ", kMaxRank));
    list->push_back(static_cast<int64_t>(number));
    return true;
  }
  bool number_integer(number_integer_t) override { return refuse("a number is negative"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a number is not whole"); }
  bool null() override { return refuse("null instead of a value"); }
  bool boolean(bool) override { return refuse("an unexpected boolean"); }
  bool binary(binary_t&) override { return refuse("binary data in JSON"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error = concat("the header is not valid JSON near its byte ", position);
    return false;
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kEntry, kShape, kOffsets };

  bool move_to(Place place) {
    place_ = place;
    return true;
  }
  bool refuse(const std::string& what) {
    error = "the header is not in the format";
    if (place_ != Place::kOutside) error += concat(" at ", shown(name_));
    if (place_ != Place::kOutside && !field_.empty()) error += concat(", key ", shown(field_));
    error += ": " + what;
    return false;
  }
  bool finish_entry() {
    field_.clear();
    if (!has_dtype_ || !has_shape_ || !has_offsets_) return refuse("dtype, shape or data_offsets is missing");
    const auto bits = dtype_bits(entry_.dtype);
    if (!bits) return refuse(concat("unknown dtype: got ", shown(entry_.dtype), ", expected one of ", dtype_list()));
    if (offsets_.size() != 2) return refuse(concat("data_offsets: got ", offsets_.size(), " numbers, expected 2"));
    if (offsets_[1] < offsets_[0]) return refuse("data_offsets: the end is before the begin");
    entry_.offset = offsets_[0];
    entry_.bytes = offsets_[1] - offsets_[0];
    offsets_.clear();
    const auto expected = tensor_bytes(*bits, entry_.shape);
    if (!expected) return refuse("the shape has too many elements or does not fill whole bytes");
    if (*expected != entry_.bytes)
      return refuse(concat("the bytes do not fit dtype and shape: got ", entry_.bytes, ", expected ", *expected));
    header.entries.push_back(std::move(entry_));
    return true;
  }

  Place place_ = Place::kOutside;
  std::string name_, field_;
  std::set<std::string> names_;
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

}  // namespace

Header parse_header(std::string_view json, const std::string& path) {
  // The parser would skip a byte order mark, which the format does not allow.
  if (json.empty() || json.front() != '{')
    fail_with(ErrorCode::kData, "safetensors", "'", path,
              "': the header does not begin with '{' at byte 8 of the file.");
  // The parser would treat it as the end of the text and ignore the rest.
  if (const size_t nul = json.find('\0'); nul != std::string_view::npos)
    fail_with(ErrorCode::kData, "safetensors", "'", path, "': byte ", nul,
              " of the header is 0, which JSON does not have. The file is damaged or of another kind.");
  Handler handler;
  if (!LibraryJson::sax_parse(json.begin(), json.end(), &handler))
    fail_with(ErrorCode::kData, "safetensors", "'", path, "': ", handler.error,
              ". The file is damaged or of another kind.");
  return std::move(handler.header);
}

}  // namespace bitgrad::safetensors
