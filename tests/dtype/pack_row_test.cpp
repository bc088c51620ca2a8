#include <cmath>
#include <cstring>
#include <limits>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "dtype_fixtures.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const double kInf = std::numeric_limits<double>::infinity();

template <typename T>
T packed_one(DType dtype, double number) {
  T out{};
  pack_row(dtype, &number, 1, &out);
  return out;
}

uint32_t packed_code(DType dtype, double number) {
  return load_raw(std::vector<uint64_t>{packed_one<uint64_t>(dtype, number)}.data(), 0, dtype.bits());
}

std::string refusal(DType dtype, double number) {
  uint64_t out = 0xDEADBEEF;
  const double numbers[] = {static_cast<double>(dtype.info().qmax), number};
  std::string text = error_of([&] { pack_row(dtype, numbers, 2, &out); });
  CHECK(out == 0xDEADBEEF);  // refused before any work
  return text;
}

}  // namespace

TEST_CASE("every number of every integer and sign dtype survives pack_row and unpack_row") {
  for (const DType dtype : code_dtypes_with_own()) {
    if (!is_integer(dtype)) continue;
    INFO(dtype.name());
    std::vector<double> numbers;
    for (int round = 0; round < 3; ++round) {
      for (int64_t q = dtype.info().qmin; q <= dtype.info().qmax; ++q) {
        if (dtype.kind() != DTypeKind::kSign || q != 0) numbers.push_back(static_cast<double>(q));
      }
    }
    const int64_t n = static_cast<int64_t>(numbers.size());
    ExactBytes row(row_bytes_memory(dtype, n), 0xFF);
    pack_row(dtype, numbers.data(), n, row.get());
    std::vector<double> back(numbers.size());
    unpack_row(dtype, row.get(), 0, n, back.data());
    CHECK(back == numbers);
    int dirty = 0;
    for (int64_t b = n * dtype.bits(); b < row.size() * 8; ++b) dirty += bit_of(row.get(), b);
    CHECK(dirty == 0);
  }
}

TEST_CASE("long rows are packed without a seam") {
  for (const DType dtype : {dtypes::int3, dtypes::int5, dtypes::uint7, dtypes::bint1, dtypes::nf4}) {
    const std::vector<uint8_t> raw = random_raw(dtype, 1000, 11);
    ExactBytes want(row_bytes_memory(dtype, 1000)), got(row_bytes_memory(dtype, 1000));
    pack_row_raw(dtype, raw.data(), 1000, want.get());
    std::vector<double> numbers(1000);
    unpack_row(dtype, want.get(), 0, 1000, numbers.data());
    pack_row(dtype, numbers.data(), 1000, got.get());
    CHECK(got == want);
  }
}

TEST_CASE("a number that an integer dtype cannot hold is refused, with the element and the range") {
  CHECK(refusal(dtypes::int4, 8.0) == "[pack_row] element 1 for dtype int4: got 8, expected an integer in [-8, 7].");
  CHECK(contains(refusal(dtypes::int4, -9.0), "got -9"));
  CHECK(contains(refusal(dtypes::int4, 0.5), "got 0.5"));
  CHECK(contains(refusal(dtypes::int4, std::nan("")), "nan"));
  CHECK(contains(refusal(dtypes::int8, kInf), "got inf"));
  CHECK(contains(refusal(dtypes::int1, -1.0), "expected an integer in [0, 1]"));
  CHECK(contains(refusal(dtypes::ternary, -2.0), "expected an integer in [-1, 1]"));
  CHECK(contains(refusal(dtypes::bint1, 0.0), "got 0, expected -1 or 1."));
  CHECK(contains(refusal(my_uint8(), 201.0), "expected an integer in [0, 200]"));
  CHECK(contains(refusal(dtypes::int32, 2147483648.0), "for dtype int32"));
  double two_63 = 0x1p63;
  int64_t out = 5;
  CHECK(contains(error_of([&] { pack_row(dtypes::int64, &two_63, 1, &out); }), "[pack_row] element 0 for dtype int64"));
  CHECK(packed_one<int64_t>(dtypes::int64, -0x1p63) == INT64_MIN);
  CHECK(packed_one<int32_t>(dtypes::int32, -2147483648.0) == INT32_MIN);
  CHECK(packed_one<int32_t>(dtypes::int32, 2147483647.0) == INT32_MAX);
}

TEST_CASE("codebooks round to the nearest level, ties to the lower, ends reach to infinity") {
  const DType book = register_dtype({"pack_book", 3, DTypeKind::kCodebook, 0, 0, {4.0f, -2.0f, 0.0f, 1.0f, 1.0f}});
  CHECK(packed_code(book, 0.5) == 2);                       // tie between 0 and 1
  CHECK(packed_code(book, std::nextafter(0.5, 1.0)) == 3);  // of equal levels the lower code
  CHECK(packed_code(book, -1.0) == 1);
  CHECK(packed_code(book, std::nextafter(-1.0, 0.0)) == 2);
  CHECK(packed_code(book, 2.5) == 3);
  CHECK(packed_code(book, 2.51) == 0);
  CHECK(packed_code(book, kInf) == 0);
  CHECK(packed_code(book, -kInf) == 1);
  CHECK(packed_code(book, 1e308) == 0);
  CHECK(contains(refusal(book, std::nan("")), "[pack_row] element 1 for dtype pack_book: got "));
  CHECK(packed_code(dtypes::fp4_e2m1, 0.0) == 0);
  CHECK(packed_code(dtypes::fp4_e2m1, -0.25) == 9);  // tie: -0.5 is the lower
  CHECK(packed_code(dtypes::fp4_e2m1, 0.25) == 0);
  CHECK(packed_code(dtypes::fp4_e2m1, 5.0) == 6);
  for (const DType dtype : {dtypes::nf4, dtypes::fp4_e2m1, my_nf4()}) {
    const DTypeInfo& info = dtype.info();
    for (int i = -3000; i <= 3000; ++i) {
      const double x = i * 0.0025;
      const float got = info.levels[packed_code(dtype, x)];
      double best = kInf;
      for (const float level : info.levels) best = std::min(best, std::abs(x - static_cast<double>(level)));
      REQUIRE(std::abs(x - static_cast<double>(got)) == best);
    }
  }
}

TEST_CASE("floats round once from double, not by way of float") {
  // A hair above the middle of two bf16 numbers: through a float it would be a tie and go to even.
  CHECK(packed_one<uint16_t>(dtypes::bf16, 1.0 + 0x1p-8 + 0x1p-40) == 0x3F81);
  CHECK(packed_one<uint16_t>(dtypes::bf16, 1.0 + 0x1p-8) == 0x3F80);
  CHECK(packed_one<uint16_t>(dtypes::bf16, -(1.0 + 3 * 0x1p-8 - 0x1p-40)) == 0xBF81);
  CHECK(packed_one<uint16_t>(dtypes::fp16, 1.0 + 0x1p-11 + 0x1p-40) == 0x3C01);
  CHECK(packed_one<uint16_t>(dtypes::fp16, 1.0 + 0x1p-11) == 0x3C00);
  CHECK(packed_one<uint16_t>(dtypes::fp16, 0x1p-25 + 0x1p-60) == 0x0001);
  CHECK(packed_one<uint16_t>(dtypes::fp16, 65519.999999) == 0x7BFF);
  CHECK(packed_one<uint16_t>(dtypes::fp16, 65520.0) == 0x7C00);
  CHECK(packed_one<uint16_t>(dtypes::bf16, 1e300) == 0x7F80);
  CHECK(packed_one<uint16_t>(dtypes::bf16, -kInf) == 0xFF80);
  CHECK(packed_one<uint16_t>(dtypes::bf16, 1e-300) == 0x0000);
  CHECK(packed_one<uint16_t>(dtypes::bf16, -1e-300) == 0x8000);
  CHECK(std::isnan(bf16_to_float(packed_one<uint16_t>(dtypes::bf16, std::nan("")))));
  CHECK(packed_one<float>(dtypes::fp32, 1.0 / 3.0) == static_cast<float>(1.0 / 3.0));
  CHECK(packed_one<double>(dtypes::fp64, 1.0 / 3.0) == 1.0 / 3.0);
}

TEST_CASE("bf16 from random doubles is the nearest of its two neighbours") {
  Random random(13);
  for (int t = 0; t < 20000; ++t) {
    const double x = std::ldexp(static_cast<double>(random.next() >> 11), static_cast<int>(random.below(200)) - 150);
    const uint16_t b = packed_one<uint16_t>(dtypes::bf16, x);
    const double here = std::abs(static_cast<double>(bf16_to_float(b)) - x);
    const double up = std::abs(static_cast<double>(bf16_to_float(static_cast<uint16_t>(b + 1))) - x);
    const double down = b == 0 ? kInf : std::abs(static_cast<double>(bf16_to_float(static_cast<uint16_t>(b - 1))) - x);
    REQUIRE(here <= up);
    REQUIRE(here <= down);
    if (here == up || here == down) REQUIRE((b & 1u) == 0);
  }
}
