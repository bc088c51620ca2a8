#include "samples_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/data/picture.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kPredict = "predict";
constexpr int64_t kMostBytes = int64_t{1} << 33;  // per input

std::string shown(const std::string& path) { return path == "-" ? "standard input" : path; }

std::vector<uint8_t> bytes_of(const std::string& path) {
  if (path == "-") return read_standard_input(kMostBytes);
  if (file_system().is_directory(path))
    fail_with(ErrorCode::kData, kPredict, path,
              ": got a folder, expected a file of samples (idx, npy, npz, csv, PNG, JPEG)");
  if (!file_system().exists(path)) fail_with(ErrorCode::kData, kPredict, path, ": no such file");
  return read_file(path, kMostBytes);
}

SampleFormat format_of(const std::string& path, const std::vector<uint8_t>& bytes) {
  const auto begins = [&](std::initializer_list<uint8_t> magic) {
    return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
  };
  if (begins({0x93, 'N', 'U', 'M', 'P', 'Y'})) return SampleFormat::kNpy;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::optional<FileKind> kind = known_file_kind(text);
  if (kind && kind->name.ends_with("(.npz)")) return SampleFormat::kNpz;
  if (begins({0x89, 'P', 'N', 'G'}) || begins({0xFF, 0xD8, 0xFF})) return SampleFormat::kPicture;
  for (const std::string_view ending : {".csv.gz", ".txt.gz", ".tsv.gz"})
    if (path.ends_with(ending)) return SampleFormat::kCsv;
  if (begins({0x1F, 0x8B}) || begins({0, 0})) return SampleFormat::kIdx;
  for (const std::string_view ending : {".csv", ".txt", ".tsv", ".data"})
    if (path.ends_with(ending)) return SampleFormat::kCsv;
  if (const std::string why = why_no_text(text); !why.empty())
    fail_with(ErrorCode::kData, kPredict, path, ": ", why, ". Expected idx, npy, csv, PNG or JPEG");
  fail_with(
      ErrorCode::kData, kPredict, path,
      ": got bytes of no format that is known by its beginning, and no name that ends in .csv, expected idx, npy, "
      "npz, csv, PNG or JPEG. --format names one");
}

// Converts CSV values to bytes.
Samples as_pixels(const Samples& values) {
  Samples out{values.name, StoredAs::kUint8, values.shape, values.count,
              TrackedBytes(values.count * values.shape.numel(), MemoryKind::kDataset)};
  const auto* const from = reinterpret_cast<const float*>(values.bytes.data());
  for (int64_t i = 0; i < out.bytes.size(); ++i) {
    if (!(from[i] >= 0.0f && from[i] <= 255.0f && from[i] == std::floor(from[i])))
      fail_with(ErrorCode::kData, kPredict, values.name, ": --pixels: sample ", i / values.shape.numel(), ", value ",
                i % values.shape.numel() + 1, ": got ", from[i], ", expected a whole number 0 .. 255");
    out.bytes.data()[i] = static_cast<uint8_t>(from[i]);
  }
  return out;
}

Samples read_csv(const std::string& path, const std::vector<uint8_t>& bytes, bool pixels, const Predictor& model,
                 std::vector<std::string>& notes) {
  require(!pixels || model.table() == nullptr, kPredict, path,
          ": --pixels: the model was trained on a table of text, whose ", "values are not pixels");
  Samples samples = model.read_csv(path, {bytes.begin(), bytes.end()}, &notes);
  return pixels && model.input().dtype != dtypes::int32 ? as_pixels(samples) : std::move(samples);
}

Samples picture_sample(const std::string& path, const Picture& picture) {
  const std::vector<int64_t> dims = picture.channels == 1
                                        ? std::vector<int64_t>{picture.rows, picture.columns}
                                        : std::vector<int64_t>{picture.rows, picture.columns, picture.channels};
  Samples out{path, StoredAs::kUint8, Shape(dims), 1, TrackedBytes(std::ssize(picture.bytes), MemoryKind::kDataset)};
  std::copy(picture.bytes.begin(), picture.bytes.end(), out.bytes.data());
  return out;
}

Samples read_picture(const std::string& path, const std::vector<uint8_t>& bytes, const Shape& sample) {
  Picture picture;
  try {
    picture = decode_picture(bytes);
  } catch (const Error& error) {
    throw Error(concat('[', kPredict, "] ", path, ": ", error.what()), error.code());
  }
  const int64_t pixels = picture.rows * picture.columns;
  if (sample.rank() == 2 || (sample.rank() == 3 && (sample[2] == 1 || sample[2] == 3))) {
    const int64_t channels = sample.rank() == 3 ? sample[2] : 1;
    return picture_sample(path, resized(with_channels(std::move(picture), channels), sample[0], sample[1]));
  }
  const int64_t wanted = sample.numel();
  if (sample.rank() != 1 || (wanted != pixels && wanted != 3 * pixels))
    fail_with(ErrorCode::kData, kPredict, path, ": got a picture of ", picture.rows, " x ", picture.columns,
              " pixels, the model expects ", sample,
              sample.rank() == 1 ? ": as many gray pixels, or three times as many for colors. Resize the picture" : "");
  return picture_sample(path, with_channels(std::move(picture), wanted == pixels ? 1 : 3));
}

}  // namespace

Samples read_samples(const std::string& path, const SampleInput& input, const Predictor& predictor,
                     std::vector<std::string>& notes) {
  const Form& model = predictor.input();
  require(path != "-" || input.format != SampleFormat::kByContent, kPredict,
          "standard input needs --format: idx, npy, npz, csv or picture");
  std::vector<uint8_t> bytes = bytes_of(path);
  const std::string name = shown(path);
  const SampleFormat format = input.format == SampleFormat::kByContent ? format_of(name, bytes) : input.format;
  if (format == SampleFormat::kCsv) return read_csv(name, bytes, input.pixels, predictor, notes);
  if (format == SampleFormat::kPicture) return read_picture(name, bytes, model.sample);
  const std::unique_ptr<InputFile> file = memory_file(std::move(bytes));
  const bool ids = model.dtype == dtypes::int32;
  if (format == SampleFormat::kNpy) return read_npy_samples(name, *file, ids);
  return format == SampleFormat::kNpz ? read_npz_samples(name, *file, ids) : read_idx_samples(name, *file);
}

}  // namespace bitgrad::cli
