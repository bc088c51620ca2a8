// Codes, scales, zero points and values equal those of torchao 0.18 on CPU, bit for bit. tests/golden/torchao_0_18.json
// was written by scripts/torchao_golden.py, which also says how the inputs are made.
#include <array>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "bitgrad/base/json.h"
#include "bitgrad/io/sha256.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/paths.h"

namespace bitgrad {
namespace {

using json = Json;
using Bytes = std::vector<uint8_t>;

const json& golden() {
  static const json file = [] {
    std::ifstream in(test::source_path("tests/golden/torchao_0_18.json"));
    return json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  }();
  return file;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& numbers) {
  Bytes out(numbers.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), numbers.data(), out.size());
  return out;
}

Bytes from_hex(const std::string& hex) {
  Bytes out(hex.size() / 2);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return out;
}

std::string to_hex(const Bytes& bytes) {
  std::string out;
  for (const uint8_t b : bytes) {
    out += "0123456789abcdef"[b >> 4];
    out += "0123456789abcdef"[b & 15];
  }
  return out;
}

struct Input {
  Shape shape;
  Tensor x;
};

// The generators of the script: a is the first, b the second of a pair of 24-bit draws.
const std::map<std::string, std::function<double(int64_t a, int64_t b)>>& generators() {
  static const std::map<std::string, std::function<double(int64_t, int64_t)>> all = {
      {"uniform", [](int64_t a, int64_t) { return std::ldexp(static_cast<double>(a - (1 << 23)), -22); }},
      {"spread",
       [](int64_t a, int64_t b) {
         return std::ldexp(static_cast<double>(a - (1 << 23)), -23 - static_cast<int>(b >> 20));
       }},
      {"ties", [](int64_t a, int64_t) { return static_cast<double>(a % 511 - 255) * 0.5; }},
      {"negative", [](int64_t a, int64_t) { return -std::ldexp(static_cast<double>(a + 1), -30); }}};
  return all;
}

Input make_input(const std::string& name) {
  if (name == "blocks") {
    const Bytes raw = from_hex(golden()["blocks"].text());
    std::vector<float> x(raw.size() / sizeof(float));
    std::memcpy(x.data(), raw.data(), raw.size());
    const Shape shape{static_cast<int64_t>(x.size()) / 32, 32};
    return {shape, test::tensor_of(shape, x)};
  }
  const std::vector<std::string> order = {"uniform", "spread", "ties", "negative"};
  uint32_t state = static_cast<uint32_t>(std::find(order.begin(), order.end(), name) - order.begin()) + 1;
  const auto next = [&] { return static_cast<int64_t>((state = state * 1664525u + 1013904223u) >> 8); };
  const Shape shape{golden()["rows"].get<int64_t>(), golden()["cols"].get<int64_t>()};
  std::vector<float> x(static_cast<size_t>(shape.numel()));
  for (float& v : x) {
    const int64_t a = next(), b = next();
    v = static_cast<float>(generators().at(name)(a, b));
  }
  return {shape, test::tensor_of(shape, x)};
}

const Input& input(const std::string& name) {
  static std::map<std::string, Input> made;
  if (!made.contains(name)) made[name] = make_input(name);
  return made[name];
}

// torchao's method -> scheme of the same bits.
QuantSpec spec_of(const std::string& method, const std::string& dtype, const std::string& granularity) {
  QuantSpec spec;
  spec.dtype = parse_dtype(dtype);
  for (const Granularity& g :
       {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1), Granularity::token(),
        Granularity::groups(32), Granularity::groups(64), Granularity::groups(128), Granularity::groups(32, 0)})
    if (concat(g) == granularity) spec.granularity = g;
  REQUIRE(concat(spec.granularity) == granularity);
  spec.scheme = method;
  if (method == "8da4w_weight") spec.scheme = "symmetric";
  if (method == "8da4w_activation") spec.scheme = "affine";
  if (method == "int4wo") {
    spec.scheme = "minmax_offset";
    // torchao 0.18 takes max((h-l)/15, 1e-6), we take max(h-l, eps)/15: 1.5e-5 is the smallest fp32 number whose 15th
    // part rounds to fp32 1e-6.
    spec.eps = 1.5e-5f;
  }
  return spec;
}

struct Result {
  Bytes codes, scales, zeros, values;
};

Result quantized(const QuantSpec& spec, const Tensor& x) {
  const Tensor t = quantize_dynamic(spec, x);
  const QuantParams& p = *t.quant();
  Result out;
  for (const double q : t.elements()) out.codes.push_back(static_cast<uint8_t>(static_cast<int>(q)));
  const auto copy = [](const Tensor& from) {
    const uint8_t* data = static_cast<const uint8_t*>(from.data());
    return Bytes(data, data + from.numel() * 4);
  };
  out.scales = copy(*p.scale);
  if (p.zero) out.zeros = copy(*p.zero);
  if (p.offset) out.zeros = copy(*p.offset);
  if (!p.zero && !p.offset) out.zeros = Bytes(out.scales.size(), 0);
  out.values = copy(dequantize_tensor(t));
  return out;
}

std::string digest(const Bytes& bytes) { return sha256_hex(bytes.data(), bytes.size()).substr(0, 32); }

// First difference of two results of the adversarial blocks, row by row.
std::string first_difference(const Bytes& got, const std::string& hex, size_t width) {
  const Bytes want = from_hex(hex);
  if (got.size() != want.size()) return concat("got ", got.size(), " bytes, expected ", want.size());
  for (size_t i = 0; i + width <= got.size(); i += width)
    if (!std::equal(got.begin() + static_cast<int64_t>(i), got.begin() + static_cast<int64_t>(i + width),
                    want.begin() + static_cast<int64_t>(i)))
      return concat("number ", i / width, ": got ",
                    to_hex({got.begin() + static_cast<int64_t>(i), got.begin() + static_cast<int64_t>(i + width)}),
                    ", expected ", hex.substr(2 * i, 2 * width));
  return "";
}

TEST_CASE("affine, symmetric, int4 weight only and 8da4w have the bits of torchao 0.18") {
  CHECK(golden()["torchao"].get<std::string>().starts_with("0.18."));
  int64_t compared = 0;
  std::map<std::string, int> cases;
  for (const json& line : golden()["cases"]) {
    const auto text = line.get<std::vector<std::string>>();
    REQUIRE(text.size() == 8);
    const Input& in = input(text[3]);
    INFO(text[0] << ' ' << text[1] << " per " << text[2] << ", input " << text[3]);
    const Result r = quantized(spec_of(text[0], text[1], text[2]), in.x);
    if (text[3] == "blocks") {
      CHECK(first_difference(r.codes, text[4], 1) == "");
      CHECK(first_difference(r.scales, text[5], 4) == "");
      CHECK(first_difference(r.zeros, text[6], 4) == "");
    } else {
      CHECK(digest(r.codes) == text[4]);
      CHECK(digest(r.scales) == text[5]);
      CHECK(digest(r.zeros) == text[6]);
    }
    CHECK(digest(r.values) == text[7]);
    compared += in.x.numel();
    ++cases[text[0]];
  }
  // Numbers, each as a code and as a value; scales and zeros come on top.
  CHECK(compared == 2701312);
  CHECK(cases["affine"] == 5 * 29);
  CHECK(cases["symmetric"] == 3 * 29);
  CHECK(cases["symmetric_no_clip"] == 3 * 29);
  CHECK(cases["int4wo"] == 4 * 3 + 1);
  CHECK(cases["8da4w_weight"] == 5);
  CHECK(cases["8da4w_activation"] == 5);
}

TEST_CASE(
    "as uint4, the recipe's dtype, int4 weight only has torchao's codes and scales; values differ in the last bit") {
  int64_t different = 0, cases = 0;
  for (const json& line : golden()["cases"]) {
    const auto text = line.get<std::vector<std::string>>();
    if (text[0] != "int4wo" || text[3] == "blocks") continue;
    INFO("per " << text[2] << ", input " << text[3]);
    ++cases;
    const Input& in = input(text[3]);
    QuantSpec spec = spec_of(text[0], "uint4", text[2]);
    Result r = quantized(spec, in.x);
    for (uint8_t& q : r.codes) q = static_cast<uint8_t>(q - 8);
    CHECK(digest(r.codes) == text[4]);
    CHECK(digest(r.scales) == text[5]);
    spec.dtype = dtypes::int4;
    const Tensor same = dequantize_tensor(quantize_dynamic(spec, in.x));  // torchao's values, by the test above
    const auto values = [](const Bytes& bytes) {
      std::vector<float> out(bytes.size() / 4);
      std::memcpy(out.data(), bytes.data(), bytes.size());
      return out;
    };
    const std::vector<float> ours = values(r.values), lows = values(r.zeros), scales = values(r.scales);
    const ScaleMap map = quantize_dynamic(spec, in.x).scale_map();
    const int64_t cols = in.x.cols();
    for (int64_t e = 0; e < in.x.numel(); ++e) {
      const auto j = static_cast<size_t>(map.index(e / cols, e % cols));
      const float want = same.as<float>()[e], got = ours[static_cast<size_t>(e)];
      different += got != want;
      // Three sums and a product, rounded once each; the largest number among them is l, or l + 8s.
      const float size = std::fabs(lows[j]) + 8 * scales[j];
      if (std::fabs(got - want) > size * 0x1p-22f)
        FAIL_CHECK("element " << e << ": got " << got << ", torchao " << want);
    }
  }
  CHECK(cases == 12);
  CHECK(different > 0);
}

TEST_CASE("eps of minmax_offset bounds h - l, that of torchao's int4 weight only bounds the scale") {
  // A block with h - l = 2^-19 < 1.5e-5: torchao 0.18 gives s = 1e-6, the default of the scheme (eps 1e-6) (h-l)/15.
  const Tensor x = test::tensor_of({1, 2}, {0.5f, 0.5f + 0x1p-19f});
  QuantSpec spec;
  spec.scheme = "minmax_offset";
  spec.dtype = dtypes::int4;
  CHECK(find_quantizer(spec.scheme).fit(spec, x).scale->item() == static_cast<double>(0x1p-19f / 15.0f));
  spec.eps = 1.5e-5f;
  CHECK(find_quantizer(spec.scheme).fit(spec, x).scale->item() == static_cast<double>(1e-6f));
}

}  // namespace
}  // namespace bitgrad
