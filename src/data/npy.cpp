// numpy arrays: .npy files, and .npz archives of them.
// - images: uint8 [n, rows, columns] or [n, rows, columns, channels], or values, [n, ...] of any other number type or
//   bool;
// - images that an embedding reads, ids: any integer dtype, [n, ...];
// - labels, classes: whole numbers of any type, or texts, which name them: [n] or [n, 1], or [n, positions]; their
// number
//   is counted unless it is given;
// - targets, values: any number type, [n] or [n, ...].
//
// Files are untrusted: headers are checked against each other and against the bytes that follow before memory is
// allocated (npy_array.h).
#include <algorithm>
#include <optional>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/image_dataset.h"
#include "data/npy_array.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kMostNpyClasses = 65536;

// An array whose elements are not read yet.
struct OpenedNpy {
  std::string where, what;  // path, and the array's name in an archive
  std::unique_ptr<InputFile> file;
  std::unique_ptr<ByteSource> source;
  NpyHeader header;
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_with(ErrorCode::kData, where, what, ": ", parts...);
  }
  NpyArray read() { return read_npy_array(where, what, *source, header); }
};

// The arrays of a data set: separate files, or members of one archive.
class NpyArrays {
 public:
  explicit NpyArrays(const DatasetSpec& spec)
      : spec_(spec), archive_(spec.format == "npz"), where_(archive_ ? "data.npz" : "data.npy") {
    if (!archive_) return;
    path_ = data_path(spec.root, spec.file);
    file_ = open_data_file(where_, spec, "file", spec.file, "an .npz file");
    members_.emplace(where_, path_, *file_);
  }
  const std::string& where() const { return where_; }
  // `value` of `key`: a path, or the name of an array in the archive.
  OpenedNpy open(const std::string& key, const std::string& value) const {
    OpenedNpy array;
    array.where = where_;
    if (archive_) {
      array.what = concat(path_, " array '", value, '\'');
      array.source = members_->open(find(key, value));
    } else {
      array.what = printable(data_path(spec_.root, value));
      array.file = open_data_file(where_, spec_, key, value, "an .npy file");
      array.source = file_source(*array.file);
    }
    array.header = read_npy_header(where_, array.what, *array.source);
    if (array.header.shape.empty()) array.refuse("shape: got one value without axes, expected [n, ...].");
    return array;
  }

 private:
  size_t find(const std::string& key, const std::string& name) const {
    std::vector<std::string> names;
    std::optional<size_t> found;
    for (size_t i = 0; i < members_->names().size(); ++i) {
      const std::string& member = members_->names()[i];
      if (member == name + ".npy") {
        if (found)
          fail_with(ErrorCode::kData, where_, path_, ": got two members '", member, "', expected one array of the ",
                    "name ", key, " gives. The archive is damaged, or was written twice.");
        found = i;
      }
      constexpr size_t kMostShown = 20, kSuffix = 4;
      if (member.ends_with(".npy") && names.size() < kMostShown)
        names.push_back(member.substr(0, std::min(member.size() - kSuffix, size_t{64})));
    }
    if (found) return *found;
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
  std::optional<ZipArchive> members_;
};

// The names of classes that texts are, sorted as those of csv.
std::vector<std::string> names_in(const NpyArray& labels) {
  std::set<std::string> names;
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const std::string name = labels.text_at(i);
    if (name.empty() || printable(name) != name)
      labels.refuse("label ", i, ' ', labels.offset_of(i), ": got '", printable(name),
                    "', expected the name of a class: a text without control characters.");
    names.insert(name);
  }
  return {names.begin(), names.end()};
}

// The names of the training labels, in whose order classes are numbered; empty: labels are numbers.
std::vector<std::string> class_names_of(const DatasetSpec& spec, const OpenedNpy& own) {
  DatasetSpec training = spec;
  if (!spec.training_labels.empty()) training.labels = spec.training_labels;
  if (!spec.training_file.empty()) training.file = spec.training_file;
  const NpyArrays arrays(training);
  OpenedNpy labels = arrays.open("labels", training.labels.empty() ? "labels" : training.labels);
  if (labels.header.text() != own.header.text())
    own.refuse("descr: got '", own.header.descr, "', the training labels ", labels.what, " have '", labels.header.descr,
               "'. Save both as numbers or both as texts.");
  return labels.header.text() ? names_in(labels.read()) : std::vector<std::string>{};
}

// Classes or values.
class NpyTargets {
 public:
  NpyTargets(const NpyArrays& arrays, const DatasetSpec& spec)
      : values_(!spec.targets.empty()),
        array_(values_ ? arrays.open("targets", spec.targets)
                       : arrays.open("labels", spec.labels.empty() ? "labels" : spec.labels)),
        keys_(spec) {
    require(!values_ || spec.labels.empty(), arrays.where(),
            "got both labels and targets, expected one of them: labels are classes, targets are values.");
    require(!values_ || spec.classes == 0, arrays.where(), "classes: got ", spec.classes,
            ", which is for labels; targets are values.");
    if (values_ && array_.header.text())
      array_.refuse("descr: got '", array_.header.descr, "', expected numbers (targets).");
    require(values_ || (spec.classes >= 0 && spec.classes <= kMostNpyClasses), arrays.where(), "classes: got ",
            spec.classes, ", expected 1 .. ", kMostNpyClasses, '.');
    if (!values_) names_ = class_names_of(spec, array_);
    if (!values_ && names_.empty() && spec.format == "npy")
      names_ = packed_class_names(data_path(spec.root, spec.labels));
    const auto names = std::ssize(names_);
    if (names > 0 && spec.classes != 0 && spec.classes != names)
      array_.refuse("got ", names, " names of classes, expected the ", spec.classes, " of the key classes.");
    classes_ = names > 0 ? names : spec.classes;
    const auto axes = std::ssize(array_.header.shape);
    if (!values_ && axes > 2)
      array_.refuse("shape: got ", axes, " axes, expected [n] or [n, positions] (labels).",
                    axes >= 3 ? " Are images and labels exchanged?" : "");
  }
  const OpenedNpy& array() const { return array_; }

  ImageDataset::Targets read() {
    const NpyArray read = array_.read();
    std::vector<int64_t> inner = array_.header.inner();
    if (values_)
      return {read.floats(MemoryKind::kDataset),
              StoredAs::kFloat,
              {.shape = inner.empty() ? Shape{1} : Shape(inner), .classes = 0}};
    if (inner.size() == 1 && inner[0] == 1) inner.clear();  // a column: one class per sample
    keys_.check_labels(array_.where, !inner.empty());
    if (!inner.empty()) refuse_one_hot(read);
    if (classes_ == 0) classes_ = counted_classes(read);
    const TargetForm form{Shape(inner), classes_};
    constexpr int64_t kOfByte = 256;
    ImageDataset::Targets out;
    if (!inner.empty())
      out = {classes_as<int32_t>(read, true), StoredAs::kInt32, form};
    else if (classes_ <= kOfByte)
      out = {classes_as<uint8_t>(read, false), StoredAs::kUint8, form};
    else
      out = {classes_as<uint16_t>(read, false), StoredAs::kUint16, form};
    out.class_names = names_;
    return out;
  }

 private:
  // The largest class + 1.
  int64_t counted_classes(const NpyArray& read) const {
    int64_t classes = 1;
    std::vector<bool> seen;
    for (int64_t i = 0; i < read.elements(); ++i)
      if (const auto label = read.integer_at(i); label && *label < kMostNpyClasses && *label != keys_.ignore) {
        if (*label < 0) continue;
        classes = std::max(classes, *label + 1);
        seen.resize(static_cast<size_t>(classes));
        seen[static_cast<size_t>(*label)] = true;
      }
    if (const std::string absent = absent_classes_text(seen); !absent.empty())
      log(LogLevel::kWarning, concat(read.what, ": ", absent));
    return classes;
  }
  // What to write if the set has more classes than it should.
  std::string more_classes(const NpyArray& read) const {
    int64_t largest = 0;
    for (int64_t i = 0; i < read.elements(); ++i) largest = std::max(largest, read.integer_at(i).value_or(0));
    return largest >= classes_ && largest < kMostNpyClasses ? more_classes_text(largest) : ".";
  }
  // The class of label i; of positions also the label that does not count.
  int64_t class_at(const NpyArray& read, int64_t i, bool positions) const {
    if (read.header.text()) {
      const std::string name = read.text_at(i);
      const auto found = std::lower_bound(names_.begin(), names_.end(), name);
      if (found != names_.end() && *found == name) return found - names_.begin();
      read.refuse("label ", i, ' ', read.offset_of(i), ": got '", printable(name), "', expected one of the ", classes_,
                  " names of the training labels.");
    }
    const std::optional<int64_t> label = read.integer_at(i);
    if (label && positions && *label == keys_.ignore) return kIgnoredClass;
    if (label && *label >= 0 && *label < classes_) return *label;
    if (label && *label >= kMostNpyClasses)
      read.refuse("label ", i, ' ', read.offset_of(i), ": got ", *label, ", expected a class below ", kMostNpyClasses,
                  ". Number the classes from 0, as np.unique(a, return_inverse=True)[1] does; values are named by "
                  "targets instead of labels.");
    const bool whole = label.has_value() || read.whole();
    read.refuse("label ", i, ' ', read.offset_of(i), ": got ", read.number_at(i), ", expected 0 .. ", classes_ - 1,
                whole ? more_classes(read) : ", whole numbers. Values are named by targets instead of labels.");
  }

  template <typename T>
  TrackedBytes classes_as(const NpyArray& read, bool positions) const {
    TrackedBytes out(read.elements() * int64_t{sizeof(T)}, MemoryKind::kDataset);
    for (int64_t i = 0; i < read.elements(); ++i)
      reinterpret_cast<T*>(out.data())[i] = static_cast<T>(class_at(read, i, positions));
    return out;
  }

  // Rows of one 1 among zeros, for a model that does not read ids.
  void refuse_one_hot(const NpyArray& read) const {
    const int64_t each = read.elements() / read.header.count();
    if (keys_.vocabulary > 0 || read.header.text()) return;
    for (int64_t row = 0; row < read.header.count(); ++row) {
      int64_t ones = 0, zeros = 0;
      for (int64_t i = row * each; i < (row + 1) * each; ++i) {
        const std::optional<int64_t> label = read.integer_at(i);
        ones += label == 1 ? 1 : 0;
        zeros += label == 0 ? 1 : 0;
      }
      if (ones != 1 || zeros != each - 1) return;
    }
    read.refuse("shape: got [", read.header.count(), ", ", each,
                "] with one 1 in each row: one-hot, expected a class per sample. Save a.argmax(axis=1).");
  }

  const bool values_;
  OpenedNpy array_;
  int64_t classes_ = 0;  // 0: to be counted
  std::vector<std::string> names_;
  const ArrayKeys keys_;
};

void check_images(const OpenedNpy& images) {
  const NpyHeader& header = images.header;
  const auto axes = std::ssize(header.shape);
  if (images.header.text())
    images.refuse("descr: got '", header.descr,
                  "', expected numbers. Columns of names are read from a table (format: csv), or saved as "
                  "pandas.get_dummies(frame).to_numpy(np.float32).");
  if (header.kind != 'u' || header.width != 1) return;
  if (axes == 3 || axes == 4) return;
  images.refuse("shape: got ", axes,
                " axes, expected [n, rows, columns] or [n, rows, columns, channels] for images of bytes.",
                axes == 1 ? " Are images and labels exchanged?" : " Values of other shapes are float32.");
}

// Integers of any width that an embedding reads.
TrackedBytes read_ids(OpenedNpy& opened, int64_t vocabulary) {
  if (opened.header.kind != 'u' && opened.header.kind != 'i')
    opened.refuse("descr: got '", opened.header.descr,
                  "', expected integers: the model begins with an embedding, which reads ids.",
                  opened.header.text() ? " bitgrad tokenize makes them of texts." : " Save a.astype(np.int32).");
  const NpyArray ids = opened.read();
  const int64_t count = ids.elements(), each = std::max<int64_t>(1, count / std::max<int64_t>(1, ids.header.count()));
  TrackedBytes out(count * int64_t{sizeof(int32_t)}, MemoryKind::kDataset);
  for (int64_t i = 0; i < count; ++i) {
    const std::optional<int64_t> id = ids.integer_at(i);
    if (!id || *id < 0 || *id >= vocabulary)
      ids.refuse("sample ", i / each, ", value ", i % each, ' ', ids.offset_of(i), ": got id ",
                 id ? concat(*id) : concat(ids.number_at(i)), ", expected 0 .. ", vocabulary - 1, '.');
    reinterpret_cast<int32_t*>(out.data())[i] = static_cast<int32_t>(*id);
  }
  return out;
}

}  // namespace

std::unique_ptr<Dataset> make_npy_dataset(const DatasetSpec& spec) {
  const ArrayKeys keys(spec);
  const int64_t vocabulary = keys.vocabulary;
  const PixelValues values(spec);
  values.check();
  const NpyArrays arrays(spec);
  NpyTargets targets(arrays, spec);  // labels first: they are small, so a mistake in them is reported at once
  OpenedNpy images = arrays.open("images", spec.images.empty() ? "images" : spec.images);
  if (vocabulary == 0) check_images(images);
  if (images.header.count() != targets.array().header.count())
    images.refuse("shape: got ", images.header.count(), " images, expected ", targets.array().header.count(),
                  ", the first axis of ", targets.array().what, '.');
  std::vector<int64_t> shape = images.header.inner();
  if (shape.empty()) shape = {1};
  if (vocabulary > 0) {
    ImageDataset::Targets read = targets.read();
    TrackedBytes ids = read_ids(images, vocabulary);
    return keys.marked(ImageDataset::of_ids(images.what, std::move(shape), vocabulary, std::move(ids), std::move(read)),
                       spec);
  }
  values.check(channels_of(shape));
  ImageDataset::Targets read = targets.read();
  NpyArray array = images.read();
  warn_of_values(array);
  TrackedBytes samples = array.bytes() ? std::move(array.raw) : array.floats(MemoryKind::kDataset);
  if (!array.bytes()) apply_values(values, channels_of(shape), samples);
  return keys.marked(
      std::make_unique<ImageDataset>(images.what, std::move(shape), values, std::move(samples),
                                     array.bytes() ? StoredAs::kUint8 : StoredAs::kFloat, std::move(read)),
      spec);
}

std::unique_ptr<Dataset> make_npz_dataset(const DatasetSpec& spec) { return make_npy_dataset(spec); }

}  // namespace bitgrad::data
