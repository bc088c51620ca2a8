// Format image_folder: PNG files in folders as a data set.
#include <filesystem>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/picture.h"
#include "data/picture_files.h"
#include "data/split_samples.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

class ImageFolder {
 public:
  // A picture of equal bytes.
  void add(const std::string& name, uint8_t value, int64_t rows = 2, int64_t columns = 3, int64_t channels = 1) const {
    const std::vector<uint8_t> pixels(static_cast<size_t>(rows * columns * channels), value);
    write(name, data::png_bytes(pixels.data(), rows, columns, channels));
  }
  void write(const std::string& name, const std::string& bytes) const {
    const std::string path = temp_.file(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file_atomically(path, bytes);
  }
  DatasetSpec spec(const std::string& path = "set") const {
    DatasetSpec spec;
    spec.format = "image_folder";
    spec.root = temp_.path();
    spec.path = path;
    return spec;
  }
  std::string path(const std::string& name) const { return temp_.file(name); }

 private:
  TempDir temp_;
};

// The first byte and the class of each sample.
std::vector<std::pair<int, int32_t>> samples_of(const Dataset& set) {
  std::vector<std::pair<int, int32_t>> out;
  std::vector<float> x(static_cast<size_t>(set.features()));
  for (int64_t i = 0; i < set.size(); ++i) {
    int32_t label = -1;
    set.sample(i, x.data(), &label);
    out.emplace_back(static_cast<int>(x[0] * 255.0f + 0.5f), label);
  }
  return out;
}

bool reads_png() {
  try {
    const uint8_t pixel = 7;
    const std::string file = data::png_bytes(&pixel, 1, 1, 1);
    decode_png({file.begin(), file.end()});
    return true;
  } catch (const Error& e) {
    CHECK(contains(e.what(), "built without libpng"));
    return false;
  }
}

std::string refusal(const DatasetSpec& spec, ErrorCode code = ErrorCode::kData) {
  CHECK(error_code_of([&] { make_dataset(spec); }) == static_cast<int>(code));
  return error_of([&] { make_dataset(spec); });
}

}  // namespace

TEST_CASE("folders of images are a data set, whose classes alternate and are named by their folders") {
  if (!reads_png()) return;
  const ImageFolder folder;
  folder.add("set/dog/1.png", 10);
  folder.add("set/dog/2.png", 11);
  folder.add("set/dog/3.png", 12);
  folder.add("set/cat/9.png", 20);
  folder.add("set/cat/8.png", 21);
  folder.add("set/.hidden/1.png", 1);
  folder.write("set/cat/.hidden", "no picture");
  folder.write("set/readme.txt", "no picture");
  const auto set = make_dataset(folder.spec());
  using Pairs = std::vector<std::pair<int, int32_t>>;
  CHECK(samples_of(*set) == Pairs{{21, 0}, {10, 1}, {20, 0}, {11, 1}, {12, 1}});
  CHECK(set->sample_shape() == std::vector<int64_t>{2, 3});
  CHECK(set->classes() == 2);
  CHECK(set->class_names() == std::vector<std::string>{"cat", "dog"});
  CHECK(set->stored().form == StoredAs::kUint8);
  DatasetSpec first = folder.spec();
  first.limit = 3;
  const auto few = make_dataset(first);
  CHECK(samples_of(*few) == Pairs{{21, 0}, {10, 1}, {20, 0}});
  CHECK(few->class_names() == set->class_names());
  first.limit = 6;
  CHECK(contains(refusal(first, ErrorCode::kUsage), "limit: got 6, expected 1 .. 5"));
  // As data.valid of {fraction: 0.4}.
  const auto part = data::split_samples(make_dataset(folder.spec()), 0.4, 1, data::SplitPart::kValid);
  CHECK(part->size() == 2);
  CHECK(part->class_names() == set->class_names());
}

TEST_CASE("a test folder has the classes of the training folder, also where it lacks one") {
  if (!reads_png()) return;
  const ImageFolder folder;
  for (const char* name : {"train/a/1.png", "train/b/1.png", "train/c/1.png", "test/c/1.png"}) folder.add(name, 5);
  DatasetSpec spec = folder.spec("test");
  spec.training_path = "train";
  const auto set = make_dataset(spec);
  CHECK(set->classes() == 3);
  CHECK(samples_of(*set)[0].second == 2);
  folder.add("test/d/1.png", 5);
  CHECK(contains(refusal(spec), "[data.image_folder] '" + folder.path("test") +
                                    "/d': got a class that is not among those of data.train, '" + folder.path("train") +
                                    "'"));
}

TEST_CASE("pictures are used as stored, or all as gray or color, and normalized by channel") {
  if (!reads_png()) return;
  const ImageFolder folder;
  folder.add("set/a/1.png", 51, 1, 2, 3);
  folder.add("set/b/1.png", 102, 1, 2, 1);
  CHECK(contains(refusal(folder.spec()),
                 "1 of 2 files cannot be used:\n" + folder.path("set/b/1.png") +
                     ": got 1 x 2 pixels of 1 channel, expected 1 x 2 pixels of 3 channels, as '" +
                     folder.path("set/a/1.png") + "'. Give channels: 1 (gray) or 3 (color)"));
  DatasetSpec spec = folder.spec();
  spec.keys["channels"] = std::string("3");
  spec.normalize = {{0.1f, 0.2f, 0.3f}, {1.0f, 1.0f, 0.5f}};
  const auto color = make_dataset(spec);
  CHECK(color->sample_shape() == std::vector<int64_t>{1, 2, 3});
  std::vector<float> x(6);
  int32_t label = -1;
  color->sample(1, x.data(), &label);
  CHECK(x[3] == 102.0f / 255.0f - 0.1f);
  CHECK(x[5] == (102.0f / 255.0f - 0.3f) / 0.5f);
  spec.keys["channels"] = std::string("1");
  CHECK(
      contains(refusal(spec, ErrorCode::kUsage), "normalize.mean: got 3 entries, expected 1 for images of 1 channel"));
  spec.normalize = {};
  CHECK(make_dataset(spec)->sample_shape() == std::vector<int64_t>{1, 2});
  spec.keys["channels"] = std::string("2");
  CHECK(contains(refusal(spec, ErrorCode::kUsage), "channels"));
}

TEST_CASE("folders that are not a data set name the file or folder that is the reason") {
  if (!reads_png()) return;
  const ImageFolder folder;
  CHECK(contains(refusal(folder.spec("none")), "[data.image_folder] '" + folder.path("none") +
                                                   "': no such folder, expected one with a sub-folder for "
                                                   "each class"));
  folder.write("flat/1.png", "x");
  CHECK(contains(
      refusal(folder.spec("flat")),
      "got no sub-folder, expected one for each class; it holds 1 file, such as '" + folder.path("flat/1.png")));
  std::filesystem::create_directories(folder.path("lines/a\nb"));
  CHECK(contains(refusal(folder.spec("lines")), R"(got the sub-folder 'a\nb', expected the name of a class: UTF-8)"));
  std::filesystem::create_directories(folder.path("empty/a"));
  CHECK(contains(refusal(folder.spec("empty")), folder.path("empty/a") + "': got an empty folder"));
  folder.add("set/a/1.png", 1);
  folder.add("set/a/2.png", 1, 2, 4);
  folder.write("set/a/3.png", "not a picture");
  folder.write("set/a/4.png", "");
  folder.add("set/b/sub/1.png", 1);
  const std::string all = refusal(folder.spec());
  CHECK(contains(all, "4 of 5 files cannot be used:"));
  CHECK(contains(all, folder.path("set/a/2.png") +
                          ": got 2 x 4 pixels of 1 channel, expected 2 x 3 pixels of 1 "
                          "channel, as '" +
                          folder.path("set/a/1.png") + "'. bitgrad data pack --size makes them equal"));
  CHECK(contains(all, folder.path("set/a/3.png") + ": got neither a PNG nor a JPEG file, expected one of them"));
  CHECK(contains(all, folder.path("set/a/4.png") + ": the file is empty, expected one of them"));
  CHECK(contains(all, folder.path("set/b/sub") + ": got a folder, expected a picture"));
  // The first is no picture: the others are still read, and compared with the first that is one (of each class
  // in turn).
  folder.write("mixed/a/0.webp", "RIFF\x1A\x01\x01\x01WEBPVP8 ");
  folder.write("mixed/a/1.gif", "GIF89a");
  folder.add("mixed/a/2.png", 1);
  folder.add("mixed/b/1.png", 1, 2, 4);
  const std::string mixed = refusal(folder.spec("mixed"));
  CHECK(contains(mixed, "3 of 4 files cannot be used:"));
  CHECK(contains(mixed, "0.webp: got a picture (WebP), expected a PNG or JPEG file. Save it"));
  CHECK(contains(mixed, "1 channel, as '" + folder.path("mixed/b/1.png") + "'. bitgrad data pack"));
  folder.write("bad/a/1.png", "not a picture");
  CHECK(contains(refusal(folder.spec("bad")), "1 of 1 files cannot be used:\n" + folder.path("bad/a/1.png")));
  DatasetSpec no_path = folder.spec("");
  CHECK(contains(refusal(no_path, ErrorCode::kUsage), "got no key 'path'"));
}
