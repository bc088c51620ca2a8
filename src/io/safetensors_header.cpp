// A handler of parse events instead of a tree: only what the format allows is ever stored, so neither deep nesting nor
// repeated keys can do harm.
#include "io/safetensors_format.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "bitgrad/base/error.h"

namespace bitgrad::safetensors {
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
