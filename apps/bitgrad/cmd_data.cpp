// bitgrad data info FILE_OR_FOLDER [--json]
// bitgrad data pack FOLDER -o NAME [--size HxW] [--channels 1|3] [--classes FILE] [--skip-bad] [--force]: packs folders
// of PNG and JPEG files, one subfolder per class, into NAME.images.npy, NAME.labels.npy and NAME.classes.txt.
// bitgrad data fetch NAME... [-o DIR] [--mirrors FILE] [--force]: downloads known data sets.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/npz.h"
#include "bitgrad/data/picture.h"

#include "bitgrad/data/samples.h"
#include "command.h"
#include "data_fetch.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

// bitgrad data pack: converts folders of pictures to arrays.

struct PackOptions {
  std::string folder = {}, out = {}, size = {}, classes = {};
  int64_t channels = 3;
  bool skip_bad = false, force = false;
};

constexpr std::string_view kPack = "data pack";

// "32x48": rows x columns; "32": as many of both.
std::optional<std::pair<int64_t, int64_t>> parse_size(const std::string& text) {
  if (text.empty()) return std::nullopt;
  constexpr int64_t kMostSide = 8192;
  std::pair<int64_t, int64_t> size{0, 0};
  const char *const end = text.data() + text.size(), *const x = std::find(text.data(), end, 'x');
  if (x == end) return parse_size(concat(text, 'x', text));
  const bool ok =
      std::from_chars(text.data(), x, size.first).ptr == x && std::from_chars(x + 1, end, size.second).ptr == end;
  require(ok && size.first >= 1 && size.first <= kMostSide && size.second >= 1 && size.second <= kMostSide, kPack,
          "--size: got '", text, "', expected rows x columns such as 32x32, each 1 .. ", kMostSide);
  return size;
}

// The lines of --classes; empty without it.
std::vector<std::string> named_classes(const std::string& path) {
  if (path.empty()) return {};
  std::vector<std::string> names = read_class_names(path);
  std::erase(names, std::string());  // empty lines
  return names;
}

// The picture as it is packed; nullopt: file.wrong has the reason.
std::optional<Picture> packed_picture(PictureFile& file, int64_t channels, std::pair<int64_t, int64_t> size,
                                      bool resize) {
  try {
    const Picture decoded = read_picture(file.path);
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

class Packing {
 public:
  explicit Packing(const PackOptions& o) : o_(o), size_(parse_size(o.size)) {
    PictureFolder folder = list_pictures(kPack, o_.folder, named_classes(o_.classes), concat('\'', o_.classes, '\''));
    classes_ = std::move(folder.classes);
    files_ = std::move(folder.files);
    for (const std::string& path : outputs()) require_writable(path, o_.force);
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

  // Without --size, takes that of the first readable picture.
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
        PictureFile& file = files_[static_cast<size_t>(i)];
        if (!file.wrong.empty()) continue;
        if (const auto picture = packed_picture(file, o_.channels, *size_, !o_.size.empty()))
          std::copy(picture->bytes.begin(), picture->bytes.end(), pixels_.data() + i * picture_bytes());
      }
    });
  }
  void report_bad() {
    std::string list;
    for (const PictureFile& file : files_)
      if (!file.wrong.empty()) {
        ++bad_;
        list += concat(printable(file.path), ": ", file.wrong, '\n');
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
    FileGroup group;
    PartFile images(outputs()[0]), labels(outputs()[1]), names(outputs()[2]);
    images.write(npy_header_bytes(
        "|u1", concat('(', count, ", ", size_->first, ", ", size_->second, o_.channels == 1 ? "" : ", 3", ')')));
    labels.write(npy_header_bytes(wide ? "<u2" : "|u1", concat('(', count, ",)")));
    for (size_t i = 0; i < files_.size(); ++i) {
      if (!files_[i].wrong.empty()) continue;
      images.write(pixels_.data() + static_cast<int64_t>(i) * picture_bytes(), static_cast<size_t>(picture_bytes()));
      const uint8_t label[2] = {static_cast<uint8_t>(files_[i].label), static_cast<uint8_t>(files_[i].label >> 8)};
      labels.write(label, wide ? 2 : 1);
    }
    for (const std::string& name : classes_) names.write(name + '\n');
    for (PartFile* file : {&names, &labels, &images}) file->finish();
    group.commit();
  }
  void tell() const {
    std::vector<int64_t> counts(classes_.size());
    for (const PictureFile& file : files_) counts[static_cast<size_t>(file.label)] += file.wrong.empty() ? 1 : 0;
    std::cout << std::ssize(files_) - bad_ << " pictures of " << size_->first << " x " << size_->second << " x "
              << o_.channels << " in " << classes_.size() << " classes, "
              << *std::min_element(counts.begin(), counts.end()) << " to "
              << *std::max_element(counts.begin(), counts.end()) << " each\n";
    for (const std::string& path : outputs()) std::cout << printable(path) << ": " << file_bytes(path) << " bytes\n";
    std::cout << "in a configuration: {format: npy, images: " << printable(outputs()[0])
              << ", labels: " << printable(outputs()[1]) << ", classes: " << classes_.size()
              << "}\n(paths that are relative start at data.root)\n";
  }

  const PackOptions o_;
  std::optional<std::pair<int64_t, int64_t>> size_;
  std::vector<std::string> classes_;
  std::vector<PictureFile> files_;
  TrackedBytes pixels_;
  int64_t bad_ = 0;
};

// Packs the folder into <out>.images.npy, <out>.labels.npy and <out>.classes.txt, and prints what it wrote. Returns the
// exit code. Throws Error for invalid options or folders and, before anything is written, for files that cannot be
// packed.
int run_pack(const PackOptions& options) { return Packing(options).run(); }

struct DataOptions {
  std::string action;
  std::vector<std::string> names;
  PackOptions pack;
  std::string mirrors;
  bool json = false;
};

const std::string& only_name(const DataOptions& o) {
  require(o.names.size() == 1, concat("data ", o.action), "got ", o.names.size(), " names, expected one ",
          o.action == "info" ? "file or folder" : "folder");
  return o.names[0];
}

// An option without effect on this action is most likely meant for another one.
void require_of(const DataOptions& o, bool given, std::string_view option, std::string_view action) {
  require(!given || o.action == action, concat("data ", o.action), option, " is of bitgrad data ", std::string(action));
}

int run_data(const DataOptions& o) {
  require_of(o, o.json, "--json", "info");
  require_of(o, !o.mirrors.empty(), "--mirrors", "fetch");
  if (o.action == "info") {
    const std::string& name = only_name(o);
    std::cout << (o.json ? describe_data_json(name) + '\n' : describe_data_file(name));
    return 0;
  }
  if (o.action == "fetch") return run_fetch({o.names, o.pack.out, o.mirrors, o.pack.force});
  constexpr std::string_view kPack = "data pack";
  PackOptions pack = o.pack;
  pack.folder = only_name(o);
  require(!pack.out.empty(), kPack, "got no --out, expected --out NAME, for NAME.images.npy and the other files");
  require(pack.channels != 2, kPack, "--channels: got 2, expected 1 (gray) or 3 (color)");
  return run_pack(pack);
}

}  // namespace

Run setup_data(Arguments& args) {
  auto o = std::make_shared<DataOptions>();
  args.option("action", o->action,
              "info: what a file (idx, npy, npz, csv) or folder holds; pack: convert folders of images to arrays for "
              "format npy; fetch: download mnist, fashion_mnist or cifar10")
      .required()
      .one_of({"info", "pack", "fetch"});
  args.option("name", o->names,
              "info: a file or folder; pack: a folder with a sub-folder of PNG and JPEG files for each class; fetch: "
              "names of data sets")
      .required()
      .suggest([] {
        return std::vector<std::string>{"mnist", "fashion_mnist", "cifar10"};
      });
  args.option("-o,--out", o->pack.out,
              "pack: NAME of NAME.images.npy, NAME.labels.npy and NAME.classes.txt; fetch: the folder (default: "
              "$BITGRAD_DATA, else the current one)");
  args.option("--size", o->pack.size,
              "pack: rows x columns to resize to, such as 32x48, or 32 for 32x32; default: all images have one size");
  args.option("--channels", o->pack.channels, "pack: 3 (color) or 1 (gray)").range<int64_t>(1, 3);
  args.option("--classes", o->pack.classes,
              "pack: text file with one class name per line, such as NAME.classes.txt of the training data");
  args.flag("--skip-bad", o->pack.skip_bad, "pack: skip files that cannot be packed");
  args.option("--mirrors", o->mirrors, "fetch: JSON file of data sets, instead of the built-in list");
  args.flag("--json", o->json, "info: one JSON object on standard output");
  args.flag("--force", o->pack.force, "overwrite existing files");
  return [o] { return run_data(*o); };
}

}  // namespace bitgrad::cli
