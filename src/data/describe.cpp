#include "bitgrad/data/samples.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/npz.h"
#include "bitgrad/data/picture.h"
#include "data/data_file.h"
#include "data/describe_parts.h"
#include "data/npy_array.h"

namespace bitgrad {
namespace {

using data::counts_text, data::spread_of, data::spread_text, data::add_spread, data::Spread;

constexpr std::string_view kInfo = "data info";
constexpr int64_t kMostDescribed = int64_t{1} << 34;  // largest file described, in bytes

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

// Whether a file of a folder is a picture by its first bytes.
bool is_picture(const std::string& path) {
  uint8_t head[8] = {};
  const size_t got = file_system().open_read(path)->read_at(0, head, sizeof head);
  const auto kind = known_file_kind({reinterpret_cast<const char*>(head), got});
  return kind && (kind->name == "a picture (PNG)" || kind->name == "a picture (JPEG)");
}

std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> out;
  for (const std::string& name : file_system().list(path))
    if (!name.starts_with('.') && file_system().is_directory(path + '/' + name)) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

// What a folder without classes holds: other data, or folders of classes.
void refuse_folder(const std::string& path) {
  for (const std::string& name : folders_in(path)) {
    const std::string inner = path + '/' + name;
    for (const std::string& deeper : folders_in(inner))
      fail_with(ErrorCode::kData, kInfo, "'", path, "': its folders hold folders ('", inner, '/', deeper,
                "'), so they are not classes. Name one of them, such as '", inner, "'");
    if (file_system().exists(inner + "/data_batch_1.bin") || file_system().exists(inner + "/train.bin"))
      fail_with(ErrorCode::kData, kInfo, "'", path, "': got a folder above one of CIFAR, expected '", inner, "'");
  }
}

Json folder_json(const std::string& path) {
  if (std::optional<Json> cifar = data::describe_cifar(path)) return *cifar;
  refuse_folder(path);
  const PictureFolder folder = list_pictures(kInfo, path);
  std::vector<int64_t> counts(folder.classes.size());
  int64_t others = 0;
  for (const PictureFile& file : folder.files)
    is_picture(file.path) ? ++counts[static_cast<size_t>(file.label)] : ++others;
  const auto pictures = std::ssize(folder.files) - others;
  if (pictures == 0)
    fail_with(ErrorCode::kData, kInfo, "'", path, "': got no picture in its ", folder.classes.size(),
              " folders, expected PNG or JPEG files in a folder for each class");
  Json classes = Json::object();
  for (size_t c = 0; c < counts.size(); ++c) classes[printable(folder.classes[c])] = counts[c];
  Json out{{"format", "image_folder"}, {"files", pictures}, {"classes", classes}};
  if (others > 0) out["others"] = others;
  return out;
}

// Members that are no arrays make an archive another kind of file.
Json archive_json(const std::string& path, InputFile& file) {
  constexpr size_t kProbed = size_t{1} << 20;
  std::string begin(std::min(static_cast<size_t>(file.size()), kProbed), '\0');
  file.read_at(0, reinterpret_cast<uint8_t*>(begin.data()), begin.size());
  const auto kind = known_file_kind(begin);
  if (kind && kind->name.find("numpy") == std::string::npos)
    fail_with(ErrorCode::kData, kInfo, path, ": it is ", kind->name, ". ", kind->way_out);
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

// A table; or, where the lines are no rows and the name does not say a table, a text for language models.
Json table_or_text(const std::string& path, std::string text) {
  std::string name = path;
  for (const std::string_view end : {".gz", ".csv", ".tsv"})
    if (name.ends_with(end)) name.resize(name.size() - end.size() + (end == ".gz" ? 0 : 1));
  const bool named = name.ends_with('.');
  const size_t bytes = text.size();
  const auto lines = std::count(text.begin(), text.end(), '\n');
  try {
    return data::describe_table(path, std::move(text));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kData || named) throw;
    return {{"format", "tokens"}, {"bytes", bytes}, {"lines", lines}, {"no_table", error.what()}};
  }
}

// The name of a file as a text of YAML.
std::string yaml_name(const std::string& path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x80 ||
           (c > ' ' && std::string_view("#:,[]{}'\"\\&*!|>%@`").find(c) == std::string_view::npos);
  });
  return plain ? printable(path) : Json(path).dump();
}

// What a configuration says to read it, as far as the file tells.
void write_section(std::ostream& out, const Json& j, const std::string& path) {
  const std::string& format = j.at("format").text();
  out << "in a configuration: {format: " << format << ", " << (format == "image_folder" ? "path" : "file") << ": "
      << yaml_name(path);
  if (format == "tokens") out << ", context: 64}, with data.tokenizer: chars";
  if (format == "csv") {
    bool commas = false, gaps = false;
    for (const Json& column : j.at("columns")) {
      commas = commas ||
               (column.contains("error") && column.at("error").text().find("set decimal: comma") != std::string::npos);
      gaps = gaps || column.at("missing") > 0;
    }
    const std::string& separator = j.at("separator").text();
    out << ", target: COLUMN" << (separator == "comma" ? "" : ", separator: " + separator)
        << (commas ? ", decimal: comma" : "") << (gaps ? ", fill: mean" : "");
  }
  out << (format == "tokens" ? "\n" : "}\n");
}

Json json_of(const std::string& path) {
  if (file_system().is_directory(path)) return folder_json(path);
  if (!file_system().exists(path)) fail_with(ErrorCode::kData, kInfo, "'", path, "': no such file or folder");
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
  if (head[0] == 'P' && head[1] == 'K') return archive_json(path, *file);
  data::ContentReader probe(path, *file);
  uint8_t begin[2] = {1, 1};
  if (probe.read(begin, 2) == 2 && begin[0] == 0 && begin[1] == 0) {
    const data::IdxValues idx = data::read_idx_values(path, *file);
    return array_json("idx", idx.type, idx.shape, idx.values);
  }
  std::string text = data::ContentReader(path, *file).rest();
  if (const std::string why = why_no_text(text); !why.empty())
    fail_with(ErrorCode::kData, kInfo, path,
              ": got bytes of no format for data, expected idx, npy, npz, csv or a folder: ", why);
  return table_or_text(path, std::move(text));
}

// ---- text output -----------------------------------------------------------------------------------------------

std::string list_of(const Json& numbers) {
  return concat('[', joined(numbers, ", ", [](const Json& x) { return x.get<float>(); }), ']');
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

}  // namespace

std::string describe_data_json(const std::string& path) { return json_of(path).dump(); }

std::string describe_data_file(const std::string& path) {
  const Json j = json_of(path);
  TextWriter out;
  out << "format: " << j.at("format").text();
  if (j.contains("files"))
    out << ", " << j.at("files") << " files in " << j.at("classes").size()
        << " classes:" << counts_text(j.at("classes"))
        << (j.contains("others") ? concat("; ", j.at("others"), " other files of unsupported formats") : std::string())
        << '\n';
  else if (j.contains("class_names"))
    data::write_cifar(out, j);
  else if (j.contains("columns"))
    data::write_table(out, j);
  else if (j.contains("no_table"))
    out << ", a text of " << j.at("lines") << " lines and " << j.at("bytes")
        << " bytes. Not a table: " << printable(j.at("no_table").text()) << '\n';
  else if (j.contains("arrays"))
    write_members(out, j.at("arrays"));
  else
    write_array(out, j);
  if (j.contains("files") || j.contains("columns") || j.contains("no_table")) write_section(out, j, path);
  return out.str();
}

}  // namespace bitgrad
