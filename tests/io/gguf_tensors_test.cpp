// Tensors in GGUF: blocks of ggml's package and ours, value by value and byte by byte.
#include "bitgrad/io/gguf.h"

#include <cmath>
#include <limits>
#include <set>

#include "bitgrad/base/rng.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Kind = GgufFit::Kind;
const std::string kGolden = source_path("tests/golden/ggml_blocks.gguf");

Tensor flat(const std::vector<double>& numbers, DType dtype) {
  return Tensor::from_elements({std::ssize(numbers)}, dtype, numbers);
}

// Codes with scales that are fp16 numbers, and offsets or zero points where wanted.
struct Codes {
  DType dtype;
  Granularity granularity;
  bool offsets = false, zeros = false;

  Tensor make(int64_t rows, int64_t cols, uint64_t seed) const {
    const Tensor t = random_tensor({rows, cols}, dtype, seed);
    const int64_t count = scale_count(granularity, rows, cols);
    const auto drawn = [&](uint64_t part, double low, double high, double unit) {
      std::vector<double> numbers = random_numbers(dtypes::fp32, count, seed + part, low, high);
      for (double& n : numbers) n = std::rint(n) * unit;
      return numbers;
    };
    const std::vector<double> scale = drawn(1, 1, 2047, 0x1p-14), offset = drawn(2, -2047, 2047, 0x1p-12),
                              zero = drawn(3, 0, 1, 1);
    QuantParams params{.scheme = "fixed", .granularity = granularity};
    params.scale = std::make_shared<const Tensor>(flat(scale, dtypes::fp32));
    if (offsets) params.offset = std::make_shared<const Tensor>(flat(offset, dtypes::fp32));
    if (zeros) params.zero = std::make_shared<const Tensor>(flat(zero, dtypes::int32));
    return t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
  }
};

Tensor through_file(const Tensor& t, GgufType type) {
  const TempDir dir;
  write_gguf(dir.file("t"), {gguf_item("name", t, type)}, {});
  return gguf_tensor(GgufFile::read(dir.file("t")), "name");
}

Tensor with_scale(const Tensor& t, double scale) {
  QuantParams params = *t.quant();
  params.scale = std::make_shared<const Tensor>(flat({scale}, dtypes::fp32));
  return t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

}  // namespace

TEST_CASE("Blocks of ggml's package have its values, and are written again byte for byte") {
  const GgufFile file = GgufFile::read(kGolden);
  const std::set<std::string> read_only{"q2_k", "q3_k", "q4_k", "q5_k", "q6_k"};
  int compared = 0;
  for (const GgufEntry& entry : file.entries()) {
    if (!file.contains(entry.name + ".values")) continue;
    INFO(entry.name);
    const Tensor t = gguf_tensor(file, entry.name), expected = gguf_tensor(file, entry.name + ".values");
    CHECK(t.shape() == Shape{2, 512});
    CHECK(t.to_vector() == expected.to_vector());
    ++compared;
    if (read_only.count(entry.name) != 0) {
      CHECK(t.dtype() == dtypes::fp32);
      continue;
    }
    CHECK(gguf_fit(t, entry.type).kind == Kind::kExact);
    CHECK(gguf_item(entry.name, t, entry.type).data == file.data(entry.name));
  }
  CHECK(compared == 17);
}

TEST_CASE("Types of files become these dtypes") {
  const GgufFile file = GgufFile::read(kGolden);
  const std::pair<const char*, DType> cases[] = {
      {"f32", dtypes::fp32},      {"f16", dtypes::fp16},      {"bf16", dtypes::bf16},  {"q8_0", dtypes::int8},
      {"q5_0", dtypes::int5},     {"q5_1", dtypes::uint5},    {"q4_0", dtypes::int4},  {"q4_1", dtypes::uint4},
      {"tq1_0", dtypes::ternary}, {"tq2_0", dtypes::ternary}, {"q1_0", dtypes::bint1}, {"q2_0", dtypes::ternary},
      {"i8", dtypes::int8},       {"i16", dtypes::int32},     {"i32", dtypes::int32},  {"i64", dtypes::int64},
      {"f64", dtypes::fp64}};
  for (const auto& [name, dtype] : cases) {
    INFO(name);
    CHECK(gguf_tensor(file, name).dtype() == dtype);
  }
  CHECK(gguf_tensor(file, "i16").shape() == Shape{3, 5});
  for (const char* name : {"i8", "i32", "i64", "f64"}) {
    const Tensor t = gguf_tensor(file, name);
    CHECK(gguf_item(name, t, file.entry(name).type).data == file.data(name));
  }
}

TEST_CASE("Every number of a vector is written, and of shapes of one to four axes") {
  using Dims = std::vector<int64_t>;
  for (const Dims& dims :
       {Dims{1}, Dims{7}, Dims{65}, Dims{1, 7}, Dims{7, 1}, Dims{3, 5}, Dims{2, 3, 5}, Dims{2, 1, 3, 4}})
    for (const auto& [type, dtype] : {std::pair{GgufType::kF32, dtypes::fp32},
                                      {GgufType::kF16, dtypes::fp16},
                                      {GgufType::kBF16, dtypes::bf16},
                                      {GgufType::kF64, dtypes::fp64},
                                      {GgufType::kI32, dtypes::int32},
                                      {GgufType::kI8, dtypes::int8}}) {
      const Shape shape(dims);
      INFO(gguf_type(type).name << ' ' << shape);
      std::vector<double> numbers;
      for (int64_t i = 0; i < shape.numel(); ++i) numbers.push_back(static_cast<double>(i % 100 - 50));
      const Tensor t = Tensor::from_elements(shape, dtype, numbers);
      CHECK(gguf_item("name", t, type).data.size() == static_cast<size_t>(shape.numel() * gguf_type(type).block_bytes));
      const Tensor back = through_file(t, type);
      CHECK(back.shape() == shape);
      CHECK(back.elements() == numbers);
    }
  // One row of blocks.
  const Codes coded{dtypes::int8, Granularity::groups(32)};
  const Tensor codes = coded.make(1, 96, 3), back = through_file(codes, GgufType::kQ8_0);
  CHECK(back.elements() == codes.elements());
  CHECK(back.values() == codes.values());
}

TEST_CASE("Codes with fp16 scales of every granularity survive every type that holds them") {
  struct Case {
    GgufType type;
    std::vector<DType> dtypes;
  };
  const Case cases[] = {
      {GgufType::kQ8_0, {dtypes::int2, dtypes::int3, dtypes::int4, dtypes::int7, dtypes::int8, dtypes::ternary}},
      {GgufType::kQ5_0, {dtypes::int2, dtypes::int5, dtypes::ternary}},
      {GgufType::kQ4_0, {dtypes::int2, dtypes::int3, dtypes::int4, dtypes::ternary}},
      {GgufType::kQ5_1, {dtypes::int1, dtypes::uint2, dtypes::uint5}},
      {GgufType::kQ4_1, {dtypes::int1, dtypes::uint2, dtypes::uint4}},
      {GgufType::kTQ1_0, {dtypes::ternary, dtypes::int1}},
      {GgufType::kTQ2_0, {dtypes::ternary, dtypes::int1}},
      {GgufType::kQ2_0, {dtypes::ternary, dtypes::int2, dtypes::int1}},
      {GgufType::kQ1_0, {dtypes::bint1}}};
  uint64_t seed = 1;
  for (const Case& c : cases) {
    const int64_t block = gguf_type(c.type).block_elements;
    for (DType dtype : c.dtypes)
      for (const Granularity& granularity : {Granularity::tensor(), Granularity::channel(), Granularity::token(),
                                             Granularity::groups(block), Granularity::groups(2 * block)}) {
        const bool offset = c.type == GgufType::kQ4_1 || c.type == GgufType::kQ5_1;
        for (const Codes& codes : {Codes{dtype, granularity, false, false}, Codes{dtype, granularity, offset, false},
                                   Codes{dtype, granularity, false, offset}}) {
          const Tensor t = codes.make(3, 3 * block, ++seed);
          INFO(gguf_type(c.type).name << " of " << t.describe());
          const GgufFit fit = gguf_fit(t, c.type);
          CHECK(fit.why == "");
          CHECK(fit.kind == Kind::kExact);
          const Tensor back = through_file(t, c.type);
          CHECK(back.values() == t.values());
          CHECK(back.quant()->granularity == Granularity::groups(block));
        }
      }
  }
}

TEST_CASE("Scales that are not fp16 numbers are rounded once, and the fit reports how far") {
  const Tensor t = with_scale(Codes{dtypes::int4, Granularity::tensor()}.make(2, 64, 5), 0.1);
  const float s = 0.1f, d = fp16_to_float(fp16_from_float(s));
  const GgufFit fit = gguf_fit(t, GgufType::kQ4_0);
  CHECK(fit.kind == Kind::kRounded);
  CHECK(fit.why == "scales are rounded to fp16");
  CHECK(fit.largest_error == std::abs(static_cast<double>(d) - static_cast<double>(s)) / static_cast<double>(s));
  const Tensor back = through_file(t, GgufType::kQ4_0);
  CHECK(back.elements() == t.elements());
  CHECK(back.quant()->scale->at({0}) == static_cast<double>(d));
  CHECK(gguf_fit(t.without_quant(), GgufType::kQ4_0).kind == Kind::kExact);
  CHECK(through_file(t.without_quant(), GgufType::kQ4_0).values() == t.elements());
}

TEST_CASE("What a type does not hold is refused with the reason") {
  const auto why = [](const Tensor& t, GgufType type) {
    const GgufFit fit = gguf_fit(t, type);
    CHECK(fit.kind == Kind::kRefused);
    CHECK(error_of([&] { gguf_item("w", t, type); }).find("[gguf_item] tensor 'w' (") == 0);
    return fit.why;
  };
  const auto codes = [](DType dtype, const Granularity& g, int64_t cols) { return Codes{dtype, g}.make(2, cols, 3); };
  const Granularity whole = Granularity::tensor();
  CHECK(why(codes(dtypes::int5, whole, 32), GgufType::kQ4_0) == "Q4_0 does not hold codes of int5");
  CHECK(why(codes(dtypes::int3, whole, 64), GgufType::kQ2_0) == "Q2_0 does not hold codes of int3");
  CHECK(why(codes(dtypes::uint8, whole, 32), GgufType::kQ8_0) == "Q8_0 does not hold codes of uint8");
  CHECK(why(codes(dtypes::bint1, whole, 32), GgufType::kQ8_0) == "Q8_0 does not hold codes of bint1");
  CHECK(why(codes(dtypes::ternary, whole, 128), GgufType::kQ1_0) == "Q1_0 does not hold codes of ternary");
  CHECK(why(codes(dtypes::nf4, whole, 32), GgufType::kQ4_0) == "Q4_0 does not hold codes of nf4");
  CHECK(why(codes(dtypes::ternary, whole, 32), GgufType::kQ4_1) == "Q4_1 does not hold codes of ternary");
  CHECK(why(codes(dtypes::ternary, whole, 128), GgufType::kTQ2_0) ==
        "rows of 128 elements do not fill blocks of 256 (TQ2_0)");
  CHECK(why(codes(dtypes::int4, Granularity::groups(16), 32), GgufType::kQ4_0) ==
        "scales change inside a block of 32 (Q4_0): got group(16)");
  CHECK(why(codes(dtypes::int4, Granularity::channel(1), 32), GgufType::kQ4_0) ==
        "scales change inside a block of 32 (Q4_0): got channel(1)");
  CHECK(why(Codes{dtypes::int4, whole, true}.make(2, 32, 3), GgufType::kQ4_0) ==
        "Q4_0 has no offsets (Q4_1 and Q5_1 have)");
  CHECK(why(with_scale(codes(dtypes::int4, whole, 32), 70000), GgufType::kQ4_0) ==
        "scale 70000 is not an fp16 number: expected 0 or 2^-24 to 65504");
  CHECK(contains(why(with_scale(codes(dtypes::int4, whole, 32), 1e-9), GgufType::kQ4_0), "is not an fp16 number"));
  CHECK(why(Tensor::zeros({2, 32}, dtypes::fp32), GgufType::kQ8_0) ==
        "Q8_0 holds codes, got [2,32] fp32: quantize it first");
  CHECK(why(Tensor::full({2, 2}, dtypes::fp32, 1e30), GgufType::kF16) == "the value 1e+30 is beyond the range of fp16");
  CHECK(why(Tensor::zeros({2, 256}, dtypes::fp32), GgufType::kQ4_K) == "bitgrad does not write Q4_K");
  CHECK(contains(why(codes(dtypes::int8, whole, 2), GgufType::kI8), "with scales, expected int8 without scales"));
  Codes zero{dtypes::int4, whole, false, true};
  const Tensor t = zero.make(2, 32, 3);
  QuantParams params = *t.quant();
  params.zero = std::make_shared<const Tensor>(flat({3}, dtypes::int32));
  CHECK(contains(why(t.with_quant(std::make_shared<const QuantParams>(std::move(params))), GgufType::kQ4_0),
                 "Q4_0 has no zero points, got 3"));
}

TEST_CASE("Codes that a ternary type does not have, and types that are not read, are errors of the file") {
  const TempDir dir;
  std::vector<uint8_t> block(66, 0x55);
  block[3] = 0xD5;
  write_gguf(dir.file("t"),
             {{"w", GgufType::kTQ2_0, {256}, block}, {"iq", GgufType::kIQ4_XS, {256}, std::vector<uint8_t>(136)}}, {});
  const GgufFile file = GgufFile::read(dir.file("t"));
  CHECK(contains(error_of([&] { gguf_tensor(file, "w"); }),
                 "tensor 'w' (TQ2_0) has the code 3 in block 0, expected 0, 1 or 2"));
  CHECK(error_code_of([&] { gguf_tensor(file, "w"); }) == 3);
  CHECK(contains(error_of([&] { gguf_tensor(file, "iq"); }),
                 "tensor 'iq' is of type IQ4_XS, which bitgrad does not read"));
}
