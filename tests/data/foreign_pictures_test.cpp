// Pictures as other programs read them: literals made and read with Pillow 13.
#include <zlib.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/data/picture.h"
#include "data/picture_files.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;
using namespace std::string_view_literals;

namespace {

using PictureBytes = std::vector<uint8_t>;

PictureBytes of_hex(const std::string& text) {
  PictureBytes out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

// 8 rows of 16 gray pixels, the left half 0, the right half 200, to be turned clockwise (orientation 6).
constexpr const char* kTurned =
    "ffd8ffe000104a46494600010100000100010000ffe100224578696600004d4d002a0000000800010112000300000001"
    "0006000000000000ffdb0043000302020302020303030304030304050805050404050a070706080c0a0c0c0b0a0b0b0d"
    "0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffc0000b080008001001011100ffc4001f0000"
    "010501010101010100000000000000000102030405060708090a0bffc400b5100002010303020403050504040000017d"
    "01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728"
    "292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a83848586878889"
    "8a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2"
    "e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffda0008010100003f00fcaaafe856bfffd9";
// 8 x 8 pixels of CMYK 40 90 160 30, which Pillow converts to RGB 190 146 84.
constexpr const char* kInk =
    "ffd8ffee000e41646f626500640000000000ffdb00430002010101010102010101020202020204030202020205040403"
    "04060506060605060606070908060709070606080b08090a0a0a0a0a06080b0c0b0a0c090a0a0affc000140800080008"
    "044311004d11005911004b1100ffc4001f0000010501010101010100000000000000000102030405060708090a0bffc4"
    "00b5100002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c115"
    "52d1f02433627282090a161718191a25262728292a3435363738393a434445464748494a535455565758595a63646566"
    "6768696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2"
    "c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffda000e0443004d005900"
    "4b00003f00fd5cafa52be7bafd84afffd9";
// 8 x 8 gray pixels of 100 in 6 scans.
constexpr const char* kProgressive =
    "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b0b0c1912"
    "130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ffc2000b080008"
    "000801011100ffc40014000100000000000000000000000000000004ffda00080101000000010fffc400141001000000"
    "00000000000000000000000000ffda00080101000105027fffc40014100100000000000000000000000000000000ffda"
    "0008010100063f027fffc40014100100000000000000000000000000000000ffda0008010100013f217fffda00080101"
    "000000107fffc40014100100000000000000000000000000000000ffda0008010100013f107fffd9";

// 6 rows of 5 pixels of 16 bits in seven passes, with every filter; value (y, x, channel) is
// 9973 y + 3571 x + 17011 channel, modulo 65536. Of color types 0, 2, 4 and 6.
constexpr const char* kWideGray =
    "89504e470d0a1a0a0000000d49484452000000050000000610000000010907e742000000484944415478da63666060313fc330fbcae505"
    "2cd2cf98e65c61f27d9579a1751b33ef67e504c6e8bb32cf58fc5ec9bc6250fb6af2c2e976c0b9b8838c25f7f93e4320e3a19330260044"
    "d1208d1986c89f0000000049454e44ae426082";
constexpr const char* kWideColor =
    "89504e470d0a1a0a0000000d4948445200000005000000061002000001a30e2fc9000000a24944415478da636260702a6e79c6647ea6ca"
    "7ecf2686d957eeb92becbabc404c38a28d41fa595ce482330cdb77fdd2b559c0e0fb6a42eca50b9917d638bfdbd6baed8426d71c06decf"
    "0169936e6adeccf159b79fc5ef1508ca8021c3cae36facf4d61e5dcba1e0359959ed6b66c6eadb8a79ceea29891ae95e8ad951fa898152"
    "45216651112295becc89a9cd724b22f4dec3e03a1492f1d049561bf7f57c9fb1430017ad59a6c85db3f80000000049454e44ae426082";
constexpr const char* kWideGrayAlpha =
    "89504e470d0a1a0a0000000d494844520000000500000006100400000186657015000000604944415478da636460702a66323f5365cf38"
    "fbca3d778b33166758a49fc545326cdff54b97c5f7d58458996710c8ccfb39204d39c14592c5ef95df2b1920645879fc8dd5d1b51c0a8c"
    "6a5f3333f83ea342e6c4d46639bdf7a89009a4171d0200902b3d584665e0430000000049454e44ae426082";
constexpr const char* kWideColorAlpha =
    "89504e470d0a1a0a0000000d49484452000000050000000610060000012c6cb89e000000dc4944415478da636660702a6e79763c92d9fc"
    "4c95fd9e4dff5599675fb9e7aeb02b59b7cd6cf9070fcdccc70cd2cfe222179c796ccf32e70a0432f9be9a107be982a873e68535ceefb6"
    "196ab66e3ba1c935c7979f85f77340daa49b577d649e412063f4dd79010f0e2b9bc105561e7f63a5b7b6500126c0a2f6353363f5ed777e"
    "7c9ff1438692fbdb837e1eb5b168ba74d4957d8797f684a3972d445747c8cddbf1505b795e9ae09ad5efe50c2796b0301c3ac96ae3bebe"
    "4be9c21e61fdd0453344efad57544a9eba8ce3cd227dd1c28ecdbf7f4db5e5a8af3ef80e007d3c78a3cb0dc59f0000000049454e44ae42"
    "6082";

PictureBytes png_with(const std::string& chunk) {
  const PictureBytes pixels{0, 17, 34, 51, 136, 255};
  const std::string file = data::png_bytes(pixels.data(), 2, 3, 1);
  constexpr size_t kHead = 33;  // signature and IHDR
  PictureBytes out(file.begin(), file.begin() + kHead);
  const PictureBytes extra = of_hex(chunk);
  out.insert(out.end(), extra.begin(), extra.end());
  out.insert(out.end(), file.begin() + kHead, file.end());
  return out;
}

// The chunk eXIf of this structure.
std::string exif(const std::string& tiff) {
  const PictureBytes body = of_hex("65584966" + tiff);
  std::array<char, 17> size{}, crc{};
  std::snprintf(size.data(), size.size(), "%08zx", body.size() - 4);
  std::snprintf(crc.data(), crc.size(), "%08lx", crc32(0, body.data(), static_cast<uInt>(body.size())));
  return size.data() + ("65584966" + tiff) + crc.data();
}

template <typename F>
bool is_built(F&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;
    WARN("skipped: " << error.what());
    return false;
  }
}

}  // namespace

TEST_CASE("the pixels of a PNG are its values, without gamma; its orientation is applied") {
  if (!is_built([] { decode_png(png_with("")); })) return;
  const PictureBytes plain{0, 17, 34, 51, 136, 255};
  CHECK(decode_png(png_with("")).bytes == plain);
  CHECK(decode_png(png_with("0000000467414d41000186a031e8965f")).bytes == plain);            // gAMA 100000
  CHECK(decode_png(png_with("0000000974524e5300000000000000000073649ba1")).bytes == plain);  // tRNS that does not fit
  // eXIf, orientation 8: turned counterclockwise.
  const Picture turned =
      decode_png(png_with("0000001a655849664d4d002a0000000800010112000300000001000800000000000086583034"));
  CHECK(turned.rows == 3);
  CHECK(turned.columns == 2);
  CHECK(turned.bytes == PictureBytes{34, 255, 17, 136, 0, 51});
  // The same as LONG, in both orders of bytes; a number that is no orientation is none.
  CHECK(decode_png(png_with(exif("4d4d002a00000008000101120004000000010000000800000000"))).bytes == turned.bytes);
  CHECK(decode_png(png_with(exif("49492a0008000000010012010400010000000800000000000000"))).bytes == turned.bytes);
  CHECK(decode_png(png_with(exif("49492a0008000000010012010400010000000800010000000000"))).bytes == plain);
}

TEST_CASE("16-bit samples in passes are those of the same picture line by line") {
  if (!is_built([] { decode_png(of_hex(kWideGray)); })) return;
  const auto check = [](const char* file, int64_t channels) {
    const Picture got = decode_png(of_hex(file));
    REQUIRE(got.rows == 6);
    REQUIRE(got.columns == 5);
    REQUIRE(got.channels == channels);
    for (int64_t i = 0; i < std::ssize(got.bytes); ++i) {
      const int64_t channel = i % channels, x = i / channels % 5, y = i / channels / 5;
      const int64_t value = (9973 * y + 3571 * x + 17011 * channel) % 65536;
      CHECK(got.bytes[static_cast<size_t>(i)] == (value * 255 + 32767) / 65535);  // rounded, as libpng does
    }
  };
  check(kWideGray, 1);
  check(kWideColor, 3);
  check(kWideGrayAlpha, 1);
  check(kWideColorAlpha, 3);
  PictureBytes damaged = of_hex(kWideColor);
  damaged[60] ^= 1;
  CHECK(error_code_of([&] { decode_png(damaged); }) == static_cast<int>(ErrorCode::kData));
}

TEST_CASE("pictures that are not read are named with the way out") {
  const auto refusal = [](std::string_view bytes) {
    return error_of([&] { decode_picture({bytes.begin(), bytes.end()}); });
  };
  constexpr std::string_view kWayOut = ", expected a PNG or JPEG file. Save it as PNG or JPEG";
  const std::pair<std::string_view, std::string_view> kinds[] = {
      {"RIFF\x10\0\0\0WEBPVP8 "sv, "a picture (WebP)"},
      {"GIF89a\x01\0"sv, "a picture (GIF)"},
      {"BM\x46\0\0\0\0\0\0\0\x36\0\0\0"sv, "a picture (BMP)"},
      {"II*\0\x08\0\0\0"sv, "a picture (TIFF)"},
      {"\0\0\0\x20"
       "ftypavif\0"sv,
       "a picture (AVIF)"},
      {"\0\0\0\x20"
       "ftypheic\0"sv,
       "a picture (HEIC)"},
      {"\0\0\0\x0CjP  \r\n\x87\n"sv, "a picture (JPEG 2000)"},
      {"P6\n2 2\n255\n\0\1"sv, "a picture (PPM)"},
      {"<svg xmlns='x'/>", "a picture (SVG)"}};
  for (const auto& [bytes, name] : kinds) CHECK(refusal(bytes) == concat("[picture] got ", name, kWayOut));
  CHECK(refusal("\n<!DOCTYPE HTML><html>") ==
        "[picture] got a page of HTML, expected a PNG or JPEG file. Fetch the file itself, not the page that shows it");
}

TEST_CASE("a JPEG is turned by its orientation, and ink becomes light as Pillow has it") {
  if (!is_built([] { decode_jpeg(of_hex(kTurned)); })) return;
  const Picture turned = decode_jpeg(of_hex(kTurned));
  CHECK(turned.rows == 16);
  CHECK(turned.columns == 8);
  for (size_t i = 0; i < turned.bytes.size(); ++i) CHECK(turned.bytes[i] == (i < 64 ? 0 : 200));
  const Picture ink = decode_jpeg(of_hex(kInk));
  CHECK(ink.channels == 3);
  for (size_t i = 0; i < ink.bytes.size(); ++i) CHECK(ink.bytes[i] == PictureBytes{190, 146, 84}[i % 3]);
}

TEST_CASE("a JPEG of more scans than any program writes is refused, one of an ordinary number is read") {
  if (!is_built([] { decode_jpeg(of_hex(kProgressive)); })) return;
  CHECK(decode_jpeg(of_hex(kProgressive)).bytes == PictureBytes(64, 100));
  std::string text = kProgressive;
  const std::string last = text.substr(text.rfind("ffda"), text.size() - 4 - text.rfind("ffda"));
  for (int scan = 0; scan < 120; ++scan) text.insert(text.size() - 4, last);
  CHECK(error_code_of([&] { decode_jpeg(of_hex(text)); }) == static_cast<int>(ErrorCode::kData));
  CHECK(error_of([&] { decode_jpeg(of_hex(text)); }) ==
        "[picture] damaged JPEG: got more than 100 scans, expected at most as many");
}
