// Pictures as other programs read them: literals made and read with Pillow 13.
#include <zlib.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/data/picture.h"
#include "data/png.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

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

TEST_CASE("the pixels of a PNG are its numbers, whatever it says of their light; its orientation turns it") {
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
