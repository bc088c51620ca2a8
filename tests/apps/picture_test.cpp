// What `bitgrad data pack` makes of gamma, depth, palette, alpha, color spaces and orientation: docs/configuration.md.
#include <algorithm>
#include <cmath>
#include <random>

#include "apps/pictures.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// The only picture, packed.
Bytes packed_picture(const Bytes& file, const std::vector<std::string>& more = {}) {
  const PictureFiles folder;
  folder.write("set/a/1", file);
  const ProcessResult r = folder.pack("set", more);
  INFO(r.err);
  REQUIRE(r.code == 0);
  return sample_of(*folder.packed(1), 0).first;
}

Bytes big(std::initializer_list<uint32_t> values) {
  Bytes out;
  for (const uint32_t value : values) put_big(out, value);
  return out;
}

constexpr const char* kCmykJpeg =
    "ffd8ffee000e41646f626500640000000000ffdb0043001b12141714111b1716171e1c1b2028422b28252528513a3d3042605565645f555d5b"
    "6"
    "a7899816a7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffc000140800080008044311004d11005911004b1100ffc40015000"
    "1"
    "0100000000000000000000000000000506ffc40014100100000000000000000000000000000000ffda000e0443004d0059004b00003f00a350"
    "1"
    "d34ffd9";

}  // namespace

TEST_CASE("a gamma, chromaticities and color profiles leave the bytes, as in Pillow and torchvision") {
  Bytes gray(256);
  for (size_t i = 0; i < 256; ++i) gray[i] = static_cast<uint8_t>(i);
  const auto with = [&](const std::vector<std::pair<std::string, Bytes>>& chunks) {
    return packed_picture(png(16, 16, 0, gray, 8, {}, chunks), {"--channels", "1"});
  };
  CHECK(with({}) == gray);
  CHECK(with({{"sRGB", {0}}}) == gray);
  CHECK(with({{"gAMA", big({45455})}}) == gray);
  CHECK(with({{"sRGB", {0}}, {"gAMA", big({45455})}}) == gray);
  for (const uint32_t gamma : {100000u, 55556u}) CHECK(with({{"gAMA", big({gamma})}}) == gray);
  // Chromaticities (those of a wide gamut) change nothing.
  CHECK(with({{"cHRM", big({31270, 32900, 73500, 26500, 11500, 82600, 15700, 1800})}}) == gray);
  // So does a color profile, even one that is none.
  CHECK(with({{"iCCP", {'x', 0, 0, 0x78, 0x9C, 0x4B, 0x04, 0x00, 0x00, 0x62, 0x00, 0x62}}}) == gray);
}

TEST_CASE("samples of 16 bits become the nearest byte, those of 1, 2 and 4 bits their share of 255") {
  Bytes wide, expected;
  std::mt19937 random(5);
  for (int i = 0; i < 64 * 3; ++i) {
    const uint32_t value = random() & 0xFFFF;
    wide.insert(wide.end(), {static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)});
    expected.push_back(static_cast<uint8_t>((value * 2 + 257) / 514));
  }
  CHECK(packed_picture(png(8, 8, 2, wide, 16)) == expected);
  CHECK(packed_picture(png(1, 8, 0, {0b10110001}, 1), {"--channels", "1"}) == Bytes{255, 0, 255, 255, 0, 0, 0, 255});
  CHECK(packed_picture(png(1, 4, 0, {0b00011011}, 2), {"--channels", "1"}) == Bytes{0, 85, 170, 255});
  CHECK(packed_picture(png(1, 4, 0, {0x05, 0xAF}, 4), {"--channels", "1"}) == Bytes{0, 85, 170, 255});
}

TEST_CASE("transparency is dropped and never blended: of alpha, of palettes and of a key color") {
  const Bytes palette{10, 20, 30, 200, 100, 0};
  CHECK(packed_picture(png(1, 2, 3, {0, 1}, 8, palette, {{"tRNS", {0, 128}}})) == palette);
  CHECK(packed_picture(png(1, 2, 2, palette, 8, {}, {{"tRNS", {0, 10, 0, 20, 0, 30}}})) == palette);
  CHECK(packed_picture(png(1, 2, 0, {7, 9}, 8, {}, {{"tRNS", {0, 7}}}), {"--channels", "1"}) == Bytes{7, 9});
  CHECK(packed_picture(png(1, 2, 6, {10, 20, 30, 0, 200, 100, 0, 1})) == palette);
  CHECK(packed_picture(png(1, 2, 4, {7, 0, 9, 255}), {"--channels", "1"}) == Bytes{7, 9});
  // The color of a background is not looked at.
  CHECK(packed_picture(png(1, 2, 6, {10, 20, 30, 0, 200, 100, 0, 1}, 8, {}, {{"bKGD", {0, 255, 0, 255, 0, 255}}})) ==
        palette);
}

TEST_CASE("CMYK is read, and the orientation in EXIF data is applied") {
  const PictureFiles folder;
  folder.write("set/a/1.jpg", of_hex(kCmykJpeg));
  CHECK(folder.pack("set").code == 0);

  // Orientation 6: to be turned by 90 degrees.
  const Bytes exif = {0xFF, 0xE1, 0, 34, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                      0,    1,    1, 18, 0,   3,   0,   0,   0, 1, 0,   6,   0, 0,  0, 0, 0, 0};
  Bytes turned = of_hex(kColorJpeg);
  turned.insert(turned.begin() + 2, exif.begin(), exif.end());
  const Bytes lying = of_hex(kColorPixels);
  Bytes standing;
  for (size_t y = 0; y < 8; ++y)
    for (size_t x = 0; x < 8; ++x)
      for (size_t c = 0; c < 3; ++c) standing.push_back(lying[((7 - x) * 8 + y) * 3 + c]);
  CHECK(packed_picture(turned) == standing);
}
