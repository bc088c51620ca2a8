// Samples in text: RFC 4180 without quotes, of which numbers need none.
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/samples.h"

namespace bitgrad {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Calls f(index, field) for the fields of a line.
template <typename F>
void for_each_field(std::string_view line, F&& f) {
  for (int64_t index = 0;; ++index) {
    const size_t comma = line.find(',');
    f(index, trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return;
    line.remove_prefix(comma + 1);
  }
}

template <typename T>
bool parse(std::string_view field, T& value) {
  if (field.starts_with('+')) field.remove_prefix(1);
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size();
}

bool has_number(std::string_view line) {
  bool any = false;
  for_each_field(line, [&](int64_t, std::string_view field) {
    double value = 0;  // one that is too large is a number too
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    any = any || (error != std::errc::invalid_argument && end == field.data() + field.size());
  });
  return any;
}

class CsvReader {
 public:
  CsvReader(const std::string& path, bool ids) : path_(path), ids_(ids) {}

  void read(std::string_view text) {
    for (bool first = true; !text.empty(); first = false) {
      const size_t end = text.find('\n');
      const std::string_view line = trimmed(text.substr(0, end));
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
    for_each_field(line, [&](int64_t index, std::string_view field) {
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
    if (!parse(field, value) || !std::isfinite(value)) refuse(index, field, "a finite number that fp32 holds");
    values_.push_back(value);
  }
  void add_id(int64_t index, std::string_view field) {
    int32_t id = 0;
    if (!parse(field, id)) refuse(index, field, "a whole number: the model takes ids");
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
