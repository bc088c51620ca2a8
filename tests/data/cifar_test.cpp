// The binary files of CIFAR-10 and CIFAR-100: the layout, and what is said of files that are not of it.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <random>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/samples.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;
using Bytes = std::vector<uint8_t>;

constexpr int kDataError = static_cast<int>(ErrorCode::kData);

// Records of random pixels with the classes that `label(i, place)` gives.
template <typename Label>
Bytes records(int64_t count, int labels, uint32_t seed, Label label) {
  std::mt19937 random(seed);
  Bytes out;
  for (int64_t i = 0; i < count; ++i) {
    for (int l = 0; l < labels; ++l) out.push_back(static_cast<uint8_t>(label(i, l)));
    for (int p = 0; p < 3072; ++p) out.push_back(static_cast<uint8_t>(random()));
  }
  return out;
}

class CifarFolder {
 public:
  void write(const std::string& name, const Bytes& bytes) {
    std::ofstream(folder_.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::string path(const std::string& name) const { return folder_.file(name); }
  DatasetSpec spec(const std::string& format, const std::string& path = ".") const {
    DatasetSpec s;
    s.format = format;
    s.root = folder_.path();
    s.path = path;
    return s;
  }
  std::string error(const DatasetSpec& spec) const {
    CHECK(error_code_of([&] { make_dataset(spec); }) == kDataError);
    return error_of([&] { make_dataset(spec); });
  }

 private:
  test::TempDir folder_;
};

TEST_CASE("cifar10 reads five files in order, and turns planes to pixels") {
  CifarFolder folder;
  std::vector<Bytes> files;
  for (int f = 0; f < 5; ++f) {
    files.push_back(
        records(f == 2 ? 700 : 3 + f, 1, static_cast<uint32_t>(f), [&](int64_t i, int) { return (i + f) % 10; }));
    folder.write("data_batch_" + std::to_string(f + 1) + ".bin", files.back());
  }
  const Bytes tests = records(2, 1, 9, [](int64_t i, int) { return 9 - i; });
  folder.write("test_batch.bin", tests);
  const auto train = make_dataset(folder.spec("cifar10"));
  CHECK(train->size() == 3 + 4 + 700 + 6 + 7);
  CHECK(train->sample_shape() == std::vector<int64_t>{32, 32, 3});
  CHECK(train->classes() == 10);
  CHECK(train->memory_bytes() == 720 * 3073);
  const StoredSamples stored = train->stored();
  CHECK(stored.form == StoredAs::kUint8);
  CHECK(stored.stride == 3072);
  REQUIRE(stored.numbers != nullptr);
  std::vector<float> x(3072);
  int64_t index = 0;
  bool same = true;
  for (const Bytes& file : files)
    for (size_t at = 0; at < file.size(); at += 3073, ++index) {
      int32_t label = -1;
      train->sample(index, x.data(), &label);
      same = same && label == file[at];
      for (size_t y = 0; y < 32; ++y)
        for (size_t col = 0; col < 32; ++col)
          for (size_t c = 0; c < 3; ++c) {
            const uint8_t p = file[at + 1 + c * 1024 + y * 32 + col];
            same = same && x[(y * 32 + col) * 3 + c] == static_cast<float>(p) / 255.0f;
            same = same && static_cast<const uint8_t*>(
                               stored.codes)[index * 3072 + static_cast<int64_t>((y * 32 + col) * 3 + c)] == p;
          }
    }
  CHECK(same);
  CHECK(index == train->size());

  DatasetSpec spec = folder.spec("cifar10");
  spec.split = "test";
  CHECK(make_dataset(spec)->size() == 2);
  const auto one = make_dataset(folder.spec("cifar10", "data_batch_2.bin"));
  CHECK(one->size() == 4);
  CHECK(one->name() == folder.path("data_batch_2.bin"));
  spec.limit = 1;
  CHECK(make_dataset(spec)->size() == 1);
}

TEST_CASE("cifar100 gives fine or coarse classes") {
  CifarFolder folder;
  const Bytes file = records(40, 2, 1, [](int64_t i, int place) { return place == 0 ? i % 20 : 99 - i; });
  folder.write("train.bin", file);
  for (const char* labels : {"", "fine", "coarse"}) {
    DatasetSpec spec = folder.spec("cifar100");
    spec.labels = labels;
    const auto set = make_dataset(spec);
    const bool coarse = spec.labels == "coarse";
    CHECK(set->classes() == (coarse ? 20 : 100));
    std::vector<float> x(3072);
    for (int64_t i = 0; i < 40; ++i) {
      int32_t label = -1;
      set->sample(i, x.data(), &label);
      CHECK(label == (coarse ? i % 20 : 99 - i));
      CHECK(x[1] == static_cast<float>(file[static_cast<size_t>(i) * 3074 + 2 + 1024]) / 255.0f);
    }
  }
  DatasetSpec spec = folder.spec("cifar100");
  spec.labels = "medium";
  CHECK(error_of([&] { make_dataset(spec); }) ==
        "[data.cifar100] labels: got 'medium', expected fine (100 classes) or coarse (20 classes).");
}

TEST_CASE("A file that is not of the format is named with its record, its offset and what was expected") {
  CifarFolder folder;
  const auto zeros = [](int64_t count, int labels) {
    return records(count, labels, 1, [](int64_t, int) { return 0; });
  };
  Bytes cut = zeros(3, 1);
  cut.resize(2 * 3073 + 100);
  folder.write("cut.bin", cut);
  CHECK(folder.error(folder.spec("cifar10", "cut.bin")) ==
        "[data.cifar10] " + folder.path("cut.bin") +
            ": record 2 at byte offset 6146: got 100 bytes before the end of the file, expected 3073 (the file has "
            "6246). The file is truncated, or no file of this format.");
  folder.write("hundred.bin", zeros(2, 2));
  CHECK(contains(folder.error(folder.spec("cifar10", "hundred.bin")),
                 "Records of 3074 bytes fit: is the format cifar100?"));
  folder.write("empty.bin", {});
  CHECK(folder.error(folder.spec("cifar100", "empty.bin")) ==
        "[data.cifar100] " + folder.path("empty.bin") + ": the file is empty, expected records of 3074 bytes.");
  folder.write("class.bin", records(700, 1, 1, [](int64_t i, int) { return i == 600 ? 10 : 3; }));
  CHECK(folder.error(folder.spec("cifar10", "class.bin")) ==
        "[data.cifar10] " + folder.path("class.bin") +
            ": record 600: label at byte offset 1843800: got 10, expected 0 .. 9. The file is damaged, or no file of "
            "this format.");
  folder.write("fine.bin", records(2, 2, 1, [](int64_t i, int place) { return i == 1 && place == 1 ? 100 : 19; }));
  CHECK(contains(folder.error(folder.spec("cifar100", "fine.bin")),
                 "record 1: fine label at byte offset 3075: got 100, expected 0 .. 99."));
  folder.write("coarse.bin", records(2, 2, 1, [](int64_t i, int) { return i == 1 ? 20 : 0; }));
  CHECK(contains(folder.error(folder.spec("cifar100", "coarse.bin")),
                 "record 1: coarse label at byte offset 3074: got 20, expected 0 .. 19."));
  CHECK(contains(folder.error(folder.spec("cifar10", "none")), "path '" + folder.path("none") + "': no such file."));
}

TEST_CASE("A folder that lacks a file, or holds the folder of the files, is reported") {
  CifarFolder folder;
  for (const int f : {1, 2, 4, 5})
    folder.write("data_batch_" + std::to_string(f) + ".bin", records(1, 1, 1, [](int64_t, int) { return 0; }));
  CHECK(contains(folder.error(folder.spec("cifar10")), "data_batch_3.bin': no such file."));
  const test::TempDir outer;
  file_system().make_directories(outer.file("cifar-100-binary"));
  DatasetSpec spec = folder.spec("cifar100");
  spec.root = "";
  spec.path = outer.path();
  CHECK(folder.error(spec) == "[data.cifar100] path '" + outer.path() +
                                  "': got a folder without train.bin, expected '" + outer.file("cifar-100-binary") +
                                  "', which is in it.");
  spec.split = "valid";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "split: got 'valid', expected train or test."));
}

TEST_CASE("The published CIFAR-10 has 5,000 and 1,000 images of each class") {
  const char* const root = std::getenv("BITGRAD_DATA");
  const std::string folder = std::string(root == nullptr ? "" : root) + "/cifar-10-batches-bin";
  if (root == nullptr || !file_system().is_directory(folder)) {
    WARN("skipped: needs cifar-10-batches-bin in $BITGRAD_DATA");
    return;
  }
  for (const char* split : {"train", "test"}) {
    DatasetSpec spec;
    spec.format = "cifar10";
    spec.path = folder;
    spec.split = split;
    const auto set = make_dataset(spec);
    const int64_t each = spec.split == "train" ? 5000 : 1000;
    REQUIRE(set->size() == 10 * each);
    std::array<int64_t, 10> counts{};
    const auto* const labels = static_cast<const uint8_t*>(set->stored().labels);
    for (int64_t i = 0; i < set->size(); ++i) ++counts[labels[i]];
    CHECK(std::all_of(counts.begin(), counts.end(), [&](int64_t count) { return count == each; }));
  }
}

TEST_CASE("the file beside the records of CIFAR names the classes") {
  CifarFolder folder;
  folder.write("test_batch.bin", records(2, 1, 9, [](int64_t i, int) { return 9 - i; }));
  DatasetSpec spec = folder.spec("cifar10");
  spec.split = "test";
  CHECK(make_dataset(spec)->class_names().empty());
  CHECK(contains(describe_data_file(folder.path(".")),
                 "format: cifar10, samples: test (2)\nbatches.meta.txt: not in the folder: predictions print"));
  const auto named = [&](const std::string& text) { folder.write("batches.meta.txt", {text.begin(), text.end()}); };
  named("a\nb\nc\nd e\nf\ng\nh\ni\nj\r\nk\n\n");
  const std::vector<std::string> names{"a", "b", "c", "d e", "f", "g", "h", "i", "j", "k"};
  CHECK(make_dataset(spec)->class_names() == names);
  CHECK(make_dataset(folder.spec("cifar10", "test_batch.bin"))->class_names() == names);  // one file
  CHECK(contains(describe_data_file(folder.path(".")), "batches.meta.txt: a, b, c, d e, f, g, h, i, j, k\n"));
  named("a\nb\n");
  CHECK(contains(folder.error(spec), "batches.meta.txt: got 2 names of classes, expected 10"));
  named("a\nb\nc\nd\x1b[2J\nf\ng\nh\ni\nj\nk\n");
  CHECK(contains(folder.error(spec), "batches.meta.txt:4: got 'd\\x1b[2J', expected the name of a class"));
  // Both fields of CIFAR-100 have names.
  CifarFolder both;
  both.write("test.bin", records(1, 2, 3, [](int64_t, int place) { return place; }));
  std::string coarse;
  for (int i = 0; i < 20; ++i) coarse += "c" + std::to_string(i) + "\n";
  both.write("coarse_label_names.txt", {coarse.begin(), coarse.end()});
  DatasetSpec hundred = both.spec("cifar100");
  hundred.split = "test";
  CHECK(make_dataset(hundred)->class_names().empty());
  hundred.labels = "coarse";
  CHECK(make_dataset(hundred)->class_names().at(19) == "c19");
}

}  // namespace
}  // namespace bitgrad
