// Picture folders with one sub-folder per class, and format image_folder, which reads them as a data set.
//
// Samples are interleaved: the first file of each class, then the second of each, and so on, so that the first N
// samples (limit) cover all classes.
#include <algorithm>
#include <optional>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/picture.h"
#include "data/data_file.h"
#include "data/formats.h"
#include "data/image_dataset.h"

namespace bitgrad {
namespace {

constexpr int64_t kMostPictureBytes = int64_t{1} << 30;

std::vector<std::string> visible(const std::string& folder) {
  std::vector<std::string> names = file_system().list(folder);
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  std::sort(names.begin(), names.end());
  return names;
}

// What a folder without sub-folders holds.
std::string files_text(const std::string& folder) {
  const std::vector<std::string> names = visible(folder);
  if (names.empty()) return "; it is empty";
  return concat("; it holds ", names.size(), names.size() == 1 ? " file" : " files", ", such as '", folder, '/',
                names[0], '\'');
}

}  // namespace

std::vector<std::string> picture_classes(std::string_view where, const std::string& folder) {
  if (!file_system().is_directory(folder))
    fail_with(ErrorCode::kData, where, "'", folder, "': no such folder, expected one with a sub-folder for each class");
  std::vector<std::string> folders;
  for (const std::string& name : visible(folder))
    if (file_system().is_directory(folder + '/' + name)) folders.push_back(name);
  if (folders.empty())
    fail_with(ErrorCode::kData, where, "'", folder, "': got no sub-folder, expected one for each class",
              files_text(folder));
  for (const std::string& name : folders)
    if (printable(name) != name)
      fail_with(ErrorCode::kData, where, "'", folder, "': got the sub-folder '", printable(name),
                "', expected the name of a class: UTF-8 without line breaks and other control characters. Rename it");
  return folders;
}

PictureFolder list_pictures(std::string_view where, const std::string& folder, std::vector<std::string> classes,
                            const std::string& of) {
  const std::vector<std::string> folders = picture_classes(where, folder);
  if (classes.empty()) classes = folders;
  for (const std::string& name : folders)
    if (std::find(classes.begin(), classes.end(), name) == classes.end())
      fail_with(ErrorCode::kData, where, "'", folder, '/', name, "': got a class that is not among those of ", of);
  if (std::ssize(classes) > kMostPictureClasses)
    fail_with(ErrorCode::kData, where, "'", folder, "': got ", classes.size(), " classes, expected at most ",
              kMostPictureClasses);
  PictureFolder out{std::move(classes), {}};
  for (size_t c = 0; c < out.classes.size(); ++c) {
    const std::string path = folder + '/' + out.classes[c];
    if (!file_system().is_directory(path)) continue;  // the class exists only in the other data
    const size_t before = out.files.size();
    for (const std::string& name : visible(path)) {
      out.files.push_back({path + '/' + name, static_cast<int64_t>(c)});
      if (file_system().is_directory(out.files.back().path))
        out.files.back().wrong = "got a folder, expected a picture";
    }
    if (out.files.size() == before)
      fail_with(ErrorCode::kData, where, "'", path, "': got an empty folder, expected pictures of the class");
  }
  return out;
}

Picture read_picture(const std::string& path, int64_t channels) {
  Picture picture = decode_picture(read_file(path, kMostPictureBytes));
  return channels == 0 ? picture : with_channels(std::move(picture), channels);
}

namespace data {
namespace {

constexpr std::string_view kFolder = "data.image_folder";

std::string form_of(const Picture& p) {
  return concat(p.rows, " x ", p.columns, " pixels of ", p.channels, p.channels == 1 ? " channel" : " channels");
}

// Interleaves the classes: the k-th file of each, for k = 0, 1 ...
std::vector<PictureFile> taking_turns(std::vector<PictureFile> files) {
  std::vector<std::pair<int64_t, int64_t>> turns;  // index within its class, index in the list
  int64_t place = 0;
  for (int64_t i = 0; i < std::ssize(files); ++i) {
    const bool same = i > 0 && files[static_cast<size_t>(i)].label == files[static_cast<size_t>(i - 1)].label;
    place = same ? place + 1 : 0;
    turns.emplace_back(place, i);
  }
  std::sort(turns.begin(), turns.end());
  std::vector<PictureFile> out;
  for (const auto& [turn, i] : turns) out.push_back(std::move(files[static_cast<size_t>(i)]));
  return out;
}

// Reads the files in parallel. Collects the errors of all files for a single message.
class PictureReader {
 public:
  PictureReader(std::vector<PictureFile> files, int64_t channels) : files_(std::move(files)), channels_(channels) {}

  TrackedBytes read() {
    std::optional<Picture> first;  // the first that is one: the others are compared with it
    for (first_ = 0; first_ < files_.size() && !first; ++first_) first = decoded(files_[first_]);
    if (!first) refuse();
    --first_;
    form_ = {first->rows, first->columns, first->channels, {}};
    const int64_t each = form_.rows * form_.columns * form_.channels;
    TrackedBytes pixels(std::ssize(files_) * each, MemoryKind::kDataset);
    parallel_ranges(std::ssize(files_), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        PictureFile& file = files_[static_cast<size_t>(i)];
        const std::optional<Picture> picture = decoded(file);
        if (!picture) continue;
        if (form_of(*picture) == form_of(form_))
          std::copy(picture->bytes.begin(), picture->bytes.end(), pixels.data() + i * each);
        else
          file.wrong = other_form(*picture);
      }
    });
    refuse();
    return pixels;
  }
  std::vector<int64_t> shape() const {
    if (form_.channels == 1) return {form_.rows, form_.columns};
    return {form_.rows, form_.columns, form_.channels};
  }

 private:
  std::string other_form(const Picture& picture) const {
    const bool resize = picture.rows != form_.rows || picture.columns != form_.columns;
    return concat("got ", form_of(picture), ", expected ", form_of(form_), ", as '", printable(files_[first_].path),
                  "'. ", resize ? "bitgrad data pack --size makes them equal" : "Give channels: 1 (gray) or 3 (color)");
  }
  std::optional<Picture> decoded(PictureFile& file) const {
    if (!file.wrong.empty()) return std::nullopt;
    try {
      return read_picture(file.path, channels_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kMemory) throw;
      constexpr std::string_view kOwn = "[picture] ";
      const std::string what = error.what();
      file.wrong = what.starts_with(kOwn) ? what.substr(kOwn.size()) : what;
      return std::nullopt;
    }
  }
  // Throws if any file has an error.
  void refuse() const {
    constexpr int64_t kShown = 8;
    std::string list;
    int64_t bad = 0;
    for (const PictureFile& file : files_)
      if (!file.wrong.empty() && ++bad <= kShown) list += concat("\n", printable(file.path), ": ", file.wrong);
    if (bad > kShown) list += "\n...";
    if (bad > 0) fail_with(ErrorCode::kData, kFolder, bad, " of ", files_.size(), " files cannot be used:", list);
  }

  std::vector<PictureFile> files_;
  size_t first_ = 0;
  const int64_t channels_;
  Picture form_;
};

TrackedBytes labels_of(const std::vector<PictureFile>& files, bool wide) {
  TrackedBytes out(std::ssize(files) * (wide ? 2 : 1), MemoryKind::kDataset);
  for (size_t i = 0; i < files.size(); ++i)
    if (wide)
      reinterpret_cast<uint16_t*>(out.data())[i] = static_cast<uint16_t>(files[i].label);
    else
      out.data()[i] = static_cast<uint8_t>(files[i].label);
  return out;
}

}  // namespace

std::vector<Key> image_folder_keys() {
  return {{.name = "channels",
           .type = Key::Type::kChoice,
           .standard = "stored",
           .doc = "stored: unchanged, gray [rows, columns] or color [rows, columns, 3]; 1: as gray; 3: as "
                  "color",
           .choices = {"stored", "1", "3"}}};
}

std::unique_ptr<Dataset> make_image_folder_dataset(const DatasetSpec& spec) {
  const PixelValues values(spec);
  values.check();
  const std::string path = data_path(spec.root, spec.path), training = data_path(spec.root, spec.training_path);
  std::vector<std::string> classes;
  if (!spec.training_path.empty() && training != path) classes = picture_classes(kFolder, training);
  PictureFolder folder = list_pictures(kFolder, path, std::move(classes), concat("data.train, '", training, "'"));
  std::vector<PictureFile> files = taking_turns(std::move(folder.files));
  if (spec.limit > 0 && spec.limit < std::ssize(files)) files.resize(static_cast<size_t>(spec.limit));
  constexpr int64_t kOfByte = 256;
  const bool wide = std::ssize(folder.classes) > kOfByte;
  TrackedBytes labels = labels_of(files, wide);
  const std::string& channels = spec.keys.text("channels");
  PictureReader reader(std::move(files), channels == "stored" ? 0 : channels == "1" ? 1 : 3);
  TrackedBytes pixels = reader.read();
  values.check(channels_of(reader.shape()));
  ImageDataset::Targets targets{std::move(labels),
                                wide ? StoredAs::kUint16 : StoredAs::kUint8,
                                {.shape = {}, .classes = std::ssize(folder.classes)}};
  targets.class_names = std::move(folder.classes);
  return std::make_unique<ImageDataset>(path, reader.shape(), values, std::move(pixels), StoredAs::kUint8,
                                        std::move(targets));
}

}  // namespace data
}  // namespace bitgrad
