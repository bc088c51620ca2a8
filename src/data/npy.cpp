// numpy arrays: .npy files, and .npz archives of them.
// - images: uint8 [n, rows, columns] or [n, rows, columns, channels], or float32 [n, ...], used as values;
// - images that an embedding reads, ids: any integer dtype, [n, ...];
// - labels, classes: any integer dtype, [n] or [n, 1], or [n, positions]; their number is counted unless it is given;
// - targets, values: float32 [n] or [n, ...].
//
// Files are untrusted: headers are checked against each other and the bytes that follow before memory is allocated.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/id_dataset.h"
#include "data/image_dataset.h"
#include "data/npy_header.h"
#include "data/packed_names.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kMostNpyClasses = 65536;

struct NpyArray {
  std::string what;  // path, and the array's name in an archive
  std::unique_ptr<InputFile> file;
  std::unique_ptr<ByteSource> source;
  NpyHeader header;
  int64_t count() const { return header.shape[0]; }
  std::vector<int64_t> inner() const { return {header.shape.begin() + 1, header.shape.end()}; }
  int64_t elements() const { return Shape(header.shape).numel(); }
};

// The arrays of a data set: separate files, or members of one archive.
class NpyArrays {
 public:
  explicit NpyArrays(const DatasetSpec& spec)
      : spec_(spec), archive_(spec.format == "npz"), where_(archive_ ? "data.npz" : "data.npy") {
    if (!archive_) return;
    path_ = data_path(spec.root, spec.file);
    file_ = open_data_file(where_, spec, "file", spec.file, "an .npz file");
    members_ = zip_members(where_, path_, *file_);
  }
  const std::string& where() const { return where_; }
  template <typename... Parts>
  [[noreturn]] void refuse(const NpyArray& array, const Parts&... parts) const {
    fail_with(ErrorCode::kData, where_, array.what, ": ", parts...);
  }

  // `value` of `key`: a path, or the name of an array in the archive.
  NpyArray open(const std::string& key, const std::string& value) const {
    NpyArray array;
    if (archive_) {
      const ZipMember& member = find(key, value);
      array.what = concat(path_, " array '", value, '\'');
      array.source = open_zip_member(where_, path_, *file_, member);
    } else {
      array.what = data_path(spec_.root, value);
      array.file = open_data_file(where_, spec_, key, value, "an .npy file");
      array.source = file_source(*array.file);
    }
    array.header = read_npy_header(where_, array.what, *array.source);
    if (array.header.shape.empty()) refuse(array, "shape: got one value without axes, expected [n, ...].");
    return array;
  }
  TrackedBytes read(NpyArray& array) const {
    TrackedBytes out(array.elements() * array.header.width, MemoryKind::kDataset);
    const int64_t got = array.source->read(out.data(), out.size());
    if (got < out.size())
      refuse(array, "truncated: content ends at byte offset ", array.header.bytes + got, ", expected ",
             out.size() - got, " more bytes.");
    return out;
  }

 private:
  const ZipMember& find(const std::string& key, const std::string& name) const {
    std::vector<std::string> names;
    const ZipMember* found = nullptr;
    for (const ZipMember& member : members_) {
      if (member.name == name + ".npy") {
        if (found != nullptr)
          fail_with(ErrorCode::kData, where_, path_, ": got two members '", member.name,
                    "', expected one array of the ", "name ", key,
                    " gives. The archive is damaged, or was written twice.");
        found = &member;
      }
      constexpr size_t kMostShown = 20, kSuffix = 4;
      if (member.name.ends_with(".npy") && names.size() < kMostShown)
        names.push_back(member.name.substr(0, std::min(member.name.size() - kSuffix, size_t{64})));
    }
    if (found != nullptr) return *found;
    for (std::string& known : names)
      for (char& c : known)
        if (static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) > 0x7E) c = '?';
    fail_with(ErrorCode::kData, where_, path_, ": ", key, ": ", unknown_name("array", name, names));
  }

  const DatasetSpec& spec_;
  const bool archive_;
  const std::string where_;
  std::string path_;
  std::unique_ptr<InputFile> file_;
  std::vector<ZipMember> members_;
};

// The class at index `i`, as written; values above the int64 range become -1, which is not a class.
int64_t npy_class(const uint8_t* from, const NpyHeader& header, int64_t i) {
  uint64_t bits = 0;
  for (int64_t b = header.width - 1; b >= 0; --b) bits = (bits << 8) | from[i * header.width + b];
  const int shift = static_cast<int>(64 - 8 * header.width);
  if (header.kind == 'i') return static_cast<int64_t>(bits << shift) >> shift;
  return bits > static_cast<uint64_t>(INT64_MAX) ? -1 : static_cast<int64_t>(bits);
}

// Labels of positions: `ignore` becomes kIgnoredClass.
TrackedBytes classes_of_positions(const uint8_t* from, const NpyHeader& header, int64_t count, int64_t ignore) {
  TrackedBytes out(count * int64_t{sizeof(int32_t)}, MemoryKind::kDataset);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = npy_class(from, header, i);
    reinterpret_cast<int32_t*>(out.data())[i] = label == ignore ? kIgnoredClass : static_cast<int32_t>(label);
  }
  return out;
}

template <typename T>
TrackedBytes narrowed(const uint8_t* from, const NpyHeader& header, int64_t count) {
  TrackedBytes out(count * int64_t{sizeof(T)}, MemoryKind::kDataset);
  for (int64_t i = 0; i < count; ++i) reinterpret_cast<T*>(out.data())[i] = static_cast<T>(npy_class(from, header, i));
  return out;
}

// Classes or values.
class NpyTargets {
 public:
  NpyTargets(const NpyArrays& arrays, const DatasetSpec& spec)
      : arrays_(arrays),
        values_(!spec.targets.empty()),
        array_(values_ ? arrays.open("targets", spec.targets)
                       : arrays.open("labels", spec.labels.empty() ? "labels" : spec.labels)),
        classes_(spec.classes),
        names_(values_ || spec.format == "npz" ? std::vector<std::string>{}
                                               : packed_class_names(data_path(spec.root, spec.labels))),
        keys_(spec) {
    require(!values_ || spec.labels.empty(), arrays.where(),
            "got both labels and targets, expected one of them: labels are classes, targets are values.");
    require(!values_ || spec.classes == 0, arrays.where(), "classes: got ", spec.classes,
            ", which is for labels; targets are values.");
    require(values_ || (classes_ >= 0 && classes_ <= kMostNpyClasses), arrays.where(), "classes: got ", classes_,
            ", expected 1 .. ", kMostNpyClasses, '.');
    require(classes_ == 0 || names_.empty() || classes_ == std::ssize(names_), arrays.where(), "classes: got ",
            classes_, ", the file of names beside ", array_.what, " has ", names_.size(), '.');
    const NpyHeader& header = array_.header;
    if (values_ && (header.kind != 'f' || header.width != 4))
      arrays.refuse(array_, "descr: got '", header.descr, "', expected '<f4' (targets). Save a.astype(np.float32).");
    if (!values_ && header.kind != 'u' && header.kind != 'i')
      arrays.refuse(array_, "descr: got '", header.descr, "', expected integers (labels). Save a.astype(np.int32).");
    if (!values_ && header.shape.size() > 2)
      arrays.refuse(array_, "shape: got ", header.shape.size(), " axes, expected [n] or [n, positions] (labels).",
                    header.shape.size() >= 3 ? " Are images and labels exchanged?" : "");
  }
  const NpyArray& array() const { return array_; }

  ImageDataset::Targets read() {
    const TrackedBytes raw = arrays_.read(array_);
    std::vector<int64_t> inner = array_.inner();
    const int64_t count = array_.elements();
    if (values_) {
      TrackedBytes out(raw.size(), MemoryKind::kDataset);
      std::memcpy(out.data(), raw.data(), static_cast<size_t>(raw.size()));
      for (int64_t i = 0; i < count; ++i)
        if (const float value = reinterpret_cast<const float*>(out.data())[i]; !std::isfinite(value))
          arrays_.refuse(array_, "target ", i, " at byte offset ", array_.header.bytes + 4 * i, ": got ", value,
                         ", expected a finite fp32.");
      return {std::move(out), StoredAs::kFloat, {.shape = inner.empty() ? Shape{1} : Shape(inner), .classes = 0}};
    }
    if (inner.size() == 1 && inner[0] == 1) inner.clear();  // a column: one class per sample
    keys_.check_labels(arrays_.where(), !inner.empty());
    if (classes_ == 0) classes_ = names_.empty() ? counted_classes(raw.data(), count) : std::ssize(names_);
    check_classes(raw.data(), count, !inner.empty());
    const TargetForm form{Shape(inner), classes_};
    constexpr int64_t kOfByte = 256;
    if (!inner.empty())
      return {classes_of_positions(raw.data(), array_.header, count, keys_.ignore), StoredAs::kInt32, form};
    if (classes_ <= kOfByte) return {narrowed<uint8_t>(raw.data(), array_.header, count), StoredAs::kUint8, form};
    return {narrowed<uint16_t>(raw.data(), array_.header, count), StoredAs::kUint16, form};
  }

  // Of the file beside the labels; empty if there is none.
  const std::vector<std::string>& names() const { return names_; }

 private:
  // The largest class + 1.
  int64_t counted_classes(const uint8_t* raw, int64_t count) const {
    int64_t classes = 1;
    for (int64_t i = 0; i < count; ++i)
      if (const int64_t label = npy_class(raw, array_.header, i); label < kMostNpyClasses && label != keys_.ignore)
        classes = std::max(classes, label + 1);
    return classes;
  }
  void check_classes(const uint8_t* raw, int64_t count, bool positions) const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t label = npy_class(raw, array_.header, i);
      if ((label >= 0 && label < classes_) || (positions && label == keys_.ignore)) continue;
      arrays_.refuse(array_, "label ", i, " at byte offset ", array_.header.bytes + i * array_.header.width, ": got ",
                     label, ", expected 0 .. ", classes_ - 1, '.',
                     classes_ < kMostNpyClasses ? " Set classes if the set has more." : "");
    }
  }

  const NpyArrays& arrays_;
  const bool values_;
  NpyArray array_;
  int64_t classes_;  // 0: to be counted
  const std::vector<std::string> names_;
  const ArrayKeys keys_;
};

void check_images(const NpyArrays& arrays, const NpyArray& images) {
  const NpyHeader& header = images.header;
  const auto axes = std::ssize(header.shape);
  if (header.kind == 'f' && header.width == 4) return;
  if (header.kind != 'u' || header.width != 1)
    arrays.refuse(images, "descr: got '", header.descr, "', expected '|u1' (bytes) or '<f4' (values). ",
                  header.kind == 'f' ? "Save a.astype(np.float32)."
                                     : "Save a.astype(np.uint8) if they are pixels; integers are ids of a model that "
                                       "begins with an embedding.");
  if (axes == 3 || axes == 4) return;
  arrays.refuse(images, "shape: got ", axes,
                " axes, expected [n, rows, columns] or [n, rows, columns, channels] for images of bytes.",
                axes == 1 ? " Are images and labels exchanged?" : " Values of other shapes are float32.");
}

// Checks image values here: during training the error would only give a position in a batch.
void check_values(const NpyArrays& arrays, const NpyArray& images, const TrackedBytes& samples) {
  const auto* const x = reinterpret_cast<const float*>(samples.data());
  const int64_t count = images.elements(), each = std::max<int64_t>(1, count / std::max<int64_t>(1, images.count()));
  for (int64_t i = 0; i < count; ++i)
    if (!std::isfinite(x[i]))
      arrays.refuse(images, "sample ", i / each, ", value ", i % each, " at byte offset ", images.header.bytes + 4 * i,
                    ": got ", x[i], ", expected a finite fp32.");
}

// Integers of any width that an embedding reads.
TrackedBytes read_ids(const NpyArrays& arrays, NpyArray& ids, int64_t vocabulary) {
  const NpyHeader& header = ids.header;
  if (header.kind != 'u' && header.kind != 'i')
    arrays.refuse(
        ids, "descr: got '", header.descr,
        "', expected integers: the model begins with an embedding, which reads ids. Save a.astype(np.int32).");
  const TrackedBytes raw = arrays.read(ids);
  const int64_t count = ids.elements(), each = std::max<int64_t>(1, count / std::max<int64_t>(1, ids.count()));
  TrackedBytes out(count * int64_t{sizeof(int32_t)}, MemoryKind::kDataset);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = npy_class(raw.data(), header, i);
    if (id < 0 || id >= vocabulary)
      arrays.refuse(ids, "sample ", i / each, ", value ", i % each, " at byte offset ", header.bytes + header.width * i,
                    ": got id ", id, ", expected 0 .. ", vocabulary - 1, '.');
    reinterpret_cast<int32_t*>(out.data())[i] = static_cast<int32_t>(id);
  }
  return out;
}

}  // namespace

std::unique_ptr<Dataset> make_npy_dataset(const DatasetSpec& spec) {
  const int64_t vocabulary = ArrayKeys(spec).vocabulary;
  const PixelValues values(spec);
  values.check();
  const NpyArrays arrays(spec);
  NpyTargets targets(arrays, spec);  // labels first: they are small, so a mistake in them is reported at once
  NpyArray images = arrays.open("images", spec.images.empty() ? "images" : spec.images);
  if (vocabulary == 0) check_images(arrays, images);
  if (images.count() != targets.array().count())
    arrays.refuse(images, "shape: got ", images.count(), " images, expected ", targets.array().count(),
                  ", the first axis of ", targets.array().what, '.');
  std::vector<int64_t> shape = images.inner();
  if (shape.empty()) shape = {1};
  if (vocabulary > 0) {
    ImageDataset::Targets read = targets.read();
    TrackedBytes ids = read_ids(arrays, images, vocabulary);
    return std::make_unique<IdDataset>(images.what, std::move(shape), vocabulary, std::move(ids), std::move(read));
  }
  values.check(channels_of(shape));
  ImageDataset::Targets read = targets.read();
  read.class_names = targets.names();
  TrackedBytes samples = arrays.read(images);
  const bool pixels = images.header.width == 1;
  if (!pixels) {
    check_values(arrays, images, samples);
    apply_values(values, channels_of(shape), samples);
  }
  return std::make_unique<ImageDataset>(images.what, std::move(shape), values, std::move(samples),
                                        pixels ? StoredAs::kUint8 : StoredAs::kFloat, std::move(read));
}

std::unique_ptr<Dataset> make_npz_dataset(const DatasetSpec& spec) { return make_npy_dataset(spec); }

}  // namespace bitgrad::data
