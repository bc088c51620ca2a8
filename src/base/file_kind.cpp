#include "bitgrad/base/file.h"

#include <algorithm>
#include <array>

#include "bitgrad/base/error.h"
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
constexpr std::string_view kArraysOf =
    "Save the weights of its float model as safetensors, or as npz: numpy.savez(NAME, **{name: array, ...})";
constexpr std::string_view kHdf =
    "Write a table as CSV, in Python with pandas: read_...(FILE).to_csv(NAME, index=False); the weights of a model of "
    "Keras as npz: numpy.savez(NAME, **{w.path: w.numpy() for w in model.weights})";
constexpr std::string_view kOnnx =
    "Save its weights, in Python: safetensors.numpy.save_file({t.name: onnx.numpy_helper.to_array(t) for t in "
    "onnx.load('FILE').graph.initializer}, 'FILE.safetensors')";
constexpr std::string_view kPictures = "Pictures are read by the format image_folder, by bitgrad data pack and predict";
constexpr std::string_view kAsPng = "Save it as PNG or JPEG";
constexpr std::string_view kLfs = "Fetch the file: git lfs pull";
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
    Magic{"\x89HDF\r\n\x1A\n"sv, "a file of HDF5 (.h5, .hdf5, .keras)", kHdf},
    Magic{"TFL3"sv, "a model in TensorFlow Lite (.tflite)", kArraysOf, 4},
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
    Magic{"ustar\0"sv, "an archive of tar (.tar)", kUnpack, 257},
    Magic{"ustar  \0"sv, "an archive of tar (.tar)", kUnpack, 257},
    Magic{"\x93NUMPY"sv, "an array of numpy (.npy)", kArrays},
    Magic{"\x89PNG\r\n\x1A\n"sv, "a picture (PNG)", kPictures},
    Magic{"\xFF\xD8\xFF"sv, "a picture (JPEG)", kPictures},
    Magic{"GIF8"sv, "a picture (GIF)", kAsPng},
    Magic{"WEBP"sv, "a picture (WebP)", kAsPng, 8},
    Magic{"II*\0"sv, "a picture (TIFF)", kAsPng},
    Magic{"MM\0*"sv, "a picture (TIFF)", kAsPng},
    Magic{"II+\0"sv, "a picture (TIFF)", kAsPng},
    Magic{"MM\0+"sv, "a picture (TIFF)", kAsPng},
    Magic{"ftypavi"sv, "a picture (AVIF)", kAsPng, 4},
    Magic{"ftyphei"sv, "a picture (HEIC)", kAsPng, 4},
    Magic{"ftyphev"sv, "a picture (HEIC)", kAsPng, 4},
    Magic{"ftypmif1"sv, "a picture (HEIF)", kAsPng, 4},
    Magic{"ftypmsf1"sv, "a picture (HEIF)", kAsPng, 4},
    Magic{"jP  \r\n\x87\n"sv, "a picture (JPEG 2000)", kAsPng, 4},
    Magic{"\xFF\x4F\xFF\x51"sv, "a picture (JPEG 2000)", kAsPng},
    Magic{"JXL \r\n\x87\n"sv, "a picture (JPEG XL)", kAsPng, 4},
    Magic{"\xFF\x0A"sv, "a picture (JPEG XL)", kAsPng},
    Magic{"8BPS"sv, "a picture (Photoshop)", kAsPng},
    Magic{"\x76\x2F\x31\x01"sv, "a picture (OpenEXR)", kAsPng},
    Magic{"P4\n"sv, "a picture (PBM)", kAsPng},
    Magic{"P5\n"sv, "a picture (PGM)", kAsPng},
    Magic{"P6\n"sv, "a picture (PPM)", kAsPng},
    Magic{"$FL2"sv, "a table of SPSS (.sav)", kPandas},
    Magic{"GGUF"sv, "a model in GGUF", kImport},
    Magic{"tjgg"sv, "a model in old GGML", "Convert it to GGUF with llama.cpp"},
    Magic{"version https://git-lfs"sv, "a git-lfs pointer instead of the file", kLfs},
    Magic{"version https://hawser"sv, "a git-lfs pointer instead of the file", kLfs},
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

// Letters and digits alone may begin a text as well, which has no control characters.
bool may_begin_text(std::string_view magic) {
  return std::all_of(magic.begin(), magic.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '\n';
  });
}

// Texts that are no tables; after blanks, in any case of letters.
std::optional<FileKind> kind_of_markup(std::string_view begin) {
  begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
  const auto starts = [&](std::string_view mark) {
    return begin.size() >= mark.size() && std::equal(mark.begin(), mark.end(), begin.begin(), [](char m, char c) {
             return m == (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
           });
  };
  if (starts("<!doctype html") || starts("<html"))
    return FileKind{"a page of HTML", "Fetch the file itself, not the page that shows it", true};
  if (starts("<svg")) return FileKind{"a picture (SVG)", std::string(kAsPng), true};
  if (starts("<?xml")) return FileKind{"a text in XML", std::string(kAsTable), true};
  return std::nullopt;
}

// ASCII in UTF-16 without a mark: every other byte is zero, and the rest are characters of texts.
bool is_unmarked_utf16(std::string_view begin) {
  const size_t zero = begin.find('\0');
  if (zero > 1 || begin.size() < 4) return false;
  for (size_t i = 0; i < std::min<size_t>(begin.size(), 64); ++i)
    if (i % 2 == zero ? begin[i] != '\0' : is_control_byte(begin[i])) return false;
  return true;
}

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
  if (ends("model.weights.h5")) return {"a model of Keras (.keras)", std::string(kHdf)};
  if (ends(".npy")) return {"an archive of numpy (.npz)", std::string(kArrays)};
  if (has("opendocument.spreadsheet") || begin.find("opendocument.spreadsheet") != std::string_view::npos)
    return {"a spreadsheet of OpenDocument (.ods)", std::string(kAsTable)};
  if (ends("[Content_Types].xml")) return {"a document of Office (.xlsx, .docx)", std::string(kAsTable)};
  return {"a zip archive", std::string(kUnpack)};
}

// A message of protobuf whose first field is ir_version, a small number, and whose second is a text or a message.
bool is_onnx(std::string_view begin) {
  // producer, domain, doc_string, model_version, graph, opset_import
  constexpr std::string_view kFields = "\x12\x1A\x22\x28\x32\x3A\x42";
  return begin.size() >= 4 && begin[0] == '\x08' && begin[1] > 0 && begin[1] < 32 &&
         kFields.find(begin[2]) != std::string_view::npos;
}

}  // namespace

bool is_control_byte(char byte) {
  constexpr std::string_view kOfTexts = "\b\t\n\v\f\r\x1B";
  return static_cast<unsigned char>(byte) < 0x20 && kOfTexts.find(byte) == std::string_view::npos;
}

std::optional<FileKind> known_file_kind(std::string_view begin) {
  if (begin.starts_with(kZipMember) || begin.starts_with("PK\x05\x06")) return kind_of_zip(begin);
  if (is_onnx(begin)) return FileKind{"a model in ONNX", std::string(kOnnx)};
  constexpr size_t kProbed = size_t{1} << 16;
  const std::string_view probed = begin.substr(0, kProbed);
  const bool control = std::any_of(probed.begin(), probed.end(), is_control_byte);
  for (const Magic& magic : kMagics)
    if (begin.substr(std::min(begin.size(), magic.at)).starts_with(magic.bytes) &&
        (control || !may_begin_text(magic.bytes)))
      return FileKind{std::string(magic.name), std::string(magic.way_out)};
  if (begin.starts_with("BM") && begin.size() > 10 && begin.substr(6, 4) == "\0\0\0\0"sv)
    return FileKind{"a picture (BMP)", std::string(kAsPng)};
  return kind_of_markup(begin);
}

std::string why_no_text(std::string_view begin) {
  if (const std::optional<FileKind> kind = known_file_kind(begin))
    return concat("it is ", kind->name, ". ", kind->way_out);
  const size_t zero = begin.find('\0');
  if (zero == std::string_view::npos) return {};
  if (is_unmarked_utf16(begin)) return concat("it is a text in UTF-16 without a mark. ", kAsUtf8);
  return concat("it has a zero byte at offset ", zero, ": no text but bytes of an unknown kind");
}

void require_text(std::string_view where, const std::string& path, std::string_view begin) {
  const std::optional<FileKind> kind = known_file_kind(begin);
  if (kind && !kind->text)
    fail_with(ErrorCode::kData, where, printable(path), ": got ", kind->name, ", expected a text. ", kind->way_out);
  if (is_unmarked_utf16(begin))
    fail_with(ErrorCode::kData, where, printable(path), ": got a text in UTF-16 without a mark, expected UTF-8. ",
              kAsUtf8);
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
  for (const std::string_view tensors : {"MATLAB", "numpy"})
    if (is(tensors))
      return concat(kind->name, ". ", kRead,
                    "; in Python, safetensors.numpy.save_file writes a dict of arrays as one.");
  const bool other_file = kind->way_out == kUnpack || kind->way_out == kImport || kind->way_out == kLfs ||
                          kind->way_out == kOnnx || kind->way_out == kArraysOf || kind->way_out == kHdf || kind->text ||
                          is("GGML");
  return concat(kind->name, ". ", other_file ? kind->way_out : kRead, '.');
}

std::string why_no_model_file(const std::string& path) {
  if (!file_system().exists(path) || file_system().is_directory(path)) return {};
  std::string begin(size_t{1} << 16, '\0');
  begin.resize(file_system().open_read(path)->read_at(0, reinterpret_cast<uint8_t*>(begin.data()), begin.size()));
  return why_no_model(begin);
}

}  // namespace bitgrad
