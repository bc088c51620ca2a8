// idx files (LeCun's MNIST page, 1998): two zero bytes, the type of an element (08 = unsigned byte), the number of
// dimensions, each dimension as a big-endian uint32, then the elements in row-major order. Images are idx3 [n, rows,
// columns], labels idx1 [n].
//
// Nothing that a header says is trusted: both headers are read, and held against each other and the lengths of the
// files, before memory is asked for. No more is inflated than a header promises, and one byte. A gzip stream whose own
// length field disagrees is inflated once without storing anything.
#include <algorithm>
#include <array>
#include <iomanip>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text_stream.h"
#include "data/content.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/image_dataset.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kDefaultClasses = 10;
constexpr int64_t kMostClasses = 256;  // a label is one byte

template <typename... Parts>
[[noreturn]] void fail_idx(const std::string& path, const Parts&... parts) {
  fail_with(ErrorCode::kData, "data.idx", path, ": ", parts...);
}

std::string hex(uint32_t value, int digits) {
  TextWriter out;
  out << "0x" << std::hex << std::setw(digits) << std::setfill('0') << value;
  return out.str();
}

std::string type_name(uint8_t type) {
  constexpr std::array<std::pair<uint8_t, const char*>, 6> kTypes{
      {{0x08, "uint8"}, {0x09, "int8"}, {0x0B, "int16"}, {0x0C, "int32"}, {0x0D, "float32"}, {0x0E, "float64"}}};
  for (const auto& [code, name] : kTypes) {
    if (code == type) return concat(hex(type, 2), " (", name, ")");
  }
  return hex(type, 2);
}

// An open file, and what its header says.
struct IdxFile {
  IdxFile(const DatasetSpec& spec, const std::string& key, const std::string& value)
      : path(data_path(spec.root, value)),
        file(open_data_file("data.idx", spec, key, value, "an idx file")),
        reader(path, *file) {}
  std::string path;
  std::unique_ptr<InputFile> file;
  ContentReader reader;
  std::vector<int64_t> dims;
  int64_t header_bytes = 0, total = 0;  // total: of the elements
  TrackedBytes elements;
};

// Reads and checks the header; `rank` and `what` are what the caller needs.
void read_header(IdxFile& idx, int rank, const char* what) {
  ContentReader& reader = idx.reader;
  const std::string& path = idx.path;
  std::array<uint8_t, 16> head{};
  const int64_t expected = 4 + 4 * rank;
  const int64_t got = reader.read(head.data(), 4);
  if (got == 4 && (head[0] != 0 || head[1] != 0)) {
    fail_idx(path, "magic at offset 0: got ", hex((uint32_t{head[0]} << 8) | head[1], 4),
             ", expected 0x0000. Not an idx file.");
  }
  if (got == 4 && head[2] != 0x08) {
    fail_idx(path, "element type at offset 2: got ", type_name(head[2]), ", expected 0x08 (uint8).");
  }
  if (got == 4 && head[3] != rank) {
    const bool swapped = (rank == 3 && head[3] == 1) || (rank == 1 && head[3] == 3);
    fail_idx(path, "dimensions at offset 3: got ", int{head[3]}, ", expected ", rank, " (", what, ").",
             swapped ? " Are images and labels exchanged?" : "");
  }
  if (got < 4 || reader.read(head.data() + 4, expected - 4) < expected - 4) {
    fail_idx(path, "truncated header: got ", reader.offset(), " bytes, expected ", expected, ".");
  }
  for (int d = 0; d < rank; ++d) {
    const uint8_t* b = head.data() + 4 + 4 * d;
    const int64_t extent = (int64_t{b[0]} << 24) | (int64_t{b[1]} << 16) | (int64_t{b[2]} << 8) | int64_t{b[3]};
    if (extent == 0)
      fail_idx(path, "dimension ", d, " at offset ", 4 + 4 * d, ": got 0, expected 1 or more. The set is empty.");
    idx.dims.push_back(extent);
  }
  idx.header_bytes = expected;
}

[[noreturn]] void fail_trailing(const IdxFile& idx) {
  fail_idx(idx.path, "trailing bytes: got more content at offset ", idx.header_bytes + idx.total,
           ", expected its end by the header at offset 4.");
}

// The number of elements, held against what the file can hold.
void check_size(IdxFile& idx) {
  const ContentReader& reader = idx.reader;
  const int64_t room = reader.longest() - idx.header_bytes;
  int64_t total = 1;
  std::string shape;
  bool fits = true;
  for (const int64_t extent : idx.dims) {
    shape += concat(shape.empty() ? "" : " x ", extent);
    fits = fits && total <= room / extent;
    if (fits) total *= extent;
  }
  if (!fits) {
    fail_idx(idx.path, "elements: got ", shape, " in the header at offset 4, expected at most ", room,
             ", which is all that a file of this length ",
             reader.compressed()
                 ? "may inflate to (100 times its length, or 16 MiB). The header is damaged or the file "
                   "truncated; if these are the data that you mean, unpack the file."
                 : "holds after the header. The header is damaged or the file truncated.");
  }
  idx.total = total;
  if (!reader.compressed() && total < room) fail_trailing(idx);
}

// The last field of a gzip file: the length of its content modulo 2^32.
uint32_t gzip_length(InputFile& file) {
  std::array<uint8_t, 4> field{};
  file.read_at(std::max<int64_t>(file.size() - 4, 0), field.data(), field.size());
  return uint32_t{field[0]} | (uint32_t{field[1]} << 8) | (uint32_t{field[2]} << 16) | (uint32_t{field[3]} << 24);
}

void read_exactly(const IdxFile& idx, ContentReader& reader, uint8_t* to) {
  const int64_t got = reader.read(to, idx.total);
  if (got < idx.total) {
    fail_idx(idx.path, "truncated: content ends at offset ", reader.offset(), ", expected ", idx.total - got,
             " more bytes by the header at offset 4.");
  }
  uint8_t extra = 0;
  if (reader.read(&extra, 1) != 0) fail_trailing(idx);
}

void read_elements(IdxFile& idx) {
  if (idx.reader.compressed() && gzip_length(*idx.file) != static_cast<uint32_t>(idx.header_bytes + idx.total)) {
    ContentReader trial(idx.path, *idx.file);
    trial.read(nullptr, idx.header_bytes);
    read_exactly(idx, trial, nullptr);
  }
  idx.elements = TrackedBytes(idx.total, MemoryKind::kDataset);
  read_exactly(idx, idx.reader, idx.elements.data());
}

void check_labels(const IdxFile& labels, int64_t classes) {
  const uint8_t* label = labels.elements.data();
  for (int64_t i = 0; i < labels.elements.size(); ++i) {
    if (label[i] >= classes) {
      fail_idx(labels.path, "label ", i, " at offset ", labels.header_bytes + i, ": got ", int{label[i]},
               ", expected 0 .. ", classes - 1, ".", classes < kMostClasses ? " Set classes if the set has more." : "");
    }
  }
}

}  // namespace

std::unique_ptr<Dataset> make_idx_dataset(const DatasetSpec& spec) {
  const int64_t classes = spec.classes == 0 ? kDefaultClasses : spec.classes;
  require(classes >= 1 && classes <= kMostClasses, "data.idx", "classes: got ", classes, ", expected 1 .. ",
          kMostClasses, ".");
  check_affine(spec.affine);
  // Labels first: they are small, and a mistake in them shows at once.
  IdxFile labels(spec, "labels", spec.labels);
  read_header(labels, 1, "labels");
  check_size(labels);
  IdxFile images(spec, "images", spec.images);
  read_header(images, 3, "images");
  check_size(images);
  if (images.dims[0] != labels.dims[0]) {
    fail_idx(images.path, "images at offset 4: got ", images.dims[0], ", expected ", labels.dims[0],
             ", the number of labels in '", labels.path, "' at offset 4.");
  }
  read_elements(labels);
  check_labels(labels, classes);
  read_elements(images);
  return std::make_unique<ImageDataset>(images.path, std::vector<int64_t>{images.dims[1], images.dims[2]}, classes,
                                        spec.affine, std::move(images.elements), std::move(labels.elements));
}

}  // namespace bitgrad::data
