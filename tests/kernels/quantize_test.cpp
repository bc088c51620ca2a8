// Family quantize against formulas spelled out in doubles, for every dtype, rule, granularity, ISA and number of
// threads.
#include "kernels/quantize_problem.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;

using namespace quantize_problem;

namespace {

// clip_gradient against the mask that quantize has just made.
void check_clip(const Case& c) {
  std::vector<float> g(static_cast<size_t>(c.rows * c.cols)), expected, gx(g.size(), 7.0f);
  for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(i % 19) - 9.5f;
  const int64_t words = (c.cols + 63) / 64;
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t i = 0; i < c.cols; ++i) {
      const bool pass = (c.mask[static_cast<size_t>(r * words + i / 64)] >> (i % 64) & 1u) != 0;
      expected.push_back(pass ? g[static_cast<size_t>(r * c.cols + i)] : 0.0f);
    }
  clip_gradient(c.args, g.data(), gx.data());
  CHECK(gx == expected);
  clip_gradient(c.args, g.data(), g.data());
  CHECK(g == expected);
}

}  // namespace

TEST_CASE("quantize gives the codes and masks of the formulas for every dtype, rule and granularity on every ISA") {
  test::RestoreCpu restore;
  std::mt19937 random(1);
  for (DType dtype : all_dtypes()) {
    if (!dtype.is_code()) continue;
    for (CodeRule rule : rules_of(dtype)) {
      for (Granularity g : {kNoScale, kTensor, kRow, kColumn, kGroup5, kGroup64, kBlocks}) {
        for (bool stochastic : {false, true}) {
          static constexpr int64_t kCols[] = {1, 7, 8, 63, 64, 65, 130, 515};
          Case c(static_cast<int64_t>(random() % 4), kCols[random() % std::size(kCols)], dtype);
          c.args.rule = rule;
          set_scales(c, random, g);
          if (random() % 3 == 0) c.zero.clear();
          if (stochastic) c.args.sr = &c.stream;
          c.args.first_element = static_cast<int64_t>(random() % 1000);
          if (dtype.kind() == DTypeKind::kInt && random() % 2 == 0) c.args.lo = -c.args.hi;
          if (random() % 4 == 0) c.args.ste = SteRule::kIdentity;
          fill_numbers(c, random, static_cast<float>(1 << (random() % dtype.bits())), random() % 2 == 0);
          for (IsaLevel level : kLevels) {
            set_isa_cap(level);
            c.run();
            check_against_formula(c);
            if (!stochastic && c.args.ste == SteRule::kClip && rule != CodeRule::kCodebook) check_clip(c);
          }
        }
      }
    }
  }
}

TEST_CASE("quantize to signs agrees with the formula at every row length around the words") {
  test::RestoreCpu restore;
  std::mt19937 random(2);
  for (int64_t cols : {0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 130, 784}) {
    for (const bool wild : {false, true}) {
      Case c(wild ? 29 : 5, cols, dtypes::bint1);
      c.args.rule = CodeRule::kSign;
      fill_numbers(c, random, 1.0f, wild);
      for (SteRule ste : {SteRule::kClip, SteRule::kIdentity}) {
        c.args.ste = ste;
        for (IsaLevel level : kLevels) {
          set_isa_cap(level);
          c.run();
          check_against_formula(c);
          if (ste == SteRule::kClip) check_clip(c);
        }
      }
    }
  }
}

TEST_CASE("minus zero is a plus for signs, and abs x = 1 still passes the clip") {
  test::RestoreCpu restore;
  for (IsaLevel level : kLevels) {
    set_isa_cap(level);
    Case c(1, 8, dtypes::bint1);
    c.args.rule = CodeRule::kSign;
    const float x[8] = {-0.0f, 0.0f, 1.0f, -1.0f, std::nextafter(1.0f, 2.0f), -1e-45f, kNan, -kInf};
    std::copy(x, x + 8, c.x.begin());
    c.run();
    CHECK(c.codes[0] == 0b00010111);
    CHECK(c.mask[0] == 0b00101111u);
    CHECK(c.flags == (8u | kFlagNonFinite));
    c.args.mask = nullptr;
  }
}

TEST_CASE("rounding is to nearest even and numbers far outside the range clamp without a wild cast") {
  test::RestoreCpu restore;
  for (IsaLevel level : kLevels) {
    set_isa_cap(level);
    Case c(1, 12, dtypes::int4);
    c.args.rule = CodeRule::kDivide;
    const float x[12] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 7.5f, -8.5f, 3e38f, -3e38f, 2147483648.0f, -9e9f};
    const int expected[12] = {0, 2, 2, 0, -2, -2, 7, -8, 7, -8, 7, -8};
    const bool passes[12] = {true, true, true, true, true, true, false, true, false, false, false, false};
    std::copy(x, x + 12, c.x.begin());
    c.run();
    for (int64_t i = 0; i < 12; ++i) {
      INFO("element " << i);
      CHECK(decode_int(dtypes::int4.info(), c.raw(0, i)) == expected[i]);
      CHECK(c.pass(0, i) == passes[i]);
    }
  }
}

TEST_CASE("a huge quotient and a huge zero point of one sign clamp to the end of the range on that side") {
  test::RestoreCpu restore;
  for (IsaLevel level : kLevels) {
    set_isa_cap(level);
    for (const bool negative : {false, true}) {
      Case c(1, 45, dtypes::int8);
      c.args.rule = CodeRule::kDivide;
      c.zero = {negative ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max()};
      std::fill(c.x.begin(), c.x.end(), negative ? -3e38f : 3e38f);
      c.run();
      for (int64_t i = 0; i < 45; ++i) {
        CHECK(decode_int(dtypes::int8.info(), c.raw(0, i)) == (negative ? -128 : 127));
        CHECK(!c.pass(0, i));
      }
    }
  }
}

TEST_CASE("a zero scale or an overflowing quotient gives a code, not a NaN cast") {
  test::RestoreCpu restore;
  for (IsaLevel level : kLevels) {
    set_isa_cap(level);
    Case c(1, 45, dtypes::int8);
    c.args.rule = CodeRule::kInverse;
    c.scale = {0.0f};
    for (size_t i = 0; i < 45; ++i) c.x[i] = static_cast<float>(i % 3) - 1.0f;
    for (bool stochastic : {false, true}) {
      c.args.sr = stochastic ? &c.stream : nullptr;
      c.run();
      int64_t wrong = 0;
      for (int64_t i = 0; i < 45; ++i) wrong += c.raw(0, i) != (i % 3 == 0 ? 128u : (i % 3 == 1 ? 0u : 127u));
      CHECK(wrong == 0);
      CHECK(c.flags == 8);
    }
  }
}

TEST_CASE("kInverse multiplies by 1/s and kDivide divides where the two give other codes") {
  test::RestoreCpu restore;
  std::mt19937 random(6);
  Case c(1, 300, dtypes::int8);
  c.args.scale.col_step = 1;
  while (static_cast<int64_t>(c.scale.size()) < c.cols) {
    const float s = 0.01f + static_cast<float>(random() % 100000) * 1e-6f,
                x = (static_cast<float>(random() % 100) + 0.5f) * s;
    if (std::nearbyint(x * (1.0f / s)) == std::nearbyint(x / s)) continue;
    c.x[c.scale.size()] = x;
    c.scale.push_back(s);
  }
  for (IsaLevel level : kLevels) {
    set_isa_cap(level);
    for (CodeRule rule : {CodeRule::kInverse, CodeRule::kDivide, CodeRule::kOffset}) {
      c.args.rule = rule;
      c.run();
      check_against_formula(c);
      Case one(1, 20, dtypes::int8);  // one scale for all
      one.args.rule = rule;
      one.scale = {c.scale[0]};
      std::fill(one.x.begin(), one.x.end(), c.x[0]);
      one.run();
      check_against_formula(one);
    }
  }
}

TEST_CASE("stochastic rounding has the mean of the number within its bias") {
  for (float x : {0.25f, -0.75f, 2.999f, -3.5f}) {
    Case c(1, 60000, dtypes::int4);
    c.args.rule = CodeRule::kDivide;
    c.args.sr = &c.stream;
    std::fill(c.x.begin(), c.x.end(), x);
    c.run();
    double sum = 0;
    for (int64_t i = 0; i < c.cols; ++i) sum += static_cast<double>(decode_int(dtypes::int4.info(), c.raw(0, i)));
    CHECK(std::abs(sum / 60000.0 - static_cast<double>(x)) < 4 * 0.5 / std::sqrt(60000.0) + 0x1p-16);
  }
}

TEST_CASE("short dense rows of bytes get the codes of strided rows") {
  test::RestoreCpu restore;
  std::mt19937 random(4);
  for (DType dtype : {dtypes::int8, dtypes::uint8})
    for (int64_t cols : {1, 3, 4, 8, 9, 16, 31, 64, 65})
      for (int64_t rows : {1, 7, 700, 9000})
        for (int form = 0; form < 4; ++form) {
          Case c(rows, cols, dtype);
          c.args.rule = form % 2 == 0 ? CodeRule::kInverse : CodeRule::kOffset;
          set_scales(c, random, kTensor);
          if (form >= 2) c.args.sr = &c.stream;
          c.args.first_element = form * 1000;
          fill_numbers(c, random, 50.0f, form == 1);
          std::vector<float> dense;
          for (int64_t r = 0; r < rows; ++r)
            dense.insert(dense.end(), c.x.begin() + r * c.ldx, c.x.begin() + r * c.ldx + cols);
          for (IsaLevel level : kLevels)
            for (int threads : test::thread_counts({1, 3})) {
              set_isa_cap(level);
              set_num_threads(threads);
              c.run();
              std::vector<uint8_t> codes(c.codes.size(), kGarbage);
              uint32_t flags = 8;
              QuantizeArgs args = c.args;
              args.x = dense.data();
              args.ldx = cols;
              args.codes = codes.data();
              args.mask = nullptr;
              args.flags = &flags;
              quantize(args);
              INFO(dtype << ' ' << rows << " x " << cols << " form " << form);
              REQUIRE(codes == c.codes);
              CHECK(flags == c.flags);
            }
        }
}

TEST_CASE("quantize gives the same bits for any number of threads, also when a row is cut") {
  test::RestoreCpu restore;
  std::mt19937 random(3);
  for (DType dtype : {dtypes::bint1, dtypes::ternary, dtypes::int3, dtypes::int8, dtypes::nf4}) {
    for (int64_t cols : {16384 + 70, 300}) {
      Case c(cols > 1000 ? 3 : 200, cols, dtype);
      c.args.rule = rules_of(dtype).back() == CodeRule::kCodebook
                        ? CodeRule::kCodebook
                        : (dtype == dtypes::bint1 ? CodeRule::kSign : CodeRule::kInverse);
      c.args.sr = &c.stream;
      fill_numbers(c, random, 2.0f, false);
      set_num_threads(1);
      c.run();
      check_against_formula(c);
      const std::vector<uint8_t> codes = c.codes;
      const std::vector<uint64_t> mask = c.mask;
      for (int threads : {2, 4}) {
        set_num_threads(threads);
        c.run();
        CHECK(c.codes == codes);
        CHECK(c.mask == mask);
      }
    }
  }
}

TEST_CASE("every usable quantize row gives the bits of the scalar row, and the last row supports every argument") {
  std::mt19937 random(4);
  Case c(3, 130, dtypes::bint1);
  c.args.rule = CodeRule::kSign;
  fill_numbers(c, random, 1.0f, true);
  c.run();
  const std::vector<uint8_t> codes = c.codes;
  const std::vector<uint64_t> mask = c.mask;
  for (const auto& row : quantize_kernels()) {
    if (!row.usable(c.args)) continue;
    INFO(row.name);
    std::fill(c.codes.begin(), c.codes.end() - 1, uint8_t{0xFF});
    row.run(c.args);
    check_against_formula([&] {
      Case copy = c;
      for (int64_t r = 0; r < c.rows; ++r)  // the bytes between rows are the test's own
        std::fill_n(copy.codes.begin() + r * c.args.stride + row_bytes_memory(c.dtype, c.cols), 16, kGarbage);
      return copy;
    }());
    CHECK(c.mask == mask);
  }
  CHECK(quantize_kernels().back().needs == isa::kScalar);
  c.args.dtype = dtypes::nf4;
  CHECK(quantize_kernels().back().supports(c.args));
}

TEST_CASE("a dtype without codes or a rule of another kind is a bug report that names both") {
  Case c(1, 4, dtypes::int8);
  c.args.rule = CodeRule::kCodebook;
  const std::string error = test::error_of([&] { c.run(); });
  CHECK(test::contains(error, "[quantize]"));
  CHECK(test::contains(error, "int8"));
  c.args.dtype = dtypes::bf16;
  c.args.rule = CodeRule::kInverse;
  CHECK(test::contains(test::error_of([&] { c.run(); }), "bf16 has no codes"));
}

TEST_CASE(
    "an unsorted codebook with equal levels rounds to the nearest level, ties to the lower, equals to the lower code") {
  test::RestoreCpu restore;
  const DType dtype = register_dtype(
      {"quantize_test_levels", 3, DTypeKind::kCodebook, 0, 0, {4.0f, -1.0f, 0.0f, -0.0f, 1.0f, -4.0f, 4.0f}});
  for (IsaLevel level : kLevels) {
    set_isa_cap(level);
    Case c(1, 10, dtype);
    c.args.rule = CodeRule::kCodebook;
    const float x[10] = {0.5f, -0.5f, 2.5f, std::nextafter(2.5f, 3.0f), 100.0f, -2.5f, -0.0f, 1e-30f, kNan, -3e38f};
    const uint32_t expected[10] = {2, 1, 4, 0, 0, 5, 2, 2, 2, 5};
    std::copy(x, x + 10, c.x.begin());
    c.run();
    for (int64_t i = 0; i < 10; ++i) {
      INFO("element " << i);
      CHECK(c.raw(0, i) == expected[i]);
    }
  }
}

TEST_CASE("levels that are neighboring floats round to their own values") {
  const float base = 1.0f + 0x1p-23f, step = 0x1p-23f;
  const DType dtype = register_dtype({"quantize_test_neighbours",
                                      2,
                                      DTypeKind::kCodebook,
                                      0,
                                      0,
                                      {base, base + step, base + 2 * step, base + 3 * step}});
  Case c(1, 4, dtype);
  c.args.rule = CodeRule::kCodebook;
  for (size_t i = 0; i < 4; ++i) c.x[i] = base + static_cast<float>(i) * step;
  c.run();
  for (int64_t i = 0; i < 4; ++i) CHECK(c.raw(0, i) == static_cast<uint32_t>(i));
}

TEST_CASE("dequantize is s*(q-z), s*q or s*q+m with each operation rounded once") {
  test::RestoreCpu restore;
  std::mt19937 random(5);
  for (DType dtype : all_dtypes()) {
    if (!dtype.is_code()) continue;
    const float* values = code_values(dtype);
    for (Granularity g : {kNoScale, kTensor, kRow, kColumn, kGroup5, kGroup64, kBlocks}) {
      for (int form : {0, 1, 2}) {
        Case c(3, g == kRow ? 515 : 67, dtype);
        c.codes.assign(static_cast<size_t>(c.rows * c.args.stride), 0);
        const uint32_t count = dtype == dtypes::ternary ? 2 : (1u << dtype.bits());
        for (int64_t r = 0; r < c.rows; ++r) {
          for (int64_t k = 0; k < c.cols; ++k)
            store_raw(c.codes.data() + r * c.args.stride, k, dtype.bits(), random() % count);
        }
        set_scales(c, random, g);
        if (form != 1 || g == kNoScale) c.zero.clear();
        if (form != 2 || g == kNoScale) c.offset.clear();
        std::vector<float> y(static_cast<size_t>(c.rows * (c.cols + 2)), -7.0f);
        DequantizeArgs d{c.rows, c.cols, dtype, c.codes.data(), c.args.stride, c.args.scale, y.data(), c.cols + 2};
        d.scale.scale = c.scale.empty() ? nullptr : c.scale.data();
        d.scale.zero = c.zero.empty() ? nullptr : c.zero.data();
        d.scale.offset = c.offset.empty() ? nullptr : c.offset.data();
        for (IsaLevel level : kLevels) {
          set_isa_cap(level);
          dequantize(d);
          int64_t wrong = 0;
          for (int64_t r = 0; r < c.rows; ++r) {
            for (int64_t k = 0; k < c.cols; ++k) {
              const size_t at = static_cast<size_t>(d.scale.index(r, k));
              float v = values[c.raw(r, k)];
              if (!c.zero.empty()) v = v - static_cast<float>(c.zero[at]);
              if (!c.scale.empty()) v = c.scale[at] * v;
              if (!c.offset.empty()) v = v + c.offset[at];
              wrong += y[static_cast<size_t>(r * (c.cols + 2) + k)] != v;
            }
            wrong += y[static_cast<size_t>(r * (c.cols + 2) + c.cols)] != -7.0f;
          }
          INFO("dtype " << dtype.name() << " granularity " << g << " form " << form);
          CHECK(wrong == 0);
        }
      }
    }
  }
}

}  // namespace bitgrad
