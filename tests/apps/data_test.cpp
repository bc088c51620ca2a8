// bitgrad data pack: pictures in folders, into arrays that the format npy reads.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "apps/cli.h"
#include "bitgrad/data/dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Bytes = std::vector<uint8_t>;

void put_big(Bytes& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
}
void put_chunk(Bytes& out, const std::string& type, const Bytes& data) {
  put_big(out, static_cast<uint32_t>(data.size()));
  const size_t begin = out.size();
  out.insert(out.end(), type.begin(), type.end());
  out.insert(out.end(), data.begin(), data.end());
  put_big(out, static_cast<uint32_t>(crc32(0, out.data() + begin, static_cast<uInt>(out.size() - begin))));
}

// A PNG file (RFC 2083) of rows of `samples` bytes. type: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA.
Bytes png(int64_t rows, int64_t columns, int type, const Bytes& samples, int depth = 8, const Bytes& palette = {}) {
  Bytes out{0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A}, head, lines;
  put_big(head, static_cast<uint32_t>(columns));
  put_big(head, static_cast<uint32_t>(rows));
  for (const int x : {depth, type, 0, 0, 0}) head.push_back(static_cast<uint8_t>(x));
  put_chunk(out, "IHDR", head);
  if (!palette.empty()) put_chunk(out, "PLTE", palette);
  const size_t row = samples.size() / static_cast<size_t>(rows);
  for (int64_t y = 0; y < rows; ++y) {
    lines.push_back(0);
    lines.insert(lines.end(), samples.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(y) * row),
                 samples.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(y + 1) * row));
  }
  uLongf size = compressBound(lines.size());
  Bytes packed(size);
  REQUIRE(compress(packed.data(), &size, lines.data(), lines.size()) == Z_OK);
  packed.resize(size);
  put_chunk(out, "IDAT", packed);
  put_chunk(out, "IEND", {});
  return out;
}

Bytes of_hex(const std::string& text) {
  Bytes out;
  for (size_t i = 0; i < text.size(); i += 2)
    out.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

// 8 x 8 pixels, quality 60, and what libjpeg's exact integer transform makes of them (Pillow 12).
const char* const kColorJpeg =
    "ffd8ffe000104a46494600010100000100010000ffdb0043000d090a0b0a080d0b0a0b0e0e0d0f13201513121213271c1e17202e2931302e29"
    "2d"
    "2c333a4a3e333646372c2d405741464c4e525352323e5a615a50604a51524fffdb0043010e0e0e131113261515264f352d354f4f4f4f4f4f4f"
    "4f"
    "4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4fffc000110800080008030111000211"
    "01"
    "031101ffc40014000100000000000000000000000000000005ffc4001b10000104030000000000000000000000000100041131122122ffc400"
    "15"
    "01010100000000000000000000000000000204ffc40021110000040505000000000000000000000000010213030611213151527192d2ffda00"
    "0c"
    "03010002110311003f003994778822af6a652a06d3ec5e4398ea4d397ce2da723fffd9";
const char* const kColorPixels =
    "ba2426cc2129c31d21b82e2423a03a18b13d0fad3622ab39c70c1fd70d23ca101eb829251ea53f0dbf4700c14210c246b82f27ca2c2bc12621"
    "b4"
    "352420a53815b53b0bae311eac345652fe7745fe892bf1a221ef3577ff4e6dfc6153f08146f0be2b1bd02a1ec42716b538181dac2e0fbe3105"
    "bb"
    "2a16b92cb31c21c51b24bd1a1fb22d241ca33c12b64308b43a1bb43fcc163cdc1540cd1436b928391d9e4e08b25200b04909af4dbd2719d025"
    "1d"
    "c72115bb331927a7301db83614b42c27b330";
const char* const kGrayJpeg =
    "ffd8ffe000104a46494600010100000100010000ffdb0043000d090a0b0a080d0b0a0b0e0e0d0f13201513121213271c1e17202e2931302e29"
    "2d"
    "2c333a4a3e333646372c2d405741464c4e525352323e5a615a50604a51524fffc0000b080008000801011100ffc40014000100000000000000"
    "00"
    "0000000000000004ffc4001e10000102070100000000000000000000001101120002030613143231ffda0008010100003f000594e9b7759529"
    "f0"
    "ec88f3d78008ffd9";
const char* const kGrayPixels =
    "1d1b2328abafb8b6341a0f1ebdcdc2a718182225a5a9b2b35664693f7d5459671e1d2526a6a8afae2012111fb6c3c3b5221e2326a9adb2ae1e"
    "18"
    "1e25aeb6bbb5";

class PictureFolder {
 public:
  void write(const std::string& name, const Bytes& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(folder_.file(name)).parent_path());
    std::ofstream(folder_.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::string path(const std::string& name) const { return folder_.file(name); }
  ProcessResult pack(const std::string& from, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"data", "pack", path(from), "-o", path("out")});
    return cli(more);
  }
  std::unique_ptr<Dataset> packed(int64_t classes) const {
    DatasetSpec spec;
    spec.format = "npy";
    spec.images = path("out.images.npy");
    spec.labels = path("out.labels.npy");
    spec.classes = classes;
    return make_dataset(spec);
  }
  std::string text(const std::string& name) const {
    std::ifstream in(path(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  TempDir folder_;
};

// The bytes and the class of a packed sample.
std::pair<Bytes, int32_t> sample_of(const Dataset& set, int64_t index) {
  std::vector<float> x(static_cast<size_t>(set.features()));
  int32_t label = -1;
  set.sample(index, x.data(), &label);
  Bytes bytes;
  for (const float value : x) bytes.push_back(static_cast<uint8_t>(std::lround(value * 255.0f)));
  return {bytes, label};
}

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
  const PictureFolder folder;
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
  const PictureFolder folder;
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
  const PictureFolder folder;
  const Bytes good = png(4, 4, 0, random_bytes(16, 1)), color = of_hex(kColorJpeg);
  folder.write("set/a/1.png", good);
  folder.write("set/a/2.png", Bytes(good.begin(), good.end() - 20));
  folder.write("set/a/3.txt", {'h', 'i'});
  folder.write("set/a/4.png", {});
  folder.write("set/b/1.jpg", Bytes(color.begin(), color.end() - 30));
  folder.write("set/b/2.png", png(4, 5, 0, random_bytes(20, 1)));
  folder.write("set/b/3.png", good);
  folder.write("set/b/4/5.png", good);
  Bytes damaged = good;
  damaged[damaged.size() - 25] ^= 1;
  folder.write("set/b/5.png", damaged);
  const ProcessResult r = folder.pack("set");
  CHECK(r.code == 3);
  CHECK(contains(r.err, "7 of 9 files cannot be packed, and nothing was written:"));
  CHECK(contains(r.err, folder.path("set/a/2.png") + ": damaged PNG: got '"));
  CHECK(contains(r.err, folder.path("set/a/3.txt") + ": got neither a PNG nor a JPEG file, expected one of them"));
  CHECK(contains(r.err, folder.path("set/a/4.png") + ": the file is empty"));
  CHECK(contains(r.err, folder.path("set/b/1.jpg") + ": damaged JPEG: got '"));
  CHECK(contains(r.err, folder.path("set/b/2.png") +
                            ": got 4 x 5 pixels, expected 4 x 4, as the first picture. Give --size to resize them"));
  CHECK(contains(r.err, folder.path("set/b/4") + ": got a folder, expected a picture"));
  CHECK(contains(r.err, folder.path("set/b/5.png") + ": damaged PNG"));
  CHECK_FALSE(std::filesystem::exists(folder.path("out.images.npy")));
  const ProcessResult skipped = folder.pack("set", {"--skip-bad"});
  CHECK(skipped.code == 0);
  CHECK(contains(skipped.err, "skipped 7 of 9 files"));
  CHECK(folder.packed(2)->size() == 2);
  CHECK(sample_of(*folder.packed(2), 1).second == 1);
  CHECK_FALSE(std::filesystem::exists(folder.path("out.images.npy.part")));
}

TEST_CASE("pack says what its arguments lack") {
  const PictureFolder folder;
  folder.write("set/a/1.png", png(1, 1, 0, {7}));
  folder.write("test/b/1.png", png(1, 1, 0, {7}));
  folder.write("flat/1.png", png(1, 1, 0, {7}));
  std::filesystem::create_directories(folder.path("empty/x"));
  folder.write("names.txt", {'z', '\n', 'a', '\r', '\n', 'b'});
  const auto wrong = [&](const std::string& from, const std::vector<std::string>& more = {}) {
    const ProcessResult r = folder.pack(from, more);
    CHECK(r.code == 2);
    return r.err;
  };
  CHECK(contains(wrong("none"), "there is no such folder, expected one with a sub-folder for each class"));
  CHECK(contains(wrong("flat"), "got no sub-folder, expected one for each class"));
  CHECK(contains(wrong("empty"), "got an empty folder, expected pictures of the class"));
  for (const char* size : {"32", "0x3", "3x", "3x4x5", "9000x1"})
    CHECK(contains(wrong("set", {"--size", size}), "expected rows x columns such as 32x32"));
  CHECK(contains(wrong("set", {"--channels", "2"}), "--channels: got 2, expected 1 (gray) or 3 (color)"));
  folder.write("few.txt", {'z', '\n'});
  CHECK(contains(wrong("set", {"--classes", folder.path("few.txt")}), "got a class that is no line of"));
  CHECK(folder.pack("test", {"--classes", folder.path("names.txt")}).code == 0);
  CHECK(sample_of(*folder.packed(3), 0).second == 2);
  CHECK(folder.text("out.classes.txt") == "z\na\nb\n");
}
