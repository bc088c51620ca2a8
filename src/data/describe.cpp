#include "bitgrad/data/describe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/text_stream.h"
#include "bitgrad/data/samples.h"
#include "data/content.h"
#include "data/csv_fields.h"
#include "data/csv_table.h"
#include "data/idx_values.h"

namespace bitgrad {
namespace {

constexpr int64_t kMostDescribed = int64_t{1} << 34;  // bytes of a file
constexpr size_t kShownClasses = 20;

// Sums of the elements first, first + step, ...
struct Spread {
  double least = 0, largest = 0, mean = 0, deviation = 0;
  bool finite = true;
};
Spread spread_of(std::span<const float> values, size_t first, size_t step) {
  Spread s;
  double sum = 0, squares = 0, count = 0;
  for (size_t i = first; i < values.size(); i += step) {
    const auto x = static_cast<double>(values[i]);
    s.finite = s.finite && std::isfinite(x);
    s.least = count == 0 ? x : std::min(s.least, x);
    s.largest = count == 0 ? x : std::max(s.largest, x);
    sum += x;
    ++count;
  }
  s.mean = sum / std::max(count, 1.0);
  for (size_t i = first; i < values.size(); i += step) {
    const double d = static_cast<double>(values[i]) - s.mean;
    squares += d * d;
  }
  s.deviation = std::sqrt(squares / std::max(count, 1.0));
  return s;
}

std::string list_of(const std::vector<double>& numbers) {
  std::string out;
  for (const double x : numbers) out += concat(out.empty() ? "" : ", ", static_cast<float>(x));
  return concat('[', out, ']');
}

void write_counts(std::ostream& out, const std::map<std::string, int64_t>& counts, std::string_view what) {
  out << counts.size() << ' ' << what << ':';
  size_t shown = 0;
  for (const auto& [name, count] : counts) {
    if (shown++ == kShownClasses) {
      out << " ...";
      break;
    }
    out << ' ' << printable(name) << " (" << count << ')';
  }
  out << '\n';
}

void write_array(std::ostream& out, const std::string& format, const std::string& type,
                 const std::vector<int64_t>& shape, const std::vector<float>& values) {
  out << "format: " << format << ", " << type << ' ' << Shape(shape) << '\n';
  const Spread all = spread_of(values, 0, 1);
  out << "values: " << all.least << " .. " << all.largest << ", mean " << static_cast<float>(all.mean) << ", std "
      << static_cast<float>(all.deviation) << '\n';
  if (!all.finite) out << "some values are NaN or Inf: a data set refuses them\n";
  const bool whole = std::all_of(values.begin(), values.end(), [](float x) { return x == std::floor(x); });
  const bool one_each = shape.size() == 1 || (shape.size() == 2 && shape[1] == 1);
  if (one_each && whole && all.least >= 0) {
    std::vector<int64_t> counts(static_cast<size_t>(std::min(all.largest, 65535.0)) + 1);
    for (const float x : values)
      if (static_cast<size_t>(x) < counts.size()) ++counts[static_cast<size_t>(x)];
    out << counts.size() << " classes:";
    for (size_t c = 0; c < std::min(counts.size(), kShownClasses); ++c) out << ' ' << c << " (" << counts[c] << ')';
    out << (counts.size() > kShownClasses ? " ...\n" : "\n");
  }
  if (type != "uint8" || shape.size() < 3) return;
  const size_t channels = shape.size() == 4 ? static_cast<size_t>(shape[3]) : 1;
  std::vector<double> mean, deviation;
  for (size_t c = 0; c < channels; ++c) {
    const Spread s = spread_of(values, c, channels);
    mean.push_back(s.mean / 255);
    deviation.push_back(s.deviation / 255);
  }
  out << "data.normalize: {mean: " << list_of(mean) << ", std: " << list_of(deviation) << "}\n";
}

void write_table(std::ostream& out, const data::CsvTable& table) {
  out << "format: csv, " << table.rows() << " rows, " << table.columns() << " columns\n";
  for (int64_t c = 0; c < table.columns(); ++c) {
    std::vector<float> numbers;
    std::map<std::string, int64_t> names;
    int64_t missing = 0;
    const bool categories = !data::categories_of(table, c).empty();
    for (int64_t row = 0; row < table.rows(); ++row) {
      const std::string& field = table.at(row, c);
      float value = 0;
      if (data::is_missing(field))
        ++missing;
      else if (categories)
        ++names[field];
      else if (data::parse_field(field, value))
        numbers.push_back(value);
    }
    out << "column " << c + 1 << ' ' << printable(table.names[static_cast<size_t>(c)]) << ": ";
    if (missing > 0) out << missing << " missing, ";
    if (categories) {
      write_counts(out, names, "names");
      continue;
    }
    const Spread s = spread_of(numbers, 0, 1);
    out << "numbers " << s.least << " .. " << s.largest << ", mean " << static_cast<float>(s.mean) << ", std "
        << static_cast<float>(s.deviation) << '\n';
  }
}

std::vector<float> values_of(const Samples& s) {
  const auto copied = [&](const auto* from) { return std::vector<float>(from, from + s.count * s.shape.numel()); };
  if (s.stored == StoredAs::kUint8) return copied(s.bytes.data());
  if (s.stored == StoredAs::kFloat) return copied(reinterpret_cast<const float*>(s.bytes.data()));
  return copied(reinterpret_cast<const int32_t*>(s.bytes.data()));
}

}  // namespace

std::string describe_data_file(const std::string& path) {
  const std::unique_ptr<InputFile> file = file_system().open_read(path);
  if (file->size() > kMostDescribed)
    fail_with(ErrorCode::kData, "data info", path, ": got ", file->size(), " bytes, expected at most ", kMostDescribed);
  uint8_t head[6] = {};
  file->read_at(0, head, sizeof head);
  TextWriter out;
  if (head[0] == 0x93 && head[1] == 'N') {
    const Samples s = read_npy_samples(path, *file);
    std::vector<int64_t> shape{s.count};
    for (const int64_t n : s.shape.dims()) shape.push_back(n);
    const char* const type = s.stored == StoredAs::kUint8   ? "uint8"
                             : s.stored == StoredAs::kFloat ? "float"
                                                            : "integers";
    write_array(out, "npy", type, shape, values_of(s));
    return out.str();
  }
  data::ContentReader probe(path, *file);
  uint8_t begin[2] = {1, 1};
  if (probe.read(begin, 2) == 2 && begin[0] == 0 && begin[1] == 0) {
    const data::IdxValues idx = data::read_idx_values(path, *file);
    write_array(out, "idx", idx.type, idx.shape, idx.values);
    return out.str();
  }
  const std::string text = data::ContentReader(path, *file).rest();
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  if (text.find('\0') != std::string::npos)
    fail_with(ErrorCode::kData, "data info", path, ": got bytes of no known format, expected idx, npy or csv");
  const char separator = first.find(',') != std::string_view::npos    ? ','
                         : first.find(';') != std::string_view::npos  ? ';'
                         : first.find('\t') != std::string_view::npos ? '\t'
                                                                      : ',';
  write_table(out, data::read_csv_table(path, text, separator, "auto"));
  return out.str();
}

}  // namespace bitgrad
