// The binary files of CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning multiple layers of features from tiny images",
// 2009; https://www.cs.toronto.edu/~kriz/cifar.html). A record is a class (CIFAR-100: the coarse, then the fine class),
// followed by the red, green and blue planes of 32 x 32 bytes, row by row.
//
// Files are untrusted: a file must hold a whole, nonzero number of records, and every class must be below its number of
// classes. Planes are interleaved to [32, 32, 3] when they are read.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/picture.h"
#include "data/data_file.h"
#include "data/describe_parts.h"
#include "data/formats.h"
#include "data/image_dataset.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kCifarSide = 32, kCifarPlane = kCifarSide * kCifarSide, kCifarPixels = 3 * kCifarPlane;
constexpr int64_t kCifarRecordsAtOnce = 512;  // records read and interleaved together

// A class field within a record.
struct CifarLabel {
  std::string_view name;
  int64_t classes;
  std::string_view names;  // the file beside the records that names the classes, a line each
};
struct CifarLayout {
  std::string_view where, folder;
  std::vector<CifarLabel> labels;  // in order of storage
  std::vector<std::string> train, test;
  int64_t record() const { return std::ssize(labels) + kCifarPixels; }
};
const CifarLayout kCifar10{
    "data.cifar10",
    "cifar-10-batches-bin",
    {{"label", 10, "batches.meta.txt"}},
    {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
    {"test_batch.bin"}};
const CifarLayout kCifar100{
    "data.cifar100",
    "cifar-100-binary",
    {{"coarse label", 20, "coarse_label_names.txt"}, {"fine label", 100, "fine_label_names.txt"}},
    {"train.bin"},
    {"test.bin"}};

template <typename... Parts>
[[noreturn]] void fail_cifar(const CifarLayout& layout, const Parts&... parts) {
  fail_with(ErrorCode::kData, layout.where, parts...);
}

struct CifarFile {
  std::string path;
  std::unique_ptr<InputFile> file;
  int64_t records = 0;
};

CifarFile open_cifar(const CifarLayout& layout, const DatasetSpec& spec, const std::string& path) {
  CifarFile out{data_path(spec.root, path), open_data_file(layout.where, spec, "path", path, "a .bin file"), 0};
  const int64_t bytes = out.file->size(), record = layout.record();
  if (bytes == 0) fail_cifar(layout, out.path, ": the file is empty, expected records of ", record, " bytes.");
  if (bytes % record != 0) {
    const CifarLayout& other = &layout == &kCifar10 ? kCifar100 : kCifar10;
    fail_cifar(layout, out.path, ": record ", bytes / record, " at byte offset ", bytes / record * record, ": got ",
               bytes % record, " bytes before the end of the file, expected ", record, " (the file has ", bytes, "). ",
               bytes % other.record() == 0
                   ? concat("Records of ", other.record(), " bytes fit: is the format ", other.where.substr(5), '?')
                   : "The file is truncated, or no file of this format.");
  }
  out.records = bytes / record;
  return out;
}

// The files that `path` refers to: itself, or those of the split in a folder.
std::vector<CifarFile> open_all(const CifarLayout& layout, const DatasetSpec& spec) {
  std::vector<CifarFile> files;
  const std::string full = data_path(spec.root, spec.path);
  if (!file_system().is_directory(full)) {
    files.push_back(open_cifar(layout, spec, spec.path));
    return files;
  }
  const std::vector<std::string>& names = spec.split == "test" ? layout.test : layout.train;
  const std::string inner = data_path(full, std::string(layout.folder));
  if (!file_system().exists(data_path(full, names[0])) && file_system().is_directory(inner))
    fail_cifar(layout, "path '", full, "': got a folder without ", names[0], ", expected '", inner,
               "', which is in it.");
  for (const std::string& name : names) files.push_back(open_cifar(layout, spec, data_path(spec.path, name)));
  return files;
}

// Checks all classes of record `index` and returns the one at position `which`.
uint8_t class_of(const CifarLayout& layout, const CifarFile& file, int64_t index, const uint8_t* record, size_t which) {
  for (size_t i = 0; i < layout.labels.size(); ++i)
    if (record[i] >= layout.labels[i].classes)
      fail_cifar(layout, file.path, ": record ", index, ": ", layout.labels[i].name, " at byte offset ",
                 index * layout.record() + static_cast<int64_t>(i), ": got ", int{record[i]}, ", expected 0 .. ",
                 layout.labels[i].classes - 1, ". The file is damaged, or no file of this format.");
  return record[which];
}

// Interleaves planes [3, 1024] to pixels [1024, 3].
void interleave(const uint8_t* planes, uint8_t* pixels) {
  for (int64_t p = 0; p < kCifarPlane; ++p)
    for (int64_t c = 0; c < 3; ++c) pixels[p * 3 + c] = planes[c * kCifarPlane + p];
}

void read_records(const CifarLayout& layout, const CifarFile& file, size_t which, uint8_t* pixels, uint8_t* labels) {
  const int64_t record = layout.record();
  std::vector<uint8_t> piece(static_cast<size_t>(std::min(kCifarRecordsAtOnce, file.records) * record));
  for (int64_t first = 0; first < file.records; first += kCifarRecordsAtOnce) {
    const int64_t count = std::min(kCifarRecordsAtOnce, file.records - first), bytes = count * record;
    const auto got = static_cast<int64_t>(file.file->read_at(first * record, piece.data(), static_cast<size_t>(bytes)));
    if (got < bytes)
      fail_cifar(layout, file.path, ": record ", first + got / record, " at byte offset ",
                 (first + got / record) * record, ": got ", got % record, " bytes, expected ", record,
                 ". The file became shorter while it was read.");
    for (int64_t i = 0; i < count; ++i)
      labels[first + i] = class_of(layout, file, first + i, piece.data() + i * record, which);
    constexpr int64_t kGrain = 32;
    parallel_ranges(count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        interleave(piece.data() + i * record + std::ssize(layout.labels), pixels + (first + i) * kCifarPixels);
    });
  }
}

// Empty if the folder names no classes.
std::vector<std::string> names_of(const CifarLayout& layout, const CifarLabel& label, const std::string& folder) {
  const std::string path = data_path(folder, std::string(label.names));
  if (!file_system().exists(path)) return {};
  std::vector<std::string> names = read_class_names(path);
  while (!names.empty() && names.back().empty()) names.pop_back();
  if (std::ssize(names) != label.classes)
    fail_cifar(layout, path, ": got ", names.size(), " names of classes, expected ", label.classes,
               ", one per line. Without the file classes have no names.");
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].empty() || printable(names[i]) != names[i])
      fail_cifar(layout, path, ':', i + 1, ": got '", printable(names[i].substr(0, 80)),
                 "', expected the name of a class: UTF-8 without control characters.");
  return names;
}

std::unique_ptr<Dataset> make_cifar(const CifarLayout& layout, const DatasetSpec& spec, size_t which) {
  require(spec.split == "train" || spec.split == "test", layout.where, "split: got '", spec.split,
          "', expected train or test.");
  PixelValues(spec).check(3);
  const std::vector<CifarFile> files = open_all(layout, spec);
  int64_t total = 0;
  for (const CifarFile& file : files) total += file.records;
  TrackedBytes pixels(total * kCifarPixels, MemoryKind::kDataset), labels(total, MemoryKind::kDataset);
  int64_t first = 0;
  for (const CifarFile& file : files) {
    read_records(layout, file, which, pixels.data() + first * kCifarPixels, labels.data() + first);
    first += file.records;
  }
  const std::string full = data_path(spec.root, spec.path);
  const bool folder = file_system().is_directory(full);
  ImageDataset::Targets targets{std::move(labels), StoredAs::kUint8, {.classes = layout.labels[which].classes}};
  targets.class_names = names_of(layout, layout.labels[which], folder ? full : full.substr(0, full.rfind('/') + 1));
  return std::make_unique<ImageDataset>(folder ? concat(full, " (", spec.split, ')') : full,
                                        std::vector<int64_t>{kCifarSide, kCifarSide, 3}, PixelValues(spec),
                                        std::move(pixels), StoredAs::kUint8, std::move(targets));
}

}  // namespace

std::unique_ptr<Dataset> make_cifar10_dataset(const DatasetSpec& spec) { return make_cifar(kCifar10, spec, 0); }

std::unique_ptr<Dataset> make_cifar100_dataset(const DatasetSpec& spec) {
  require(spec.labels.empty() || spec.labels == "fine" || spec.labels == "coarse", kCifar100.where, "labels: got '",
          spec.labels, "', expected fine (100 classes) or coarse (20 classes).");
  return make_cifar(kCifar100, spec, spec.labels == "coarse" ? 0 : 1);
}

std::optional<Json> describe_cifar(const std::string& folder) {
  for (const CifarLayout* layout : {&kCifar10, &kCifar100}) {
    Json splits = Json::object();
    for (const auto& [split, names] : {std::pair{"train", &layout->train}, {"test", &layout->test}}) {
      int64_t records = 0;
      for (const std::string& name : *names)
        if (const std::string path = data_path(folder, name); file_system().exists(path))
          records += open_cifar(*layout, {}, path).records;
      if (records > 0) splits[split] = records;
    }
    if (splits.size() == 0) continue;
    Json out{{"format", layout->where.substr(5)}, {"samples", splits}, {"class_names", Json::object()}};
    for (const CifarLabel& label : layout->labels)
      out["class_names"][std::string(label.names)] = names_of(*layout, label, folder);
    return out;
  }
  return std::nullopt;
}

}  // namespace bitgrad::data
