#include "bitgrad/base/file_kind.h"

#include <algorithm>
#include <array>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"

namespace bitgrad {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes, name, way_out;
  size_t at = 0;
};

constexpr std::string_view kAsTable = "Save it as CSV in UTF-8 with the program that made it";
constexpr std::string_view kAsUtf8 = "Save it as UTF-8, such as iconv -t UTF-8";
constexpr std::string_view kUnpack = "Unpack it first";
constexpr std::string_view kPandas = "Write it as CSV, in Python with pandas: read_...(FILE).to_csv(NAME, index=False)";
constexpr std::string_view kTorch = "Save tensors with safetensors (save_file), or arrays with numpy.save";
constexpr std::string_view kImport = "bitgrad import makes a model file of it";
constexpr std::string_view kPictures = "Pictures are read by the format image_folder, by bitgrad data pack and predict";
constexpr std::string_view kLfs = "Fetch the file: git lfs pull";
constexpr std::string_view kPage = "A download that failed often leaves one: open it, and fetch the file again";
constexpr std::string_view kArrays = "Arrays are read by the formats npy and npz";

// The mark of UTF-32 begins with that of UTF-16.
constexpr std::array kMagics{
    Magic{"\xFF\xFE\0\0"sv, "a text in UTF-32", kAsUtf8},
    Magic{"\0\0\xFE\xFF"sv, "a text in UTF-32", kAsUtf8},
    Magic{"\xFF\xFE"sv, "a text in UTF-16 (\"Unicode text\" of Excel)", kAsUtf8},
    Magic{"\xFE\xFF"sv, "a text in UTF-16", kAsUtf8},
    Magic{"PAR1"sv, "a table in Parquet", kPandas},
    Magic{"ARROW1"sv, "a table in Arrow or Feather", kPandas},
    Magic{"FEA1"sv, "a table in Feather", kPandas},
    Magic{"ORC"sv, "a table in ORC", kPandas},
    Magic{"Obj\x01"sv, "a table in Avro", kPandas},
    Magic{"\x89HDF\r\n\x1A\n"sv, "a file of HDF5 (.h5, .hdf5)", kPandas},
    Magic{"SQLite format 3\0"sv, "a database of SQLite", kPandas},
    Magic{"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"sv, "a document of old Office (.xls, .doc)", kAsTable},
    Magic{"MATLAB 5.0"sv, "a file of MATLAB (.mat)", kArrays},
    Magic{"%PDF-"sv, "a PDF document", "Save its table as CSV in UTF-8"},
    Magic{"\x1F\x8B"sv, "a file packed by gzip (.gz)", kUnpack},
    Magic{"BZh"sv, "a file packed by bzip2 (.bz2)", kUnpack},
    Magic{"\xFD"
          "7zXZ"sv,
          "a file packed by xz (.xz)", kUnpack},
    Magic{"\x28\xB5\x2F\xFD"sv, "a file packed by zstd (.zst)", kUnpack},
    Magic{"7z\xBC\xAF\x27\x1C"sv, "an archive of 7-Zip (.7z)", kUnpack},
    Magic{"Rar!\x1A\x07"sv, "an archive of RAR (.rar)", kUnpack},
    Magic{"ustar"sv, "an archive of tar (.tar)", kUnpack, 257},
    Magic{"\x93NUMPY"sv, "an array of numpy (.npy)", kArrays},
    Magic{"\x89PNG\r\n\x1A\n"sv, "a picture (PNG)", kPictures},
    Magic{"\xFF\xD8\xFF"sv, "a picture (JPEG)", kPictures},
    Magic{"GIF8"sv, "a picture (GIF)", "Save it as PNG"},
    Magic{"WEBP"sv, "a picture (WebP)", "Save it as PNG", 8},
    Magic{"II*\0"sv, "a picture (TIFF)", "Save it as PNG"},
    Magic{"MM\0*"sv, "a picture (TIFF)", "Save it as PNG"},
    Magic{"GGUF"sv, "a model in GGUF", kImport},
    Magic{"TFL3"sv, "a model of TensorFlow Lite (.tflite)", kArrays, 4},
    Magic{"tjgg"sv, "a model in old GGML", "Convert it to GGUF with llama.cpp"},
    Magic{"version https://git-lfs"sv, "a pointer of git-lfs in place of the file", kLfs},
    Magic{"version https://hawser"sv, "a pointer of git-lfs in place of the file", kLfs},
    Magic{"<!DOCTYPE"sv, "a page of HTML", kPage},
    Magic{"<!doctype"sv, "a page of HTML", kPage},
    Magic{"<html"sv, "a page of HTML", kPage},
    Magic{"<HTML"sv, "a page of HTML", kPage},
    Magic{"{\"__metadata__\""sv, "a file of safetensors", kImport, 8},
    Magic{"\x80\x02}"sv, "a pickle of Python (.pkl, old .pt)", kTorch},
    Magic{"\x80\x02\x8A"sv, "a pickle of Python (.pkl, old .pt)", kTorch},
    Magic{"\x80\x02"sv, "a pickle of Python (.pkl)", kTorch},
    Magic{"\x80\x03"sv, "a pickle of Python (.pkl)", kTorch},
    Magic{"\x80\x04"sv, "a pickle of Python (.pkl)", kTorch},
    Magic{"\x80\x05"sv, "a pickle of Python (.pkl)", kTorch},
    Magic{"\x7F"
          "ELF"sv,
          "a program or library (ELF)", "Load plugins with --plugin"},
};

constexpr std::string_view kZipMember = "PK\x03\x04";

// The names of members, as far as their local headers are within `begin`.
bool has_member(std::string_view begin, auto&& fits) {
  constexpr size_t kHeader = 30, kLength = 26;
  for (size_t at = begin.find(kZipMember); at != std::string_view::npos; at = begin.find(kZipMember, at + 4)) {
    if (begin.size() < at + kHeader) return false;
    const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(begin[at + i])); };
    if (fits(begin.substr(at + kHeader, byte(kLength) + 256 * byte(kLength + 1)))) return true;
  }
  return false;
}

FileKind kind_of_zip(std::string_view begin) {
  const auto has = [&](std::string_view part) {
    return has_member(begin, [&](std::string_view name) { return name.find(part) != std::string_view::npos; });
  };
  const auto ends = [&](std::string_view end) {
    return has_member(begin, [&](std::string_view name) { return name.ends_with(end); });
  };
  if (has("xl/")) return {"a workbook of Excel (.xlsx)", std::string(kAsTable)};
  if (ends("data.pkl")) return {"a checkpoint of PyTorch (.pt, .pth)", std::string(kTorch)};
  if (ends("model.weights.h5")) return {"a model of Keras (.keras)", std::string(kArrays)};
  if (ends(".npy")) return {"an archive of numpy (.npz)", std::string(kArrays)};
  if (has("opendocument.spreadsheet") || begin.find("opendocument.spreadsheet") != std::string_view::npos)
    return {"a spreadsheet of OpenDocument (.ods)", std::string(kAsTable)};
  if (ends("[Content_Types].xml")) return {"a document of Office (.xlsx, .docx)", std::string(kAsTable)};
  return {"a zip archive", std::string(kUnpack)};
}

}  // namespace

std::optional<FileKind> known_file_kind(std::string_view begin) {
  if (begin.starts_with(kZipMember) || begin.starts_with("PK\x05\x06")) return kind_of_zip(begin);
  for (const Magic& magic : kMagics)
    if (begin.substr(std::min(begin.size(), magic.at)).starts_with(magic.bytes))
      return FileKind{std::string(magic.name), std::string(magic.way_out)};
  return std::nullopt;
}

std::string why_no_text(std::string_view begin) {
  if (const std::optional<FileKind> kind = known_file_kind(begin))
    return concat("it is ", kind->name, ". ", kind->way_out);
  const size_t zero = begin.find('\0');
  if (zero == std::string_view::npos) return {};
  // ASCII in UTF-16 without a mark: every other byte is zero.
  for (size_t i = zero % 2; i < std::min<size_t>(begin.size(), 64); i += 2)
    if (begin[i] != '\0')
      return concat("it has a zero byte at offset ", zero, ": no text but bytes of an unknown kind");
  return concat("it is a text in UTF-16 without a mark. ", kAsUtf8);
}

namespace {

bool begins_as_text(std::string_view begin) {
  for (size_t at = 0; at < std::min<size_t>(begin.size(), 256);) {
    const size_t bytes = utf8_bytes(begin.substr(at));
    if (bytes == 0 || static_cast<unsigned char>(begin[at]) < '\t') return false;
    at += bytes;
  }
  return true;
}

// Kinds that only a model's place makes likely: as data they are texts, or bytes of any kind.
std::optional<std::string_view> kind_in_place_of_model(std::string_view begin) {
  for (const std::string_view pickle : {"(lp", "(dp", "(ip", "ccopy_reg\n", "cnumpy", "ccollections\n"})
    if (begin.starts_with(pickle)) return "a pickle of Python (.pkl)";
  if (begin.starts_with("\x80\x01")) return "a pickle of Python (.pkl)";
  const size_t text = begin.find_first_not_of(" \t\r\n");
  if (text != std::string_view::npos && (begin[text] == '{' || begin[text] == '[')) return "a text in JSON (.json)";
  // The fields of ONNX: ir_version, then one of producer_name, graph and their neighbors.
  if (begin.size() > 2 && begin[0] == '\x08' && begin[1] > 0 && begin[1] < 32 &&
      std::string_view("\x12\x1A\x22\x28\x32\x3A\x42").find(begin[2]) != std::string_view::npos)
    return "a model in ONNX (.onnx)";
  if (begin.size() >= 8 && begins_as_text(begin)) return "a text";
  return std::nullopt;
}

}  // namespace

std::string why_no_model(std::string_view begin) {
  constexpr std::string_view kRead = "A model is a run folder, or a .safetensors file of bitgrad";
  std::optional<FileKind> kind = known_file_kind(begin);
  if (!kind) {
    const auto other = kind_in_place_of_model(begin);
    if (!other) return {};
    kind = FileKind{std::string(*other), {}};
  }
  const auto is = [&](std::string_view part) { return kind->name.find(part) != std::string::npos; };
  if (is("PyTorch") || is("old .pt")) return concat(kind->name, ", which is never run. In Python: ", kFromTorch, '.');
  if (is("pickle"))
    return concat(kind->name, ", which is never run. In Python: safetensors.numpy.save_file of a dict of arrays.");
  if (is(".npz"))
    return concat(kind->name,
                  ". In Python: safetensors.numpy.save_file(dict(numpy.load('FILE.npz')), 'FILE.safetensors').");
  for (const std::string_view tensors : {"HDF5", "Keras", "TensorFlow", "MATLAB", "numpy", "ONNX"})
    if (is(tensors))
      return concat(kind->name, ". ", kRead,
                    "; in Python, safetensors.numpy.save_file writes a dict of arrays as one.");
  const bool other_file = kind->way_out == kUnpack || kind->way_out == kImport || kind->way_out == kLfs ||
                          kind->way_out == kPage || is("GGML");
  return concat(kind->name, ". ", other_file ? kind->way_out : kRead, '.');
}

std::string why_no_model_file(const std::string& path) {
  if (!file_system().exists(path) || file_system().is_directory(path)) return {};
  std::string begin(size_t{1} << 16, '\0');
  begin.resize(file_system().open_read(path)->read_at(0, reinterpret_cast<uint8_t*>(begin.data()), begin.size()));
  return why_no_model(begin);
}

}  // namespace bitgrad
