// bitgrad data pack: pictures in folders, into arrays that the format npy reads.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "apps/pictures.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Bytes random_bytes(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes out(static_cast<size_t>(count));
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
  return out;
}

// The weight of old pixel j in new pixel i, from the definition, in double.
double weight_of(int64_t i, int64_t j, int64_t from, int64_t to) {
  const double ratio = static_cast<double>(from) / static_cast<double>(to), a = static_cast<double>(j);
  if (from > to) {
    const double begin = static_cast<double>(i) * ratio, end = begin + ratio;
    return std::max(0.0, std::min(end, a + 1) - std::max(begin, a)) / ratio;
  }
  const double center = std::clamp((static_cast<double>(i) + 0.5) * ratio - 0.5, 0.0, static_cast<double>(from - 1));
  return std::max(0.0, 1.0 - std::fabs(center - a));
}

}  // namespace

TEST_CASE("pack reads every form of PNG and JPEG, with the classes in the order of their names") {
  const PictureFiles folder;
  const Bytes rgb = random_bytes(8 * 8 * 3, 1), gray = random_bytes(64, 2);
  Bytes rgba, wide_gray, gray_alpha, indices, palette{10, 20, 30, 200, 100, 0};
  for (size_t p = 0; p < 64; ++p) {
    for (size_t c = 0; c < 3; ++c) rgba.push_back(rgb[p * 3 + c]);
    rgba.push_back(static_cast<uint8_t>(p * 3));
    wide_gray.insert(wide_gray.end(), {gray[p], gray[p]});  // v * 257
    gray_alpha.insert(gray_alpha.end(), {gray[p], static_cast<uint8_t>(255 - p)});
    indices.push_back(static_cast<uint8_t>(p % 2));
  }
  folder.write("set/b/1.png", png(8, 8, 2, rgb));
  folder.write("set/b/2.png", png(8, 8, 6, rgba));
  folder.write("set/b/3.png", png(8, 8, 3, indices, 8, palette));
  folder.write("set/a/1.png", png(8, 8, 0, gray));
  folder.write("set/a/2.png", png(8, 8, 0, wide_gray, 16));
  folder.write("set/a/3.png", png(8, 8, 4, gray_alpha));
  folder.write("set/c/1.jpg", of_hex(kColorJpeg));
  folder.write("set/c/2.whatever", of_hex(kGrayJpeg));
  folder.write("set/c/.hidden", {1, 2, 3});
  folder.write("set/readme.txt", {1});
  const ProcessResult r = folder.pack("set");
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "8 pictures of 8 x 8 x 3 in 3 classes, 2 to 3 each\n"));
  CHECK(contains(r.out, "classes: 3}\n"));
  CHECK(folder.text("out.classes.txt") == "a\nb\nc\n");
  const auto set = folder.packed(3);
  REQUIRE(set->size() == 8);
  CHECK(set->sample_shape() == std::vector<int64_t>{8, 8, 3});
  const auto tripled = [](const Bytes& one) {
    Bytes out;
    for (const uint8_t byte : one) out.insert(out.end(), 3, byte);
    return out;
  };
  Bytes colors;
  for (const uint8_t i : indices) colors.insert(colors.end(), palette.begin() + i * 3, palette.begin() + i * 3 + 3);
  const std::vector<std::pair<Bytes, int32_t>> expected = {
      {tripled(gray), 0}, {tripled(gray), 0}, {tripled(gray), 0},        {rgb, 1},
      {rgb, 1},           {colors, 1},        {of_hex(kColorPixels), 2}, {tripled(of_hex(kGrayPixels)), 2}};
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(i);
    CHECK(sample_of(*set, static_cast<int64_t>(i)) == expected[i]);
  }
  CHECK(folder.pack("set").code == 2);  // never overwritten
  REQUIRE(folder.pack("set", {"--force", "--channels", "1"}).code == 0);
  const auto grays = folder.packed(3);
  CHECK(grays->sample_shape() == std::vector<int64_t>{8, 8});
  CHECK(sample_of(*grays, 1).first == gray);
  for (size_t p = 0; p < 64; ++p) {
    const double l = 0.299 * rgb[p * 3] + 0.587 * rgb[p * 3 + 1] + 0.114 * rgb[p * 3 + 2];
    CHECK(std::fabs(sample_of(*grays, 3).first[p] - l) < 0.51);
  }
}

TEST_CASE("pack resizes by areas and between centers") {
  const PictureFiles folder;
  const std::pair<int64_t, int64_t> sizes[] = {{13, 7}, {5, 40}, {6, 6}, {1, 1}, {32, 9}, {64, 12}};
  std::vector<Bytes> pictures;
  for (size_t i = 0; i < std::size(sizes); ++i) {
    pictures.push_back(random_bytes(sizes[i].first * sizes[i].second * 3, static_cast<uint32_t>(i)));
    folder.write("set/a/" + std::to_string(i) + ".png", png(sizes[i].first, sizes[i].second, 2, pictures.back()));
  }
  constexpr int64_t kRows = 6, kColumns = 9;
  REQUIRE(folder.pack("set", {"--size", "6x9"}).code == 0);
  const auto set = folder.packed(1);
  REQUIRE(set->sample_shape() == std::vector<int64_t>{kRows, kColumns, 3});
  double worst = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto [rows, columns] = sizes[i];
    const Bytes seen = sample_of(*set, static_cast<int64_t>(i)).first;
    for (int64_t y = 0; y < kRows; ++y)
      for (int64_t x = 0; x < kColumns; ++x)
        for (int64_t c = 0; c < 3; ++c) {
          double sum = 0;
          for (int64_t v = 0; v < rows; ++v)
            for (int64_t u = 0; u < columns; ++u)
              sum += weight_of(y, v, rows, kRows) * weight_of(x, u, columns, kColumns) *
                     pictures[i][static_cast<size_t>((v * columns + u) * 3 + c)];
          worst = std::max(worst, std::fabs(sum - seen[static_cast<size_t>((y * kColumns + x) * 3 + c)]));
        }
  }
  CHECK(worst < 0.5 + 1e-9);
}

TEST_CASE("pack lists every file that cannot be packed, or leaves them out") {
  const PictureFiles folder;
  const Bytes good = png(4, 4, 0, random_bytes(16, 1)), color = of_hex(kColorJpeg);
  folder.write("set/a/1.png", good);
  folder.write("set/a/2.png", Bytes(good.begin(), good.end() - 20));
  folder.write("set/a/3.txt", {'h', 'i'});
  folder.write("set/a/4.png", {});
  folder.write("set/b/6\nx.webp", {'R', 'I', 'F', 'F', 1, 0, 0, 0, 'W', 'E', 'B', 'P', 0});
  folder.write("set/b/1.jpg", Bytes(color.begin(), color.end() - 30));
  folder.write("set/b/2.png", png(4, 5, 0, random_bytes(20, 1)));
  folder.write("set/b/3.png", good);
  folder.write("set/b/4/5.png", good);
  Bytes damaged = good;
  damaged[damaged.size() - 25] ^= 1;
  folder.write("set/b/5.png", damaged);
  const ProcessResult r = folder.pack("set");
  CHECK(r.code == 3);
  CHECK(contains(r.err, "8 of 10 files cannot be packed, and nothing was written:"));
  CHECK(contains(r.err, folder.path("set/a/2.png") + ": damaged PNG: got '"));
  CHECK(contains(r.err, folder.path("set/a/3.txt") + ": got neither a PNG nor a JPEG file, expected one of them"));
  CHECK(contains(r.err, folder.path("set/a/4.png") + ": the file is empty"));
  CHECK(contains(r.err, folder.path("set/b/1.jpg") + ": damaged JPEG: got '"));
  CHECK(contains(r.err, folder.path("set/b/2.png") +
                            ": got 4 x 5 pixels, expected 4 x 4, as the first picture. Give --size to resize them"));
  CHECK(contains(r.err,
                 folder.path("set/b/6") + "\\nx.webp: got a picture (WebP), expected a PNG or JPEG file. Save it"));
  CHECK(contains(r.err, folder.path("set/b/4") + ": got a folder, expected a picture"));
  CHECK(contains(r.err, folder.path("set/b/5.png") + ": damaged PNG"));
  CHECK_FALSE(std::filesystem::exists(folder.path("out.images.npy")));
  const ProcessResult skipped = folder.pack("set", {"--skip-bad"});
  CHECK(skipped.code == 0);
  CHECK(contains(skipped.err, "skipped 8 of 10 files"));
  CHECK(folder.packed(2)->size() == 2);
  CHECK(sample_of(*folder.packed(2), 1).second == 1);
  CHECK_FALSE(std::filesystem::exists(folder.path("out.images.npy.part")));
}

TEST_CASE("pack reports missing arguments") {
  const PictureFiles folder;
  folder.write("set/a/1.png", png(1, 1, 0, {7}));
  folder.write("test/b/1.png", png(1, 1, 0, {7}));
  folder.write("flat/1.png", png(1, 1, 0, {7}));
  std::filesystem::create_directories(folder.path("empty/x"));
  folder.write("names.txt", {'z', '\n', 'a', '\r', '\n', 'b'});
  const auto wrong = [&](const std::string& from, const std::vector<std::string>& more = {}, int code = 2) {
    const ProcessResult r = folder.pack(from, more);
    CHECK(r.code == code);
    return r.err;
  };
  CHECK(contains(wrong("none", {}, 3), "no such folder, expected one with a sub-folder for each class"));
  CHECK(contains(wrong("flat", {}, 3), "got no sub-folder, expected one for each class"));
  CHECK(contains(wrong("empty", {}, 3), "got an empty folder, expected pictures of the class"));
  for (const char* size : {"3y", "0x3", "3x", "3x4x5", "9000x1"})
    CHECK(contains(wrong("set", {"--size", size}), "expected rows x columns such as 32x32"));
  CHECK(contains(wrong("set", {"--channels", "2"}), "--channels: got 2, expected 1 (gray) or 3 (color)"));
  folder.write("few.txt", {'z', '\n'});
  CHECK(contains(wrong("set", {"--classes", folder.path("few.txt")}, 3),
                 "/a': got a class that is not among those of '" + folder.path("few.txt") + "'"));
  CHECK(contains(wrong("set", {folder.path("test")}), "got 2 names, expected one folder"));
  CHECK(folder.pack("test", {"--classes", folder.path("names.txt")}).code == 0);
  CHECK(sample_of(*folder.packed(3), 0).second == 2);
  CHECK(folder.text("out.classes.txt") == "z\na\nb\n");
}

TEST_CASE("data info describes a folder of classes, and refuses what does not exist") {
  const PictureFiles folder;
  const std::vector<uint8_t> begin{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  folder.write("set/a/1.png", begin);
  folder.write("set/b/1.png", begin);
  folder.write("set/b/2.png", begin);
  const ProcessResult r = cli({"data", "info", folder.path("set")});
  CHECK(r.code == 0);
  folder.write("more/a/1.png", begin);
  folder.write("more/a/notes.txt", {'x'});
  CHECK(cli({"data", "info", folder.path("more")}).out ==
        "format: image_folder, 1 files in 1 classes: a (1); 1 other files of unsupported formats\n"
        "in a configuration: {format: image_folder, path: " +
            folder.path("more") + "}\n");
  // No classes are invented.
  const auto refused = [&](const std::string& name) {
    const ProcessResult wrong = cli({"data", "info", folder.path(name)});
    CHECK(wrong.code == 3);
    return wrong.err;
  };
  folder.write("splits/train/a/1.png", begin);
  CHECK(contains(refused("splits"),
                 "so they are not classes. Name one of them, such as '" + folder.path("splits/train")));
  folder.write("cifar/cifar-10-batches-bin/data_batch_1.bin", {1});
  CHECK(contains(refused("cifar"), "got a folder above one of CIFAR"));
  CHECK(contains(refused("cifar/cifar-10-batches-bin"), "data_batch_1.bin: record 0"));
  folder.write("texts/a/1.txt", {'x'});
  CHECK(contains(refused("texts"), "got no picture in its 1 folders"));
  CHECK(contains(r.out, "format: image_folder, 3 files in 2 classes: a (1) b (2)\n"));
  const ProcessResult json = cli({"data", "info", folder.path("set"), "--json"});
  CHECK(json.out == R"({"format":"image_folder","files":3,"classes":{"a":1,"b":2}})"
                    "\n");
  const ProcessResult none = cli({"data", "info", folder.path("absent")});
  CHECK(none.code == 3);
  CHECK(contains(none.err, "no such file or folder"));
}
