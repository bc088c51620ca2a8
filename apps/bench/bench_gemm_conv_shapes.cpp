#include "bench_gemm_conv_shapes.h"

#include <algorithm>
#include <numeric>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad::bench {

namespace {

// CNV (FINN) on CIFAR-10 at batch 100 and ResNet-20 (He et al. 2016, section 4.2) at 128; each distinct shape once.
const ConvShape kConvShapes[] = {{"cnv1", 100, 32, 32, 3, 64, 3, 1, 0},
                                 {"cnv2", 100, 30, 30, 64, 64, 3, 1, 0},
                                 {"cnv3", 100, 14, 14, 64, 128, 3, 1, 0},
                                 {"cnv4", 100, 12, 12, 128, 128, 3, 1, 0},
                                 {"cnv5", 100, 5, 5, 128, 256, 3, 1, 0},
                                 {"cnv6", 100, 3, 3, 256, 256, 3, 1, 0},
                                 {"resnet20_first", 128, 32, 32, 3, 16, 3, 1, 1},
                                 {"resnet20_16", 128, 32, 32, 16, 16, 3, 1, 1},
                                 {"resnet20_16_32", 128, 32, 32, 16, 32, 3, 2, 1},
                                 {"resnet20_32", 128, 16, 16, 32, 32, 3, 1, 1},
                                 {"resnet20_32_64", 128, 16, 16, 32, 64, 3, 2, 1},
                                 {"resnet20_64", 128, 8, 8, 64, 64, 3, 1, 1}};

std::string known_names() { return joined(kConvShapes, ", ", &ConvShape::name); }

ConvShape parse_numbers(const std::string& text) {
  constexpr int64_t kMostPixels = int64_t{1} << 30;
  std::array<int64_t, 8> v{};
  TextReader in(text);
  bool good = true;
  char comma = ',', rest = 0;
  for (size_t i = 0; i < v.size() && good; ++i)
    good = (i == 0 || (in >> comma && comma == ',')) && (in >> v[i]) && v[i] >= (i + 1 < v.size() ? 1 : 0) &&
           v[i] <= (1 << 16);
  good = good && !(in >> rest);
  ConvShape s{text, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
  require(good && s.n * s.h * s.w <= kMostPixels / s.c, "bench_gemm", "--shape: got '", text,
          "', expected n,h,w,c,o,kernel,stride,pad, or the beginning of one of ", known_names(), '.');
  static_cast<void>(s.output());
  return s;
}

}  // namespace

Conv2dOptions ConvShape::options() const {
  Conv2dOptions options;
  options.kernel = {kernel, kernel};
  options.stride = {stride, stride};
  options.padding = {pad, pad, pad, pad};
  return options;
}

std::string ConvShape::text() const {
  std::string out = std::to_string(n);
  for (const int64_t v : {h, w, c, o, kernel, stride, pad}) out += ',' + std::to_string(v);
  return out;
}

std::vector<ConvShape> parse_conv_shapes(const std::vector<std::string>& words) {
  std::vector<ConvShape> shapes;
  for (const std::string& word : words) {
    const size_t before = shapes.size();
    for (const ConvShape& s : kConvShapes)
      if (s.name.compare(0, word.size(), word) == 0) shapes.push_back(s);
    if (shapes.size() == before) shapes.push_back(parse_numbers(word));
  }
  return shapes;
}

}  // namespace bitgrad::bench
