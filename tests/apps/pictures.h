// Pictures made byte by byte, and folders of them as `bitgrad data pack` takes them.
#pragma once

#include <zlib.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli.h"
#include "bitgrad/data/dataset.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace bitgrad::test {

using Bytes = std::vector<uint8_t>;

inline void put_big(Bytes& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
}
inline void put_chunk(Bytes& out, const std::string& type, const Bytes& data) {
  put_big(out, static_cast<uint32_t>(data.size()));
  const size_t begin = out.size();
  out.insert(out.end(), type.begin(), type.end());
  out.insert(out.end(), data.begin(), data.end());
  put_big(out, static_cast<uint32_t>(crc32(0, out.data() + begin, static_cast<uInt>(out.size() - begin))));
}

// A PNG file (RFC 2083) of rows of `samples` bytes. type: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA. `chunks`:
// beside those that every file has.
inline Bytes png(int64_t rows, int64_t columns, int type, const Bytes& samples, int depth = 8,
                 const Bytes& palette = {}, const std::vector<std::pair<std::string, Bytes>>& chunks = {}) {
  Bytes out{0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A}, head, lines;
  put_big(head, static_cast<uint32_t>(columns));
  put_big(head, static_cast<uint32_t>(rows));
  for (const int x : {depth, type, 0, 0, 0}) head.push_back(static_cast<uint8_t>(x));
  put_chunk(out, "IHDR", head);
  for (const auto& [name, data] : chunks)
    if (name != "tRNS") put_chunk(out, name, data);
  if (!palette.empty()) put_chunk(out, "PLTE", palette);
  for (const auto& [name, data] : chunks)
    if (name == "tRNS") put_chunk(out, name, data);
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

inline Bytes of_hex(const std::string& text) {
  Bytes out;
  for (size_t i = 0; i < text.size(); i += 2)
    out.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

// 8 x 8 pixels, quality 60, and what libjpeg's exact integer transform makes of them (Pillow 12).
inline constexpr const char* kColorJpeg =
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
inline constexpr const char* kColorPixels =
    "ba2426cc2129c31d21b82e2423a03a18b13d0fad3622ab39c70c1fd70d23ca101eb829251ea53f0dbf4700c14210c246b82f27ca2c2bc12621"
    "b4"
    "352420a53815b53b0bae311eac345652fe7745fe892bf1a221ef3577ff4e6dfc6153f08146f0be2b1bd02a1ec42716b538181dac2e0fbe3105"
    "bb"
    "2a16b92cb31c21c51b24bd1a1fb22d241ca33c12b64308b43a1bb43fcc163cdc1540cd1436b928391d9e4e08b25200b04909af4dbd2719d025"
    "1d"
    "c72115bb331927a7301db83614b42c27b330";
inline constexpr const char* kGrayJpeg =
    "ffd8ffe000104a46494600010100000100010000ffdb0043000d090a0b0a080d0b0a0b0e0e0d0f13201513121213271c1e17202e2931302e29"
    "2d"
    "2c333a4a3e333646372c2d405741464c4e525352323e5a615a50604a51524fffc0000b080008000801011100ffc40014000100000000000000"
    "00"
    "0000000000000004ffc4001e10000102070100000000000000000000001101120002030613143231ffda0008010100003f000594e9b7759529"
    "f0"
    "ec88f3d78008ffd9";
inline constexpr const char* kGrayPixels =
    "1d1b2328abafb8b6341a0f1ebdcdc2a718182225a5a9b2b35664693f7d5459671e1d2526a6a8afae2012111fb6c3c3b5221e2326a9adb2ae1e"
    "18"
    "1e25aeb6bbb5";

class PictureFiles {
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
inline std::pair<Bytes, int32_t> sample_of(const Dataset& set, int64_t index) {
  std::vector<float> x(static_cast<size_t>(set.features()));
  int32_t label = -1;
  set.sample(index, x.data(), &label);
  Bytes bytes;
  for (const float value : x) bytes.push_back(static_cast<uint8_t>(std::lround(value * 255.0f)));
  return {bytes, label};
}

}  // namespace bitgrad::test
