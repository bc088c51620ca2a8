#include "bitgrad/dtype/codec.h"

#include <cstring>
#include <thread>

#include "bitgrad/base/cpu.h"
#include "bitgrad/dtype/bf16.h"
#include "dtype_fixtures.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// A row as a file holds it: exactly row_bytes_file bytes.
ExactBytes file_row(DType dtype, const std::vector<uint8_t>& raw) {
  ExactBytes row(row_bytes_file(dtype, static_cast<int64_t>(raw.size())));
  pack_row_raw(dtype, raw.data(), static_cast<int64_t>(raw.size()), row.get(), false);
  return row;
}

// Counts the elements that any expander gets wrong for [first, first + n) of a row of exact size.
int wrong_elements(DType dtype, const ExactBytes& row, int64_t first, int64_t n) {
  const DTypeInfo& info = dtype.info();
  const size_t size = static_cast<size_t>(n);
  std::vector<float> f(size);
  std::vector<double> d(size);
  std::vector<int64_t> l(size);
  std::vector<int8_t> s(size);
  std::vector<uint8_t> raw(size);
  unpack_row(dtype, row.get(), first, n, f.data());
  unpack_row(dtype, row.get(), first, n, d.data());
  unpack_row_raw(dtype, row.get(), first, n, raw.data());
  int shift = 0;
  if (is_integer(dtype)) {
    unpack_row(dtype, row.get(), first, n, l.data());
    unpack_row_s8(dtype, row.get(), first, n, s.data());
    code_values_s8(dtype, &shift);
  }
  int wrong = 0;
  for (int64_t j = 0; j < n; ++j) {
    const size_t k = static_cast<size_t>(j);
    const uint32_t r = naive_raw(row.get(), first + j, info.bits);
    const double number = naive_number(info, r);
    bool ok = raw[k] == r && static_cast<double>(f[k]) == number && d[k] == number &&
              load_raw(row.get(), first + j, info.bits) == r;
    if (is_integer(dtype))
      ok = ok && static_cast<double>(l[k]) == number && static_cast<double>(s[k] + shift) == number;
    wrong += ok ? 0 : 1;
  }
  return wrong;
}

// What the expanders write under one cap, with a guard at each end.
struct Expanded {
  std::vector<int8_t> s8;
  std::vector<uint8_t> raw;
  std::vector<float> floats;
};
Expanded expand_under(IsaLevel level, DType dtype, const uint8_t* row, int64_t first, int64_t n) {
  set_isa_cap(level);
  const size_t size = static_cast<size_t>(n) + 2;
  Expanded out{std::vector<int8_t>(size, 99), std::vector<uint8_t>(size, 99), std::vector<float>(size, 99.0f)};
  if (is_integer(dtype)) unpack_row_s8(dtype, row, first, n, out.s8.data() + 1);
  unpack_row_raw(dtype, row, first, n, out.raw.data() + 1);
  unpack_row(dtype, row, first, n, out.floats.data() + 1);
  return out;
}

// Counts the caps whose expanders do not give the bits of the scalar ones.
int differs_by_isa(DType dtype, const uint8_t* row, int64_t first, int64_t n) {
  const Expanded scalar = expand_under(IsaLevel::kScalar, dtype, row, first, n);
  int wrong = 0;
  for (const IsaLevel level : {IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    const Expanded got = expand_under(level, dtype, row, first, n);
    const size_t bytes = got.floats.size() * sizeof(float);
    const bool same = got.s8 == scalar.s8 && got.raw == scalar.raw &&
                      std::memcmp(got.floats.data(), scalar.floats.data(), bytes) == 0;
    wrong += same ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("rows of codes start on 8 bytes in memory and on one byte in files, wide rows are dense") {
  CHECK(row_bytes_memory(dtypes::bint1, 0) == 0);
  CHECK(row_bytes_memory(dtypes::bint1, 1) == 8);
  CHECK(row_bytes_memory(dtypes::bint1, 64) == 8);
  CHECK(row_bytes_memory(dtypes::bint1, 65) == 16);
  CHECK(row_bytes_file(dtypes::bint1, 65) == 9);
  CHECK(row_bytes_memory(dtypes::int3, 22) == 16);
  CHECK(row_bytes_file(dtypes::int3, 22) == 9);
  CHECK(row_bytes_memory(dtypes::int8, 7) == 8);
  CHECK(row_bytes_memory(dtypes::bf16, 3) == 6);
  CHECK(row_bytes_memory(dtypes::fp32, 3) == 12);
  CHECK(row_bytes_file(dtypes::fp64, 3) == 24);
}

TEST_CASE("the tables hold the number of every raw code of every dtype") {
  for (const DType dtype : code_dtypes_with_own()) {
    INFO(dtype.name());
    const DTypeInfo& info = dtype.info();
    const float* values = code_values(dtype);
    CHECK(values == code_values(dtype));
    int shift = -1;
    const int8_t* s8 = is_integer(dtype) ? code_values_s8(dtype, &shift) : nullptr;
    if (s8 != nullptr) CHECK(shift == (info.bits == 8 && info.kind == DTypeKind::kUint ? 128 : 0));
    for (uint32_t raw = 0; raw < (1u << info.bits); ++raw) {
      const double number = naive_number(info, raw);
      CHECK(static_cast<double>(values[raw]) == number);
      if (s8 == nullptr) continue;
      CHECK(s8[raw] + shift == static_cast<int>(number));
      CHECK(decode_int(info, raw) == static_cast<int64_t>(number));
      CHECK(encode_int(info, static_cast<int64_t>(number)) == raw);
    }
  }
}

TEST_CASE("int1 is 0 and 1, bint1 is -1 and 1, ternary holds -1, 0, 1 as 11, 00, 01") {
  CHECK(code_values(dtypes::int1)[0] == 0.0f);
  CHECK(code_values(dtypes::int1)[1] == 1.0f);
  CHECK(code_values(dtypes::bint1)[0] == -1.0f);
  CHECK(code_values(dtypes::bint1)[1] == 1.0f);
  CHECK(encode_int(dtypes::bint1.info(), 0) == 1);
  CHECK(encode_int(dtypes::ternary.info(), -1) == 3);
  CHECK(encode_int(dtypes::ternary.info(), 0) == 0);
  CHECK(encode_int(dtypes::ternary.info(), 1) == 1);
  CHECK(code_values(dtypes::ternary)[2] == -2.0f);
  CHECK(decode_int(dtypes::int64.info(), ~uint64_t{0}) == -1);
  CHECK(decode_int(dtypes::int32.info(), 0x80000000u) == INT32_MIN);
  CHECK(encode_int(dtypes::int64.info(), INT64_MIN) == uint64_t{1} << 63);
}

TEST_CASE("expanders give every element of every dtype for any first and n, reading nothing outside the row") {
  Random random(7);
  for (const DType dtype : code_dtypes_with_own()) {
    INFO(dtype.name());
    for (const int64_t cols : {1, 7, 8, 9, 31, 63, 64, 65, 300, 777}) {
      const ExactBytes row = file_row(dtype, random_raw(dtype, cols, random.next()));
      int wrong = wrong_elements(dtype, row, 0, cols);
      for (int t = 0; t < 40; ++t) {
        const int64_t first = random.below(cols + 1);
        wrong += wrong_elements(dtype, row, first, random.below(cols - first + 1));
        wrong += wrong_elements(dtype, row, first, cols - first);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("every ISA expands to the bits of the scalar forms, from no byte but those that hold an element") {
  const IsaLevel old = isa_cap();
  std::vector<DType> dtypes = code_dtypes_with_own();
  dtypes.push_back(register_dtype({"levels2", 2, DTypeKind::kCodebook, 0, 0, {-1.5f, -0.0f, 0.25f}}));
  dtypes.push_back(register_dtype({"levels3", 3, DTypeKind::kCodebook, 0, 0, {-1.5f, -0.0f, 0.25f, 7.0f, 9.0f}}));
  dtypes.push_back(register_dtype({"levels6", 6, DTypeKind::kCodebook, 0, 0, {-1.5f, -0.0f, 0.25f}}));
  Random random(11);
  for (const DType dtype : dtypes) {
    INFO(dtype.name());
    const int64_t bits = dtype.bits();
    int wrong = 0;
    for (int64_t n :
         {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 72, 96, 127, 128, 129, 136, 191, 200, 255, 256, 257, 700}) {
      for (int64_t first = 0; first < 9; ++first) {
        // The allocation holds the bytes of the run and no other; the row pretends to start before it.
        const int64_t skipped = first * bits / 8;
        ExactBytes bytes(((first + n) * bits + 7) / 8 - skipped);
        for (int64_t i = 0; i < bytes.size(); ++i) bytes.get()[i] = static_cast<uint8_t>(random.next());
        wrong += differs_by_isa(dtype, bytes.get() - skipped, first, n);
      }
    }
    CHECK(wrong == 0);
  }
  set_isa_cap(old);
}

TEST_CASE("every ISA widens fp16 and bf16 to the bits of the scalar forms, from no byte but theirs") {
  const IsaLevel old = isa_cap();
  Random random(12);
  for (const DType dtype : {dtypes::fp16, dtypes::bf16})
    for (const IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
      set_isa_cap(level);
      int wrong = 0;
      for (int64_t n = 1; n < 700; n += n < 70 ? 1 : 97) {
        ExactBytes bytes(2 * n);  // NaN, Inf and numbers below the normal ones among them
        for (int64_t i = 0; i < bytes.size(); ++i) bytes.get()[i] = static_cast<uint8_t>(random.next());
        std::vector<float> got(static_cast<size_t>(n) + 1, 7.0f);
        unpack_row(dtype, bytes.get() - 6, 3, n, got.data());
        for (int64_t i = 0; i < n; ++i) {
          uint16_t half;
          std::memcpy(&half, bytes.get() + 2 * i, 2);
          const float expected = dtype == dtypes::fp16 ? fp16_to_float(half) : bf16_to_float(half);
          wrong += std::bit_cast<uint32_t>(got[static_cast<size_t>(i)]) != std::bit_cast<uint32_t>(expected);
        }
        wrong += got.back() != 7.0f;
      }
      CHECK(wrong == 0);
    }
  set_isa_cap(old);
}

TEST_CASE("expanders do not read before the first byte that holds an element") {
  for (const DType dtype : code_dtypes_with_own()) {
    INFO(dtype.name());
    // The row pretends to start 800 elements before the allocation; 8 of them are whole bytes at every width.
    const std::vector<uint8_t> raw = random_raw(dtype, 100, 3);
    const ExactBytes tail = file_row(dtype, raw);
    std::vector<uint8_t> all(100 * static_cast<size_t>(dtype.bits()) + static_cast<size_t>(tail.size()), 0xFF);
    std::memcpy(all.data() + 100 * dtype.bits(), tail.get(), static_cast<size_t>(tail.size()));
    std::vector<uint8_t> got(100);
    unpack_row_raw(dtype, all.data(), 800, 100, got.data());
    CHECK(got == raw);
  }
}

TEST_CASE("zero elements need no work, even without memory") {
  for (const DType dtype : all_dtypes()) {
    CHECK_NOTHROW(unpack_row(dtype, nullptr, 0, 0, static_cast<float*>(nullptr)));
    CHECK_NOTHROW(unpack_row(dtype, nullptr, 0, 0, static_cast<double*>(nullptr)));
    CHECK_NOTHROW(pack_row(dtype, nullptr, 0, nullptr));
    if (!dtype.is_code()) continue;
    CHECK_NOTHROW(unpack_row_raw(dtype, nullptr, 0, 0, nullptr));
    CHECK_NOTHROW(pack_row_raw(dtype, nullptr, 0, nullptr));
  }
}

TEST_CASE(
    "packing raw codes and reading them back gives the same codes, pad bits are zero, nothing beyond the row is "
    "written") {
  for (const DType dtype : code_dtypes_with_own()) {
    INFO(dtype.name());
    for (int64_t n = 1; n <= 140; ++n) {
      const std::vector<uint8_t> raw = random_raw(dtype, n, static_cast<uint64_t>(n));
      const int64_t used = n * dtype.bits();
      for (const bool memory : {false, true}) {
        ExactBytes row(memory ? row_bytes_memory(dtype, n) : row_bytes_file(dtype, n), 0xFF);
        pack_row_raw(dtype, raw.data(), n, row.get(), memory);
        bool same = true, clean = true;
        for (int64_t i = 0; i < n; ++i)
          same = same && naive_raw(row.get(), i, dtype.bits()) == raw[static_cast<size_t>(i)];
        for (int64_t b = used; b < row.size() * 8; ++b) clean = clean && bit_of(row.get(), b) == 0;
        REQUIRE(same);
        REQUIRE(clean);
      }
    }
  }
}

TEST_CASE("a raw byte with bits above the width does not spoil its neighbours") {
  for (const DType dtype : code_dtypes_with_own()) {
    INFO(dtype.name());
    std::vector<uint8_t> dirty(29, 0), clean(29, 0);
    for (size_t i = 0; i < 29; ++i) {
      dirty[i] = static_cast<uint8_t>(37 * i + 200);
      clean[i] = static_cast<uint8_t>(dirty[i] & ((1 << dtype.bits()) - 1));
    }
    CHECK(file_row(dtype, dirty) == file_row(dtype, clean));
  }
}

TEST_CASE("store_raw changes its element only") {
  Random random(5);
  for (const DType dtype : code_dtypes_with_own()) {
    std::vector<uint8_t> raw = random_raw(dtype, 50, 9);
    ExactBytes row = file_row(dtype, raw);
    for (int t = 0; t < 100; ++t) {
      const size_t i = static_cast<size_t>(random.below(50));
      raw[i] = static_cast<uint8_t>(random.below(int64_t{1} << dtype.bits()));
      store_raw(row.get(), static_cast<int64_t>(i), dtype.bits(), raw[i]);
    }
    CHECK(row == file_row(dtype, raw));
  }
}

TEST_CASE("wide rows become numbers with one rounding") {
  const double d[] = {1.0 / 3.0, 1e300, -0.0};
  float f[3];
  unpack_row(dtypes::fp64, d, 0, 3, f);
  CHECK(f[0] == static_cast<float>(1.0 / 3.0));
  CHECK(f[1] == std::numeric_limits<float>::infinity());
  CHECK(std::signbit(f[2]));
  const int64_t l[] = {(int64_t{1} << 53) + 1, -16777217, INT64_MIN};
  double wide[3];
  int64_t exact[3];
  unpack_row(dtypes::int64, l, 0, 3, wide);
  unpack_row(dtypes::int64, l, 0, 3, f);
  unpack_row(dtypes::int64, l, 1, 2, exact);
  CHECK(wide[0] == 0x1p53);
  CHECK(f[1] == -16777216.0f);
  CHECK(exact[0] == -16777217);
  CHECK(exact[1] == INT64_MIN);
  const uint16_t h[] = {0x3F80, 0xC000, 0x3C00};
  unpack_row(dtypes::bf16, h, 1, 1, f);
  CHECK(f[0] == -2.0f);
  unpack_row(dtypes::fp16, h, 2, 1, wide);
  CHECK(wide[0] == 1.0);
  const int32_t i[] = {INT32_MIN, 7};
  unpack_row(dtypes::int32, i, 0, 2, wide);
  CHECK(wide[0] == -2147483648.0);
  CHECK(wide[1] == 7.0);
}

TEST_CASE("asking for codes or integers of a dtype that has none is an error that names it") {
  float f = 0;
  int64_t l = 0;
  int8_t s = 0;
  uint8_t u = 0;
  int shift = 0;
  CHECK(error_of([&] { unpack_row(dtypes::fp32, &f, 0, 1, &l); }) ==
        "[unpack_row] dtype: got fp32 of kind float, expected kind int, uint or sign.");
  CHECK(contains(error_of([&] { unpack_row(dtypes::nf4, &u, 0, 1, &l); }), "got nf4 of kind codebook"));
  CHECK(contains(error_of([&] { unpack_row_s8(dtypes::nf4, &u, 0, 1, &s); }), "[unpack_row_s8] dtype: got nf4"));
  CHECK(contains(error_of([&] { unpack_row_s8(dtypes::int32, &f, 0, 1, &s); }),
                 "got int32 of 32 bits, expected one of at most 8 bits"));
  CHECK(contains(error_of([&] { unpack_row_raw(dtypes::bf16, &f, 0, 1, &u); }),
                 "[unpack_row_raw] dtype: got bf16 of 16 bits"));
  CHECK(contains(error_of([&] { pack_row_raw(dtypes::fp32, &u, 1, &f); }), "[pack_row_raw] dtype: got fp32"));
  CHECK(contains(error_of([&] { code_values(dtypes::int32); }), "[code_values] dtype: got int32"));
  CHECK(contains(error_of([&] { code_values_s8(dtypes::fp4_e2m1, &shift); }), "got fp4_e2m1 of kind codebook"));
  CHECK(contains(error_of([&] { decode_int(dtypes::nf4.info(), 1); }), "[decode_int] dtype: got nf4"));
  CHECK(contains(error_of([&] { encode_int(dtypes::fp32.info(), 1); }), "[encode_int] dtype: got fp32"));
}

TEST_CASE("threads that ask for a fresh table at once get the same one") {
  const DType dtype = register_dtype({"table_race", 5, DTypeKind::kInt, -16, 15, {}});
  std::vector<const float*> got(8);
  std::vector<std::thread> threads;
  for (auto& slot : got) threads.emplace_back([&slot, dtype] { slot = code_values(dtype); });
  for (std::thread& thread : threads) thread.join();
  for (const float* table : got) CHECK(table == got[0]);
  CHECK(got[0][31] == -1.0f);
}
