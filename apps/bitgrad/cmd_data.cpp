// bitgrad data info FILE_OR_FOLDER
// bitgrad data pack FOLDER -o NAME [--size HxW] [--channels 1|3] [--classes FILE] [--skip-bad] [--force]: packs folders
// of PNG and JPEG files, one sub-folder a class, into NAME.images.npy, NAME.labels.npy and NAME.classes.txt.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <optional>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/describe.h"
#include "command.h"
#include "output_file.h"
#include "picture.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kPack = "data pack";
constexpr int64_t kMostFileBytes = int64_t{1} << 30;
constexpr int64_t kMostPackedClasses = 65536;

struct PackOptions {
  std::string action, folder, out, size, classes;
  int64_t channels = 3;
  bool skip_bad = false, force = false;
};

struct PackFile {
  std::string path;
  int64_t label = 0;
  std::string wrong = {};  // why it cannot be packed
};

// "32x48": rows x columns.
std::optional<std::pair<int64_t, int64_t>> parse_size(const std::string& text) {
  if (text.empty()) return std::nullopt;
  constexpr int64_t kMostSide = 8192;
  std::pair<int64_t, int64_t> size{0, 0};
  const char *const end = text.data() + text.size(), *const x = std::find(text.data(), end, 'x');
  const bool ok = x != end && std::from_chars(text.data(), x, size.first).ptr == x &&
                  std::from_chars(x + 1, end, size.second).ptr == end;
  require(ok && size.first >= 1 && size.first <= kMostSide && size.second >= 1 && size.second <= kMostSide, kPack,
          "--size: got '", text, "', expected rows x columns such as 32x32, each 1 .. ", kMostSide);
  return size;
}

std::vector<std::string> visible(const std::string& folder) {
  std::vector<std::string> names = file_system().list(folder);
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  std::sort(names.begin(), names.end());
  return names;
}

// The names of the classes in the order of their numbers: the lines of --classes, or the sub-folders.
std::vector<std::string> class_names(const PackOptions& o) {
  require(file_system().is_directory(o.folder), kPack, "'", o.folder,
          "': there is no such folder, expected one with a sub-folder for each class");
  std::vector<std::string> folders;
  for (const std::string& name : visible(o.folder))
    if (file_system().is_directory(o.folder + '/' + name)) folders.push_back(name);
  require(!folders.empty(), kPack, "'", o.folder, "': got no sub-folder, expected one for each class");
  std::vector<std::string> names = folders;
  if (!o.classes.empty()) {
    names.clear();
    std::string line;
    for (const uint8_t byte : read_file(o.classes, int64_t{1} << 24)) {
      if (byte == '\n' && !line.empty()) names.push_back(std::exchange(line, {}));
      if (byte != '\n' && byte != '\r') line += static_cast<char>(byte);
    }
    if (!line.empty()) names.push_back(line);
    for (const std::string& folder : folders)
      require(std::find(names.begin(), names.end(), folder) != names.end(), kPack, "'", o.folder, '/', folder,
              "': got a class that is no line of '", o.classes, "'");
  }
  require(std::ssize(names) <= kMostPackedClasses, kPack, "got ", names.size(), " classes, expected at most ",
          kMostPackedClasses);
  return names;
}

std::vector<PackFile> list_files(const PackOptions& o, const std::vector<std::string>& classes) {
  std::vector<PackFile> files;
  for (size_t c = 0; c < classes.size(); ++c) {
    const std::string folder = o.folder + '/' + classes[c];
    if (!file_system().is_directory(folder)) continue;  // of --classes
    const size_t before = files.size();
    for (const std::string& name : visible(folder)) {
      files.push_back({folder + '/' + name, static_cast<int64_t>(c)});
      if (file_system().is_directory(files.back().path)) files.back().wrong = "got a folder, expected a picture";
    }
    require(files.size() > before, kPack, "'", folder, "': got an empty folder, expected pictures of the class");
  }
  return files;
}

// The picture as it is packed; none: file.wrong says why.
std::optional<Picture> packed_picture(PackFile& file, int64_t channels, std::pair<int64_t, int64_t> size, bool resize) {
  try {
    const Picture decoded = decode_picture(read_file(file.path, kMostFileBytes));
    if (!resize && size != std::pair<int64_t, int64_t>{0, 0} && size != std::pair{decoded.rows, decoded.columns})
      fail_with(ErrorCode::kData, "picture", "got ", decoded.rows, " x ", decoded.columns, " pixels, expected ",
                size.first, " x ", size.second, ", as the first picture. Give --size to resize them");
    const Picture of_size = resize ? resized(decoded, size.first, size.second) : decoded;
    return with_channels(of_size, channels);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kData) throw;
    constexpr std::string_view kOwn = "[picture] ";
    const std::string what = error.what();
    file.wrong = what.starts_with(kOwn) ? what.substr(kOwn.size()) : what;
    return std::nullopt;
  }
}

std::string npy_head(const std::string& descr, const std::string& shape) {
  std::string head = concat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  constexpr size_t kFixed = 10, kLine = 64;
  while ((kFixed + head.size() + 1) % kLine != 0) head += ' ';
  head += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(head.size() & 0xFF);
  out += static_cast<char>(head.size() >> 8);
  return out + head;
}

// A file of the packed set: written beside its place, then put there.
class PackedFile {
 public:
  explicit PackedFile(std::string path) : path_(std::move(path)), file_(file_system().create(path_ + ".part")) {}
  ~PackedFile() {
    if (file_ == nullptr) return;
    file_.reset();
    try {
      file_system().remove(path_ + ".part");
    } catch (const Error&) {  // the error that ended the writing is on its way
    }
  }
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;
  void write(const void* data, size_t bytes) { file_->write(data, bytes); }
  void write(const std::string& text) { write(text.data(), text.size()); }
  void finish() {
    file_->flush_to_disk();
    file_->close();
    file_.reset();
    file_system().rename(path_ + ".part", path_);
  }

 private:
  const std::string path_;
  std::unique_ptr<OutputFile> file_;
};

class Packing {
 public:
  explicit Packing(const PackOptions& o) : o_(o), size_(parse_size(o.size)), classes_(class_names(o)) {
    for (const std::string& path : outputs()) require_writable(path, o_.force);
    files_ = list_files(o_, classes_);
  }

  int run() {
    find_size();
    pack();
    report_bad();
    write();
    tell();
    return 0;
  }

 private:
  std::vector<std::string> outputs() const {
    return {o_.out + ".images.npy", o_.out + ".labels.npy", o_.out + ".classes.txt"};
  }
  int64_t picture_bytes() const { return size_->first * size_->second * o_.channels; }

  // Without --size, that of the first picture that can be read.
  void find_size() {
    for (size_t i = 0; i < files_.size() && !size_; ++i)
      if (files_[i].wrong.empty())
        if (const auto picture = packed_picture(files_[i], o_.channels, {0, 0}, false))
          size_ = {picture->rows, picture->columns};
    if (!size_) size_ = {1, 1};  // every file is bad
  }
  void pack() {
    pixels_ = TrackedBytes(std::ssize(files_) * picture_bytes(), MemoryKind::kDataset);
    parallel_ranges(std::ssize(files_), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        PackFile& file = files_[static_cast<size_t>(i)];
        if (!file.wrong.empty()) continue;
        if (const auto picture = packed_picture(file, o_.channels, *size_, !o_.size.empty()))
          std::copy(picture->bytes.begin(), picture->bytes.end(), pixels_.data() + i * picture_bytes());
      }
    });
  }
  void report_bad() {
    std::string list;
    for (const PackFile& file : files_)
      if (!file.wrong.empty()) {
        ++bad_;
        list += concat(file.path, ": ", file.wrong, '\n');
      }
    if (bad_ == 0) return;
    const auto all = std::ssize(files_);
    if (o_.skip_bad && bad_ < all) {
      std::cerr << list << "skipped " << bad_ << " of " << all << " files\n";
      return;
    }
    fail_with(ErrorCode::kData, kPack, bad_, " of ", all, " files cannot be packed, and nothing was written:\n", list,
              "Mend or remove them, or leave them out with --skip-bad.");
  }
  void write() {
    const int64_t count = std::ssize(files_) - bad_;
    const bool wide = std::ssize(classes_) > 256;
    PackedFile images(outputs()[0]), labels(outputs()[1]), names(outputs()[2]);
    images.write(npy_head(
        "|u1", concat('(', count, ", ", size_->first, ", ", size_->second, o_.channels == 1 ? "" : ", 3", ')')));
    labels.write(npy_head(wide ? "<u2" : "|u1", concat('(', count, ",)")));
    for (size_t i = 0; i < files_.size(); ++i) {
      if (!files_[i].wrong.empty()) continue;
      images.write(pixels_.data() + static_cast<int64_t>(i) * picture_bytes(), static_cast<size_t>(picture_bytes()));
      const uint8_t label[2] = {static_cast<uint8_t>(files_[i].label), static_cast<uint8_t>(files_[i].label >> 8)};
      labels.write(label, wide ? 2 : 1);
    }
    for (const std::string& name : classes_) names.write(name + '\n');
    for (PackedFile* file : {&names, &labels, &images}) file->finish();
  }
  void tell() const {
    std::vector<int64_t> counts(classes_.size());
    for (const PackFile& file : files_) counts[static_cast<size_t>(file.label)] += file.wrong.empty() ? 1 : 0;
    std::cout << std::ssize(files_) - bad_ << " pictures of " << size_->first << " x " << size_->second << " x "
              << o_.channels << " in " << classes_.size() << " classes, "
              << *std::min_element(counts.begin(), counts.end()) << " to "
              << *std::max_element(counts.begin(), counts.end()) << " each\n";
    for (const std::string& path : outputs()) std::cout << path << ": " << file_bytes(path) << " bytes\n";
    std::cout << "in a configuration: {format: npy, images: " << outputs()[0] << ", labels: " << outputs()[1]
              << ", classes: " << classes_.size() << "}\n(paths that are relative start at data.root)\n";
  }

  const PackOptions o_;
  std::optional<std::pair<int64_t, int64_t>> size_;
  std::vector<std::string> classes_;
  std::vector<PackFile> files_;
  TrackedBytes pixels_;
  int64_t bad_ = 0;
};

// What a file holds; of a folder the classes of its pictures.
int run_info(const PackOptions& o) {
  if (!file_system().is_directory(o.folder)) {
    if (!file_system().exists(o.folder))
      fail_with(ErrorCode::kData, "data info", "'", o.folder, "': there is no such file or folder");
    std::cout << describe_data_file(o.folder);
    return 0;
  }
  const std::vector<std::string> classes = class_names(o);
  const std::vector<PackFile> files = list_files(o, classes);
  std::cout << "format: folder, " << files.size() << " files in " << classes.size() << " classes:";
  for (size_t c = 0; c < classes.size(); ++c)
    std::cout << ' ' << classes[c] << " (" << std::count_if(files.begin(), files.end(), [&](const PackFile& f) {
      return f.label == static_cast<int64_t>(c);
    }) << ')';
  std::cout << "\nbitgrad data pack makes arrays of it\n";
  return 0;
}

}  // namespace

Run setup_data(Arguments& args) {
  auto o = std::make_shared<PackOptions>();
  args.option(
          "action", o->action,
          "info: what a file (idx, npy, csv) or folder holds; pack: pictures in folders, into arrays that the format "
          "npy reads")
      .required()
      .one_of({"info", "pack"});
  args.option("folder", o->folder,
              "a folder with a sub-folder of PNG and JPEG files for each class; of info also a file")
      .required();
  args.option("-o,--out", o->out, "pack: NAME of NAME.images.npy, NAME.labels.npy and NAME.classes.txt");
  args.option("--size", o->size, "rows x columns, such as 32x32, to resize to; without it all pictures have one size");
  args.option("--channels", o->channels, "3 (color) or 1 (gray)").range<int64_t>(1, 3);
  args.option("--classes", o->classes,
              "a text file with the name of a class per line, such as NAME.classes.txt of the training data");
  args.flag("--skip-bad", o->skip_bad, "leave out files that cannot be packed");
  args.flag("--force", o->force, "overwrite existing files");
  return [o] {
    if (o->action == "info") return run_info(*o);
    require(!o->out.empty(), kPack, "got no --out, expected --out NAME, for NAME.images.npy and the other files");
    require(o->channels != 2, kPack, "--channels: got 2, expected 1 (gray) or 3 (color)");
    return Packing(*o).run();
  };
}

}  // namespace bitgrad::cli
