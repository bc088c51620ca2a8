// idx files (LeCun's MNIST page, 1998): two zero bytes, the element type (08 = unsigned byte), the number of
// dimensions, each dimension as a big-endian uint32, then the elements in row-major order, big-endian.
// - images: uint8 [n, rows, columns], or values of any other type, [n, ...] with 2 to 4 dimensions, used as they are;
// - labels, classes: uint8, int8, int16 or int32 [n], or [n, positions];
// - targets, values: any type, [n] or [n, ...].
// Values: float64 is rounded to fp32; an integer that fp32 cannot represent is rejected.
//
// Headers are untrusted: both are read and checked against each other and against the lengths of the files before
// memory is allocated. At most one byte more than a header promises is decompressed. A gzip stream whose own length
// field disagrees with the header is decompressed once without storing anything.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iomanip>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/samples.h"
#include "data/data_file.h"
#include "data/describe_parts.h"
#include "data/formats.h"
#include "data/image_dataset.h"
#include "data/npy_array.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kDefaultClasses = 10;
constexpr int64_t kMostClasses = 65536;
constexpr int kMostDimensions = 4;

template <typename... Parts>
[[noreturn]] void fail_idx(const std::string& path, const Parts&... parts) {
  fail_with(ErrorCode::kData, "data.idx", printable(path), ": ", parts...);
}

std::string hex(uint32_t value, int digits) {
  TextWriter out;
  out << "0x" << std::hex << std::setw(digits) << std::setfill('0') << value;
  return out.str();
}

struct ElementType {
  uint8_t code;
  std::string_view name;
  char kind;  // of NpyHeader
  int64_t bytes;
};
constexpr std::array<ElementType, 6> kTypes{{{0x08, "uint8", 'u', 1},
                                             {0x09, "int8", 'i', 1},
                                             {0x0B, "int16", 'i', 2},
                                             {0x0C, "int32", 'i', 4},
                                             {0x0D, "float32", 'f', 4},
                                             {0x0E, "float64", 'f', 8}}};
constexpr uint8_t kUint8 = 0x08, kInt8 = 0x09, kInt16 = 0x0B, kInt32 = 0x0C, kFloat32 = 0x0D, kFloat64 = 0x0E;

const ElementType* type_of(uint8_t code) {
  for (const ElementType& type : kTypes)
    if (type.code == code) return &type;
  return nullptr;
}
std::string type_name(uint8_t code) {
  const ElementType* type = type_of(code);
  return type == nullptr ? hex(code, 2) : concat(hex(code, 2), " (", type->name, ")");
}

// Requirements on a file.
struct Form {
  std::vector<uint8_t> types;
  int min = 1, max = 1;  // dimensions
  std::string_view what;
};

Form images_form() { return {{kUint8, kInt8, kInt16, kInt32, kFloat32, kFloat64}, 2, kMostDimensions, "images"}; }

// An open file and its parsed header.
struct IdxFile {
  IdxFile(const DatasetSpec& spec, const std::string& key, const std::string& value)
      : path(data_path(spec.root, value)),
        opened(open_data_file("data.idx", spec, key, value, "an idx file")),
        file(opened.get()),
        reader(path, *file) {}
  IdxFile(std::string name, InputFile& of) : path(std::move(name)), file(&of), reader(path, of) {}
  IdxFile(const IdxFile&) = delete;
  std::string path;
  std::unique_ptr<InputFile> opened;  // nullptr if the caller owns the file
  InputFile* file;
  ContentReader reader;
  std::vector<int64_t> dims;
  ElementType type{};
  int64_t header_bytes = 0, total = 0, bytes = 0;  // total: number of elements; bytes: their size
  NpyArray array;                                  // the elements
};

void check_type(const IdxFile& idx, uint8_t code, const Form& form) {
  if (std::find(form.types.begin(), form.types.end(), code) != form.types.end()) return;
  fail_idx(idx.path, "element type at offset 2: got ", type_name(code), ", expected ",
           joined(form.types, " or ", type_name), ".");
}

// Byte images have rows and columns; value images may have any axes.
void check_rank(const IdxFile& idx, int rank, const Form& form) {
  const bool pixels = form.what == "images" && idx.type.code == kUint8;
  const int min = pixels ? 3 : form.min, max = pixels ? 3 : form.max;
  if (rank >= min && rank <= max) return;
  const bool swapped = (form.what == "images" && rank == 1) || (form.what == "labels" && rank == 3);
  fail_idx(idx.path, "dimensions at offset 3: got ", rank, ", expected ", min, " (", form.what, ")",
           max > min ? concat(" .. ", max) : std::string(), ".", swapped ? " Are images and labels exchanged?" : "");
}

// Reads the header and checks it against the caller's requirements.
void read_header(IdxFile& idx, const Form& form) {
  ContentReader& reader = idx.reader;
  const std::string& path = idx.path;
  std::array<uint8_t, 4 + 4 * kMostDimensions> head{};
  const int64_t got = reader.read(head.data(), 4);
  if (got == 4 && (head[0] != 0 || head[1] != 0)) {
    fail_idx(path, "magic at offset 0: got ", hex((uint32_t{head[0]} << 8) | head[1], 4),
             ", expected 0x0000. Not an idx file.");
  }
  if (got == 4) {
    check_type(idx, head[2], form);
    idx.type = *type_of(head[2]);
    idx.array.header.kind = idx.type.kind;
    idx.array.header.width = idx.type.bytes;
    check_rank(idx, head[3], form);
  }
  const int rank = got == 4 ? int{head[3]} : form.what == "images" ? 3 : form.min;
  const int64_t expected = 4 + 4 * rank;
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
  fail_idx(idx.path, "trailing bytes: got more content at offset ", idx.header_bytes + idx.bytes,
           ", expected its end by the header at offset 4.");
}

// Computes the number of elements and checks it against the capacity of the file.
void check_size(IdxFile& idx) {
  const ContentReader& reader = idx.reader;
  const int64_t room = (reader.longest() - idx.header_bytes) / idx.type.bytes;
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
                   "truncated; if this is the intended file, unpack it first."
                 : "holds after the header. The header is damaged or the file truncated.");
  }
  idx.total = total;
  idx.bytes = total * idx.type.bytes;
  if (!reader.compressed() && idx.bytes < reader.longest() - idx.header_bytes) fail_trailing(idx);
}

// Last field of a gzip file: the length of its content modulo 2^32.
uint32_t gzip_length(InputFile& file) {
  std::array<uint8_t, 4> field{};
  file.read_at(std::max<int64_t>(file.size() - 4, 0), field.data(), field.size());
  return uint32_t{field[0]} | (uint32_t{field[1]} << 8) | (uint32_t{field[2]} << 16) | (uint32_t{field[3]} << 24);
}

void read_exactly(const IdxFile& idx, ContentReader& reader, uint8_t* to) {
  const int64_t got = reader.read(to, idx.bytes);
  if (got < idx.bytes) {
    fail_idx(idx.path, "truncated: content ends at offset ", reader.offset(), ", expected ", idx.bytes - got,
             " more bytes by the header at offset 4.");
  }
  uint8_t extra = 0;
  if (reader.read(&extra, 1) != 0) fail_trailing(idx);
}

void read_elements(IdxFile& idx) {
  if (idx.reader.compressed() && gzip_length(*idx.file) != static_cast<uint32_t>(idx.header_bytes + idx.bytes)) {
    ContentReader trial(idx.path, *idx.file);
    trial.read(nullptr, idx.header_bytes);
    read_exactly(idx, trial, nullptr);
  }
  idx.array.raw = TrackedBytes(idx.bytes, MemoryKind::kDataset);
  read_exactly(idx, idx.reader, idx.array.raw.data());
  uint8_t* const data = idx.array.raw.data();
  for (int64_t i = 0; idx.type.bytes > 1 && i < idx.bytes; i += idx.type.bytes)
    std::reverse(data + i, data + i + idx.type.bytes);  // big-endian
}

void check_labels(const IdxFile& labels, int64_t classes, int64_t max, int64_t ignore) {
  for (int64_t i = 0; i < labels.total; ++i) {
    const auto label = static_cast<int64_t>(labels.array.number_at(i));
    const bool ignored = labels.dims.size() > 1 && label == ignore;
    if (ignored || (label >= 0 && label < classes)) continue;
    if (label >= max)
      fail_idx(labels.path, "label ", i, " at offset ", labels.header_bytes + i * labels.type.bytes, ": got ", label,
               ", expected a class below ", max, ". Number the classes from 0.");
    int64_t largest = label;
    for (int64_t j = 0; j < labels.total; ++j)
      largest = std::max(largest, static_cast<int64_t>(labels.array.number_at(j)));
    fail_idx(labels.path, "label ", i, " at offset ", labels.header_bytes + i * labels.type.bytes, ": got ", label,
             ", expected 0 .. ", classes - 1, label >= classes && largest < max ? more_classes_text(largest) : ".");
  }
}

// Converts the elements to fp32, in place if they have the same size; `place` describes element i in messages.
template <typename Place>
TrackedBytes values_of(IdxFile& idx, Place place) {
  TrackedBytes other;
  if (idx.type.bytes != 4) other = TrackedBytes(idx.total * int64_t{sizeof(float)}, MemoryKind::kDataset);
  TrackedBytes& out = idx.type.bytes == 4 ? idx.array.raw : other;
  auto* const to = reinterpret_cast<float*>(out.data());
  for (int64_t i = 0; i < idx.total; ++i) {
    const double value = idx.array.number_at(i);
    to[i] = static_cast<float>(value);
    const auto where = [&] { return concat(place(i), " at offset ", idx.header_bytes + i * idx.type.bytes); };
    if (!std::isfinite(to[i])) fail_idx(idx.path, where(), ": got ", value, ", expected a finite fp32.");
    if (idx.type.code == kInt32 && static_cast<double>(to[i]) != value)
      fail_idx(idx.path, where(), ": got ", static_cast<int64_t>(value),
               ", which fp32 cannot represent exactly. Store float32.");
  }
  return std::move(out);
}
TrackedBytes targets_of(IdxFile& idx) {
  return values_of(idx, [](int64_t i) { return concat("target ", i); });
}

// Bytes stay as they are; everything else becomes values.
TrackedBytes samples_of(IdxFile& images) {
  if (images.type.code == kUint8) return std::move(images.array.raw);
  const int64_t each = std::max<int64_t>(1, images.total / std::max<int64_t>(1, images.dims[0]));
  return values_of(images, [each](int64_t i) { return concat("sample ", i / each, ", value ", i % each); });
}

// All axes but the first.
std::vector<int64_t> inner_dims(const IdxFile& idx) { return {idx.dims.begin() + 1, idx.dims.end()}; }

// Classes or values, depending on which file is given.
class TargetFile {
 public:
  explicit TargetFile(const DatasetSpec& spec) : values_(!spec.targets.empty()), file_(opened(spec)), keys_(spec) {
    read_header(file_, values_
                           ? Form{{kUint8, kInt8, kInt16, kInt32, kFloat32, kFloat64}, 1, kMostDimensions, "targets"}
                           : Form{{kUint8, kInt8, kInt16, kInt32}, 1, 2, "labels"});
    classes_ = spec.classes == 0 && !values_ ? kDefaultClasses : spec.classes;
    require(!values_ || spec.classes == 0, "data.idx", "classes: got ", spec.classes,
            ", which is for labels; targets are values.");
    require(values_ || (classes_ >= 1 && classes_ <= max()), "data.idx", "classes: got ", classes_, ", expected 1 .. ",
            max(), " for labels of ", file_.type.name, ".");
    check_size(file_);
  }
  const IdxFile& file() const { return file_; }
  const char* what() const { return values_ ? "targets" : "labels"; }
  ImageDataset::Targets read() {
    read_elements(file_);
    const Shape shape(inner_dims(file_));
    if (values_)
      return {targets_of(file_), StoredAs::kFloat, {.shape = shape.rank() == 0 ? Shape{1} : shape, .classes = 0}};
    keys_.check_labels("data.idx", shape.rank() > 0);
    check_labels(file_, classes_, max(), keys_.ignore);
    // Valid int8 and int16 classes have the same bits as unsigned integers; kIgnoredClass (-100) does not.
    const bool is_signed = file_.type.code == kInt8 || file_.type.code == kInt16;
    const bool other = keys_.ignore != kIgnoredClass;  // becomes kIgnoredClass
    if ((is_signed || other) && shape.rank() > 0) return {widened(), StoredAs::kInt32, {shape, classes_}};
    const StoredAs form = file_.type.bytes == 1   ? StoredAs::kUint8
                          : file_.type.bytes == 2 ? StoredAs::kUint16
                                                  : StoredAs::kInt32;
    return {std::move(file_.array.raw), form, {shape, classes_}};
  }

 private:
  static IdxFile opened(const DatasetSpec& spec) {
    require(spec.labels.empty() != spec.targets.empty(), "data.idx", "got ",
            spec.labels.empty() ? "neither labels nor targets" : "both labels and targets",
            ", expected one of them: labels are classes, targets are values.");
    return spec.labels.empty() ? IdxFile(spec, "targets", spec.targets) : IdxFile(spec, "labels", spec.labels);
  }
  int64_t max() const {
    if (file_.type.bytes == 1) return file_.type.code == kInt8 ? 128 : 256;
    return file_.type.bytes == 2 ? 32768 : kMostClasses;
  }
  TrackedBytes widened() const {
    TrackedBytes out(file_.total * 4, MemoryKind::kDataset);
    for (int64_t i = 0; i < file_.total; ++i) {
      const auto label = static_cast<int64_t>(file_.array.number_at(i));
      reinterpret_cast<int32_t*>(out.data())[i] = label == keys_.ignore ? kIgnoredClass : static_cast<int32_t>(label);
    }
    return out;
  }

  bool values_;
  IdxFile file_;
  ArrayKeys keys_;
  int64_t classes_ = 0;
};

// Integers that an embedding reads.
TrackedBytes ids_of(IdxFile& file, int64_t vocabulary) {
  const int64_t each = std::max<int64_t>(1, file.total / std::max<int64_t>(1, file.dims[0]));
  TrackedBytes out(file.total * int64_t{sizeof(int32_t)}, MemoryKind::kDataset);
  for (int64_t i = 0; i < file.total; ++i) {
    const auto id = static_cast<int64_t>(file.array.number_at(i));
    if (id < 0 || id >= vocabulary)
      fail_idx(file.path, "sample ", i / each, ", value ", i % each, " at offset ",
               file.header_bytes + i * file.type.bytes, ": got id ", id, ", expected 0 .. ", vocabulary - 1, ".");
    reinterpret_cast<int32_t*>(out.data())[i] = static_cast<int32_t>(id);
  }
  return out;
}

}  // namespace

std::unique_ptr<Dataset> make_idx_dataset(const DatasetSpec& spec) {
  const PixelValues values(spec);
  values.check();
  // Labels first: they are small, so a mistake in them is reported at once.
  TargetFile targets(spec);
  const ArrayKeys keys(spec);
  const int64_t vocabulary = keys.vocabulary;
  IdxFile images(spec, "images", spec.images);
  read_header(images,
              vocabulary > 0 ? Form{{kUint8, kInt8, kInt16, kInt32}, 1, kMostDimensions, "ids"} : images_form());
  check_size(images);
  const IdxFile& of = targets.file();
  if (images.dims[0] != of.dims[0]) {
    fail_idx(images.path, "images at offset 4: got ", images.dims[0], ", expected ", of.dims[0], ", the number of ",
             targets.what(), " in '", of.path, "' at offset 4.");
  }
  if (vocabulary == 0) values.check(channels_of(inner_dims(images)));
  ImageDataset::Targets read = targets.read();
  read_elements(images);
  if (vocabulary > 0) {
    std::vector<int64_t> shape = inner_dims(images);
    if (shape.empty()) shape = {1};
    return keys.marked(
        ImageDataset::of_ids(images.path, std::move(shape), vocabulary, ids_of(images, vocabulary), std::move(read)),
        spec);
  }
  const bool pixels = images.type.code == kUint8;
  TrackedBytes samples = samples_of(images);
  if (!pixels) apply_values(values, channels_of(inner_dims(images)), samples);
  return keys.marked(std::make_unique<ImageDataset>(images.path, inner_dims(images), values, std::move(samples),
                                                    pixels ? StoredAs::kUint8 : StoredAs::kFloat, std::move(read)),
                     spec);
}

IdxValues read_idx_values(const std::string& path, InputFile& file) {
  IdxFile idx(path, file);
  read_header(idx, {{kUint8, kInt8, kInt16, kInt32, kFloat32, kFloat64}, 1, kMostDimensions, "elements"});
  check_size(idx);
  read_elements(idx);
  IdxValues out{std::string(idx.type.name), idx.dims, {}};
  for (int64_t i = 0; i < idx.total; ++i) out.values.push_back(static_cast<float>(idx.array.number_at(i)));
  return out;
}

}  // namespace bitgrad::data

namespace bitgrad {

Samples read_idx_samples(const std::string& path, InputFile& file) {
  data::IdxFile images(path, file);
  data::read_header(images, data::images_form());
  data::check_size(images);
  data::read_elements(images);
  const bool pixels = images.type.code == data::kUint8;
  return {path, pixels ? StoredAs::kUint8 : StoredAs::kFloat, Shape(data::inner_dims(images)), images.dims[0],
          data::samples_of(images)};
}

}  // namespace bitgrad
