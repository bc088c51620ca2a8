// Samples as text: lines of numbers.
#include <charconv>
#include <cstring>
#include <limits>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/samples.h"
#include "data/csv_table.h"
#include "data/data_file.h"

namespace bitgrad {
namespace {

class CsvReader {
 public:
  CsvReader(const std::string& path, bool ids) : path_(path), ids_(ids) {}

  void read(std::string_view text) {
    constexpr size_t kProbed = 100;  // rows that decide about the first line
    data::CsvRows rows(path_, text, ',');
    data::CsvRow first, row;
    std::vector<data::CsvRow> below;
    std::vector<int64_t> lines;
    if (rows.next(first)) {
      line_ = rows.line();
      while (below.size() < kProbed && rows.next(row)) {
        below.push_back(row);
        lines.push_back(rows.line());
      }
      head_ = data::guess_head(first, below, {});
      if (!head_.names) add(first);
      for (size_t i = 0; i < below.size(); ++i) {
        line_ = lines[i];
        add(below[i]);
      }
      while (rows.next(row)) {
        line_ = rows.line();
        add(row);
      }
    }
    if (count_ == 0)
      fail_with(ErrorCode::kData, data::kCsv, printable(path_),
                ": got no line of numbers, expected one sample per line.");
  }
  const data::CsvHead& head() const { return head_; }
  Samples take() const {
    Samples out{path_, ids_ ? StoredAs::kInt32 : StoredAs::kFloat, {width_}, count_, {}};
    out.bytes = TrackedBytes(count_ * width_ * 4, MemoryKind::kDataset);
    std::memcpy(out.bytes.data(), ids_ ? static_cast<const void*>(whole_.data()) : values_.data(),
                static_cast<size_t>(out.bytes.size()));
    return out;
  }

 private:
  void add(const data::CsvRow& row) {
    for (size_t i = 0; i < row.size(); ++i)
      ids_ ? add_id(static_cast<int64_t>(i), row[i]) : add_value(static_cast<int64_t>(i), row[i]);
    const int64_t fields = std::ssize(row);
    if (count_ == 0) width_ = fields;
    if (fields != width_)
      fail_with(ErrorCode::kData, data::kCsv, printable(path_), ':', line_, ": got ", fields, " values, expected ",
                width_, " as in the first line of numbers.");
    ++count_;
  }
  void add_value(int64_t index, std::string_view field) {
    float value = 0;
    if (data::read_number(field, '.', value) != data::Cell::kNumber)
      refuse(index, field, "a finite number that fp32 holds");
    values_.push_back(value);
  }
  void add_id(int64_t index, std::string_view field) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), id);
    if (error != std::errc() || end != field.data() + field.size())
      refuse(index, field, "a whole number: the model expects ids");
    whole_.push_back(id);
  }
  [[noreturn]] void refuse(int64_t index, std::string_view field, std::string_view expected) const {
    constexpr size_t kShown = 40;
    fail_with(ErrorCode::kData, data::kCsv, printable(path_), ':', line_, ": value ", index + 1, ": got '",
              printable(std::string(field.substr(0, kShown))), "', expected ", expected, '.');
  }

  const std::string& path_;
  const bool ids_;
  data::CsvHead head_;
  int64_t line_ = 0, count_ = 0, width_ = 0;
  std::vector<float> values_;
  std::vector<int32_t> whole_;
};

}  // namespace

Samples read_csv_samples(const std::string& path, std::string_view bytes, bool ids, std::vector<std::string>* notes) {
  CsvReader reader(path, ids);
  const std::string text = data::plain_text(path, std::string(bytes));
  reader.read(text);
  if (const data::CsvHead& head = reader.head(); notes != nullptr && head.doubtful)
    notes->push_back(concat(printable(path), ": ", data::head_text(head), ". If that is wrong, ",
                            head.names ? "add a line of names above it" : "remove it"));
  return reader.take();
}

}  // namespace bitgrad
