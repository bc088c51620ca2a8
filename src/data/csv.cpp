// Samples as text: lines of numbers.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/samples.h"
#include "data/csv_fields.h"

namespace bitgrad {
namespace {

using data::for_each_field;
using data::has_number;

class CsvReader {
 public:
  CsvReader(const std::string& path, bool ids) : path_(path), ids_(ids) {}

  void read(std::string_view text) {
    for (bool first = true; !text.empty(); first = false) {
      const size_t end = text.find('\n');
      const std::string_view line = data::trimmed_field(text.substr(0, end));
      ++line_;
      if (!line.empty() && !(first && !has_number(line))) add(line);
      if (end == std::string_view::npos) break;
      text.remove_prefix(end + 1);
    }
    if (count_ == 0)
      fail_with(ErrorCode::kData, "data.csv", path_, ": got no line of numbers, expected a sample a line.");
  }
  Samples take() const {
    Samples out{path_, ids_ ? StoredAs::kInt32 : StoredAs::kFloat, {width_}, count_, {}};
    out.bytes = TrackedBytes(count_ * width_ * 4, MemoryKind::kDataset);
    std::memcpy(out.bytes.data(), ids_ ? static_cast<const void*>(whole_.data()) : values_.data(),
                static_cast<size_t>(out.bytes.size()));
    return out;
  }

 private:
  void add(std::string_view line) {
    int64_t fields = 0;
    for_each_field(line, ',', [&](int64_t index, std::string_view field) {
      ids_ ? add_id(index, field) : add_value(index, field);
      ++fields;
    });
    if (count_ == 0) width_ = fields;
    if (fields != width_)
      fail_with(ErrorCode::kData, "data.csv", path_, ':', line_, ": got ", fields, " values, expected ", width_,
                " as in the first line of numbers.");
    ++count_;
  }
  void add_value(int64_t index, std::string_view field) {
    float value = 0;
    if (!data::parse_field(field, value) || !std::isfinite(value))
      refuse(index, field, "a finite number that fp32 holds");
    values_.push_back(value);
  }
  void add_id(int64_t index, std::string_view field) {
    int32_t id = 0;
    if (!data::parse_field(field, id)) refuse(index, field, "a whole number: the model takes ids");
    whole_.push_back(id);
  }
  [[noreturn]] void refuse(int64_t index, std::string_view field, std::string_view expected) const {
    constexpr size_t kShown = 40;
    fail_with(ErrorCode::kData, "data.csv", path_, ':', line_, ": value ", index + 1, ": got '",
              printable(std::string(field.substr(0, kShown))), "', expected ", expected, '.');
  }

  const std::string& path_;
  const bool ids_;
  int64_t line_ = 0, count_ = 0, width_ = 0;
  std::vector<float> values_;
  std::vector<int32_t> whole_;
};

}  // namespace

Samples read_csv_samples(const std::string& path, std::string_view text, bool ids) {
  CsvReader reader(path, ids);
  reader.read(text);
  return reader.take();
}

}  // namespace bitgrad
