// idx files (LeCun's MNIST page, 1998): two zero bytes, the type of an element (08 = unsigned byte), the number of
// dimensions, each dimension as a big-endian uint32, then the elements in row-major order. Images are idx3 [n, rows,
// columns], labels idx1 [n].
//
// Nothing that a header says is trusted: sizes are held against the file before memory is asked for, and a gzip stream
// whose own length field disagrees is inflated once without storing anything.
#include <array>
#include <iomanip>
#include <sstream>

#include "bitgrad/base/error.h"
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
  std::ostringstream out;
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

struct IdxArray {
  std::vector<int64_t> dims;
  int64_t header_bytes = 0;
  TrackedBytes elements;
};

// Reads and checks the header; `rank` and `what` are what the caller needs.
void read_header(ContentReader& reader, const std::string& path, int rank, const char* what, IdxArray& array) {
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
    array.dims.push_back(extent);
  }
  array.header_bytes = expected;
}

// The number of elements, held against what the file can hold.
int64_t check_size(const ContentReader& reader, const std::string& path, const IdxArray& array) {
  const int64_t room = reader.longest() - array.header_bytes;
  int64_t total = 1;
  std::string shape;
  bool fits = true;
  for (const int64_t extent : array.dims) {
    shape += concat(shape.empty() ? "" : " x ", extent);
    fits = fits && total <= room / extent;
    if (fits) total *= extent;
  }
  if (!fits) {
    fail_idx(path, "elements: got ", shape, " in the header at offset 4, expected at most ", room,
             ", which is all that a file of ", "this length ",
             reader.compressed() ? "can inflate to" : "holds after the header",
             ". The header is damaged or the file truncated.");
  }
  return total;
}

// The last field of a gzip file: the length of its content modulo 2^32.
uint32_t gzip_length(const std::vector<uint8_t>& file) {
  uint32_t length = 0;
  for (size_t i = 0; i < 4 && i < file.size(); ++i) length = (length << 8) | file[file.size() - 1 - i];
  return length;
}

void read_exactly(ContentReader& reader, const std::string& path, uint8_t* to, int64_t total) {
  const int64_t got = reader.read(to, total);
  if (got < total) {
    fail_idx(path, "truncated: content ends at offset ", reader.offset(), ", expected ", total - got,
             " more bytes by the header at offset 4.");
  }
  const int64_t end = reader.offset();
  uint8_t extra = 0;
  if (reader.read(&extra, 1) != 0) {
    fail_idx(path, "trailing bytes: got more content at offset ", end, ", expected its end by the header at offset 4.");
  }
}

IdxArray read_idx(const std::string& path, const std::vector<uint8_t>& file, int rank, const char* what) {
  IdxArray array;
  ContentReader reader(path, file);
  read_header(reader, path, rank, what, array);
  const int64_t total = check_size(reader, path, array);
  if (reader.compressed() && gzip_length(file) != static_cast<uint32_t>(array.header_bytes + total)) {
    ContentReader trial(path, file);
    trial.read(nullptr, array.header_bytes);
    read_exactly(trial, path, nullptr, total);
  }
  array.elements = TrackedBytes(total, MemoryKind::kDataset);
  read_exactly(reader, path, array.elements.data(), total);
  return array;
}

void check_labels(const std::string& path, const IdxArray& labels, int64_t classes) {
  const uint8_t* label = labels.elements.data();
  for (int64_t i = 0; i < labels.elements.size(); ++i) {
    if (label[i] >= classes) {
      fail_idx(path, "label ", i, " at offset ", labels.header_bytes + i, ": got ", int{label[i]}, ", expected 0 .. ",
               classes - 1, ".", classes < kMostClasses ? " Set classes if the set has more." : "");
    }
  }
}

}  // namespace

std::unique_ptr<Dataset> make_idx_dataset(const DatasetSpec& spec) {
  const int64_t classes = spec.classes == 0 ? kDefaultClasses : spec.classes;
  require(classes >= 1 && classes <= kMostClasses, "data.idx", "classes: got ", classes, ", expected 1 .. ",
          kMostClasses, ".");
  check_affine(spec.affine);
  const std::string images_path = data_path(spec.root, spec.images);
  const std::string labels_path = data_path(spec.root, spec.labels);
  // Labels first: they are small, and a mistake in them shows at once.
  IdxArray labels =
      read_idx(labels_path, read_data_file("data.idx", spec, "labels", spec.labels, "an idx file"), 1, "labels");
  check_labels(labels_path, labels, classes);
  IdxArray images =
      read_idx(images_path, read_data_file("data.idx", spec, "images", spec.images, "an idx file"), 3, "images");
  if (images.dims[0] != labels.dims[0]) {
    fail_idx(images_path, "images at offset 4: got ", images.dims[0], ", expected ", labels.dims[0],
             ", the number of labels in '", labels_path, "' at offset 4.");
  }
  return std::make_unique<ImageDataset>(images_path, std::vector<int64_t>{images.dims[1], images.dims[2]}, classes,
                                        spec.affine, std::move(images.elements), std::move(labels.elements));
}

}  // namespace bitgrad::data
