#include "bitgrad/data/describe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/text_stream.h"
#include "bitgrad/data/npz.h"
#include "bitgrad/data/picture.h"
#include "bitgrad/data/samples.h"
#include "data/content.h"
#include "data/csv_fields.h"
#include "data/csv_table.h"
#include "data/idx_values.h"
#include "data/npy_header.h"

namespace bitgrad {
namespace {

constexpr std::string_view kInfo = "data info";
constexpr int64_t kMostDescribed = int64_t{1} << 34;  // largest file described, in bytes
constexpr size_t kShownClasses = 20;

// Statistics of the elements first, first + step, ...
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

void add_spread(Json& to, const Spread& s) {
  to["least"] = s.least;
  to["largest"] = s.largest;
  to["mean"] = s.mean;
  to["std"] = s.deviation;
}

// Number of samples per class; empty if the values are not classes.
std::vector<int64_t> class_counts(const std::vector<int64_t>& shape, const std::vector<float>& values,
                                  const Spread& all) {
  constexpr double kMostClasses = 65535;
  const bool whole = std::all_of(values.begin(), values.end(), [](float x) { return x == std::floor(x); });
  const bool one_each = shape.size() == 1 || (shape.size() == 2 && shape[1] == 1);
  if (!one_each || !whole || all.least < 0 || all.largest > kMostClasses) return {};
  std::vector<int64_t> counts(static_cast<size_t>(all.largest) + 1);
  for (const float x : values) ++counts[static_cast<size_t>(x)];
  return counts;
}

Json array_json(const std::string& format, const std::string& type, const std::vector<int64_t>& shape,
                const std::vector<float>& values) {
  Json out{{"format", format}, {"type", type}, {"shape", shape}};
  const Spread all = spread_of(values, 0, 1);
  add_spread(out, all);
  out["finite"] = all.finite;
  if (const std::vector<int64_t> counts = class_counts(shape, values, all); all.finite && !counts.empty())
    out["classes"] = counts;
  if (type != "uint8" || shape.size() < 3) return out;
  const size_t channels = shape.size() == 4 ? static_cast<size_t>(shape[3]) : 1;
  Json mean = Json::array(), deviation = Json::array();
  for (size_t c = 0; c < channels; ++c) {
    const Spread s = spread_of(values, c, channels);
    mean.push_back(s.mean / 255);
    deviation.push_back(s.deviation / 255);
  }
  out["normalize"] = {{"mean", mean}, {"std", deviation}};
  return out;
}

Json table_json(const data::CsvTable& table) {
  Json columns = Json::array();
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
        ++names[printable(field)];
      else if (data::parse_field(field, value))
        numbers.push_back(value);
    }
    Json column{{"name", printable(table.names[static_cast<size_t>(c)])}, {"missing", missing}};
    if (categories) {
      column["categories"] = Json::object();
      for (const auto& [name, count] : names) column["categories"][name] = count;
    } else {
      add_spread(column, spread_of(numbers, 0, 1));
    }
    columns.push_back(std::move(column));
  }
  return {{"format", "csv"}, {"rows", table.rows()}, {"columns", columns}};
}

Json folder_json(const std::string& path) {
  const PictureFolder folder = list_pictures(kInfo, path);
  std::vector<int64_t> counts(folder.classes.size());
  for (const PictureFile& file : folder.files) ++counts[static_cast<size_t>(file.label)];
  Json classes = Json::object();
  for (size_t c = 0; c < counts.size(); ++c) classes[printable(folder.classes[c])] = counts[c];
  return {{"format", "image_folder"}, {"files", folder.files.size()}, {"classes", classes}};
}

Json archive_json(const std::string& path) {
  Json arrays = Json::array();
  const NpzFile archive(path);
  for (const NpzEntry& entry : archive.entries())
    arrays.push_back({{"name", printable(entry.name)}, {"type", entry.descr}, {"shape", entry.shape.dims()}});
  return {{"format", "npz"}, {"arrays", arrays}};
}

std::vector<float> values_of(const Samples& s) {
  const auto copied = [&](const auto* from) { return std::vector<float>(from, from + s.count * s.shape.numel()); };
  if (s.stored == StoredAs::kUint8) return copied(s.bytes.data());
  if (s.stored == StoredAs::kFloat) return copied(reinterpret_cast<const float*>(s.bytes.data()));
  return copied(reinterpret_cast<const int32_t*>(s.bytes.data()));
}

Json json_of(const std::string& path) {
  if (file_system().is_directory(path)) return folder_json(path);
  if (!file_system().exists(path)) fail_with(ErrorCode::kData, kInfo, "'", path, "': there is no such file or folder");
  const std::unique_ptr<InputFile> file = file_system().open_read(path);
  if (file->size() > kMostDescribed)
    fail_with(ErrorCode::kData, kInfo, path, ": got ", file->size(), " bytes, expected at most ", kMostDescribed);
  uint8_t head[6] = {};
  file->read_at(0, head, sizeof head);
  if (head[0] == 0x93 && head[1] == 'N') {
    const data::NpyHeader header = data::read_npy_header(kInfo, path, *data::file_source(*file));
    const Samples s = read_npy_samples(path, *file, header.kind == 'u' || header.kind == 'i');
    std::vector<int64_t> shape{s.count};
    for (const int64_t n : s.shape.dims()) shape.push_back(n);
    const char* const type = s.stored == StoredAs::kUint8   ? "uint8"
                             : s.stored == StoredAs::kFloat ? "float"
                                                            : "integers";
    return array_json("npy", type, shape, values_of(s));
  }
  if (head[0] == 'P' && head[1] == 'K') return archive_json(path);
  data::ContentReader probe(path, *file);
  uint8_t begin[2] = {1, 1};
  if (probe.read(begin, 2) == 2 && begin[0] == 0 && begin[1] == 0) {
    const data::IdxValues idx = data::read_idx_values(path, *file);
    return array_json("idx", idx.type, idx.shape, idx.values);
  }
  const std::string text = data::ContentReader(path, *file).rest();
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  if (text.find('\0') != std::string::npos)
    fail_with(ErrorCode::kData, kInfo, path, ": got bytes of no known format, expected idx, npy, npz, csv or a folder");
  const char separator = first.find(',') != std::string_view::npos    ? ','
                         : first.find(';') != std::string_view::npos  ? ';'
                         : first.find('\t') != std::string_view::npos ? '\t'
                                                                      : ',';
  return table_json(data::read_csv_table(path, text, separator, "auto"));
}

// ---- text output -----------------------------------------------------------------------------------------------

// "a (3) b (1)"; for an array, the indices serve as names.
std::string counts_text(const Json& counts) {
  TextWriter out;
  for (size_t i = 0; i < std::min(counts.size(), kShownClasses); ++i) {
    const bool named = counts.is_object();
    out << ' ' << (named ? counts.members()[i].first : concat(i)) << " ("
        << (named ? counts.members()[i].second : counts.at(i)) << ')';
  }
  if (counts.size() > kShownClasses) out << " ...";
  return out.str();
}

std::string spread_text(const Json& j) {
  const auto number = [&](std::string_view name) { return j.at(name).get<double>(); };
  return concat(number("least"), " .. ", number("largest"), ", mean ", static_cast<float>(number("mean")), ", std ",
                static_cast<float>(number("std")));
}

std::string list_of(const Json& numbers) {
  std::string out;
  for (const Json& x : numbers) out += concat(out.empty() ? "" : ", ", x.get<float>());
  return concat('[', out, ']');
}

void write_array(std::ostream& out, const Json& j) {
  out << ", " << j.at("type").text() << ' ' << Shape(j.at("shape").get<std::vector<int64_t>>()) << '\n';
  if (!j.at("finite").get<bool>())
    out << "some values are NaN or Inf: a data set refuses them\n";
  else
    out << "values: " << spread_text(j) << '\n';
  if (j.contains("classes")) out << j.at("classes").size() << " classes:" << counts_text(j.at("classes")) << '\n';
  if (j.contains("normalize"))
    out << "data.normalize: {mean: " << list_of(j.at("normalize").at("mean"))
        << ", std: " << list_of(j.at("normalize").at("std")) << "}\n";
}

void write_members(std::ostream& out, const Json& arrays) {
  out << ", " << arrays.size() << " arrays\n";
  for (const Json& array : arrays)
    out << array.at("name").text() << ": " << array.at("type").text() << ' '
        << Shape(array.at("shape").get<std::vector<int64_t>>()) << '\n';
}

void write_columns(std::ostream& out, const Json& j) {
  out << ", " << j.at("rows") << " rows, " << j.at("columns").size() << " columns\n";
  int64_t number = 0;
  for (const Json& column : j.at("columns")) {
    out << "column " << ++number << ' ' << column.at("name").text() << ": ";
    if (column.at("missing") > 0) out << column.at("missing") << " missing, ";
    if (column.contains("categories"))
      out << column.at("categories").size() << " names:" << counts_text(column.at("categories")) << '\n';
    else
      out << "numbers " << spread_text(column) << '\n';
  }
}

}  // namespace

std::string describe_data_json(const std::string& path) { return json_of(path).dump(); }

std::string describe_data_file(const std::string& path) {
  const Json j = json_of(path);
  TextWriter out;
  out << "format: " << j.at("format").text();
  if (j.contains("files"))
    out << ", " << j.at("files") << " files in " << j.at("classes").size()
        << " classes:" << counts_text(j.at("classes")) << '\n';
  else if (j.contains("columns"))
    write_columns(out, j);
  else if (j.contains("arrays"))
    write_members(out, j.at("arrays"));
  else
    write_array(out, j);
  return out.str();
}

}  // namespace bitgrad
