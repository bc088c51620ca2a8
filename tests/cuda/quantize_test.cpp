// Family quantize on an emulated device against the CPU, bit by bit.
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/kernels/flag.h"
#include "cuda/both.h"
#include "kernels/quantize_problem.h"
#include "support/catch.h"
#include "support/draw_codes.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;

using namespace quantize_problem;
using test::differing_on_device;
using test::Outcome;
using test::Placed;

namespace {

// The arrays of a problem on the current device, `shift` elements off an aligned address. Outputs hold garbage.
struct Arrays {
  Placed<float> x, scale, offset;
  Placed<int32_t> zero;
  Placed<uint8_t> codes;
  Placed<uint64_t> mask;
  Placed<uint32_t> flags;
  QuantizeArgs args;

  Arrays(const Case& c, int64_t shift, int64_t code_shift)
      : x(c.x, shift),
        scale(c.scale),
        offset(c.offset),
        zero(c.zero),
        codes(std::vector<uint8_t>(static_cast<size_t>(c.rows * c.args.stride + 1), kGarbage), code_shift),
        mask(std::vector<uint64_t>(static_cast<size_t>(c.rows * ((c.cols + 63) / 64) + 1), 0x5A5A5A5A5A5A5A5Aull)),
        flags({8u}),
        args(c.args) {
    args.x = x.data();
    args.codes = codes.data();
    args.mask = mask.data();
    args.flags = flags.data();
    args.scale.scale = c.scale.empty() ? nullptr : scale.data();
    args.scale.zero = c.zero.empty() ? nullptr : zero.data();
    args.scale.offset = c.offset.empty() ? nullptr : offset.data();
  }
  void add_to(Outcome& out) const {
    out.add(codes);
    out.add(mask);
    out.add(flags);
  }
};

constexpr Granularity kGranularities[] = {kNoScale, kTensor, kRow, kColumn, kGroup5, kGroup64, kBlocks};
constexpr int64_t kEdges[] = {1, 7, 8, 9, 63, 64, 65, 130, 515};

// A random problem of a dtype, a rule and a granularity.
Case some_case(std::mt19937& random, DType dtype, CodeRule rule, Granularity g, int64_t rows) {
  Case c(rows, kEdges[random() % std::size(kEdges)], dtype);
  c.args.rule = rule;
  set_scales(c, random, g);
  if (random() % 3 == 0) c.zero.clear();
  if (random() % 4 == 0) c.args.ste = SteRule::kIdentity;
  if (dtype.kind() == DTypeKind::kInt && random() % 2 == 0) c.args.lo = -c.args.hi;
  c.args.first_element = static_cast<int64_t>(random() % 1000);
  fill_numbers(c, random, static_cast<float>(1 << (random() % dtype.bits())), random() % 2 == 0);
  if (random() % 2 == 0) c.args.ldx = c.ldx = c.cols + 4 - c.cols % 4;  // rows on four elements
  c.x.resize(static_cast<size_t>(c.rows * c.ldx + 1), 0.25f);
  if (random() % 2 == 0) c.args.stride += 16 - c.args.stride % 16 + static_cast<int64_t>(random() % 3) * 4;
  return c;
}

template <typename Body>
void for_every_code(std::mt19937& random, int64_t most_rows, Body&& body) {
  for (const DType dtype : all_dtypes()) {
    if (!dtype.is_code()) continue;
    for (const CodeRule rule : rules_of(dtype))
      for (const Granularity g : kGranularities)
        body(some_case(random, dtype, rule, g, 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most_rows))));
  }
}

std::string describe(const Case& c) {
  return c.dtype.name() + " rule " + std::to_string(static_cast<int>(c.args.rule)) + ", " + std::to_string(c.rows) +
         " x " + std::to_string(c.cols) + (c.args.sr != nullptr ? " stochastic" : "");
}

}  // namespace

TEST_CASE("quantize on CUDA gives the CPU's codes, masks and flags for every dtype, rule and granularity") {
  std::mt19937 random(1);
  for (const bool stochastic : {false, true})
    for_every_code(random, 4, [&](Case c) {
      if (stochastic) c.args.sr = &c.stream;
      INFO(describe(c));
      const int64_t shift = static_cast<int64_t>(random() % 2), code_shift = static_cast<int64_t>(random() % 3) * 4;
      const bool without_mask = random() % 4 == 0;
      CHECK(differing_on_device([&](Outcome& out) {
              Arrays on(c, shift, code_shift);
              if (without_mask) on.args.mask = nullptr;
              quantize(on.args);
              on.add_to(out);
            }) == 0);
    });
}

TEST_CASE("A dtype registered at run time quantizes and dequantizes on CUDA as on the CPU") {
  DTypeInfo info{"cuda_levels7", 3, DTypeKind::kCodebook, 0, 0, {0.9f, -1.0f, 0.25f, 0.25f, -0.4f, 0.0f, 2.0f}};
  const DType levels = register_dtype(info);
  std::mt19937 random(2);
  for (const Granularity g : kGranularities) {
    const Case c = some_case(random, levels, CodeRule::kCodebook, g, 3);
    CHECK(differing_on_device([&](Outcome& out) {
            const Arrays on(c, 0, 0);
            quantize(on.args);
            on.add_to(out);
            const Placed<float> y(std::vector<float>(static_cast<size_t>(c.rows * c.cols)));
            dequantize({c.rows, c.cols, levels, on.codes.data(), c.args.stride, on.args.scale, y.data(), c.cols});
            out.add(y);
          }) == 0);
  }
}

TEST_CASE("quantize on CUDA takes more octets than threads and rows of one element") {
  std::mt19937 random(3);
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{300, 1}, {1, 5000}, {37, 777}, {0, 5}, {3, 0}}) {
    for (const DType dtype : {dtypes::bint1, dtypes::int3, dtypes::int8}) {
      Case c(rows, cols, dtype);
      c.args.rule = dtype == dtypes::bint1 ? CodeRule::kSign : CodeRule::kInverse;
      fill_numbers(c, random, 2.0f, false);
      CHECK(differing_on_device([&](Outcome& out) {
              const Arrays on(c, 0, 0);
              quantize(on.args);
              on.add_to(out);
            }) == 0);
    }
  }
}

TEST_CASE("clip_gradient on CUDA passes what it passes on the CPU, in place too") {
  std::mt19937 random(4);
  for_every_code(random, 3, [&](const Case& c) {
    if (c.args.rule == CodeRule::kCodebook) return;
    INFO(describe(c));
    const std::vector<float> g = test::some_numbers(c.rows * c.cols, static_cast<uint32_t>(random()), true);
    const int64_t shift = static_cast<int64_t>(random() % 2);
    CHECK(differing_on_device([&](Outcome& out) {
            const Arrays on(c, shift, 0);
            const Placed<float> from(g, shift), to(std::vector<float>(g.size(), 7.0f), shift);
            clip_gradient(on.args, from.data(), to.data());
            clip_gradient(on.args, from.data(), from.data());
            out.add(to);
            out.add(from);
          }) == 0);
  });
}

TEST_CASE("dequantize on CUDA gives the CPU's numbers of every dtype, whatever lies in pad bits") {
  std::mt19937 random(5);
  for (const DType dtype : all_dtypes()) {
    if (dtype == dtypes::fp64 || dtype == dtypes::fp16) continue;
    for (const Granularity g : kGranularities) {
      const int64_t rows = 1 + static_cast<int64_t>(random() % 4), cols = kEdges[random() % std::size(kEdges)];
      Case c(rows, cols, dtypes::int8);
      set_scales(c, random, g);
      if (random() % 2 == 0) c.zero.clear();
      const int64_t stride =
          row_bytes_memory(dtype, cols) + (dtype.is_code() ? static_cast<int64_t>(random() % 3) * 4 : 8);
      std::vector<uint8_t> codes = test::some_words<uint8_t>(rows * stride, static_cast<uint32_t>(random()));
      INFO(dtype << ", " << rows << " x " << cols);
      const int64_t shift = static_cast<int64_t>(random() % 2);
      CHECK(differing_on_device([&](Outcome& out) {
              const Placed<uint8_t> data(codes, 8 * shift);
              const Placed<float> scale(c.scale), offset(c.offset),
                  y(std::vector<float>(static_cast<size_t>(rows * (cols + 3)), 3.0f), shift);
              const Placed<int32_t> zero(c.zero);
              ScaleMap map = c.args.scale;
              map.scale = c.scale.empty() ? nullptr : scale.data();
              map.zero = c.zero.empty() ? nullptr : zero.data();
              map.offset = c.offset.empty() ? nullptr : offset.data();
              dequantize({rows, cols, dtype, data.data(), stride, map, y.data(), cols + 3});
              out.add(y);
            }) == 0);
    }
  }
}

TEST_CASE("dequantize on CUDA refuses fp64 and fp16, and a rule that does not fit the dtype") {
  const DeviceGuard guard(Device::cuda());
  const Placed<float> y(std::vector<float>(8));
  const Placed<uint8_t> codes(std::vector<uint8_t>(64));
  const auto error = [&](DType dtype) {
    return test::error_of([&] { dequantize({1, 8, dtype, codes.data(), 64, {}, y.data(), 8}); });
  };
  CHECK(test::contains(error(dtypes::fp64), "[dequantize] fp64 is the reference dtype of the CPU"));
  CHECK(test::contains(error(dtypes::fp16), "[dequantize] there is no kernel of dtype fp16 on cuda:0"));
  Case c(1, 8, dtypes::nf4);
  CHECK(test::contains(test::error_of([&] { quantize(c.args); }), "does not fit dtype nf4"));
  c.args.dtype = dtypes::bf16;
  CHECK(test::contains(test::error_of([&] { quantize(c.args); }), "bf16 has no codes"));
}

namespace {

struct OrdersProblem {
  int64_t rows, cols, pad;
  bool bf16, folds, stochastic, by_row, by_column;
  uint32_t seed;
};

// Numbers whose products with others of them are finite.
std::vector<float> small_numbers(int64_t n, uint32_t seed) {
  std::vector<float> x = test::some_numbers(n, seed);
  for (float& v : x) v = std::abs(v) > 1e10f ? 1.0f : v;
  return x;
}

// Of finite numbers: the CPU gives up at others, and its caller codes line by line.
void run_orders(const OrdersProblem& p, Outcome& out) {
  std::vector<uint16_t> narrow;
  for (const float v : small_numbers(p.rows * p.cols, p.seed)) narrow.push_back(bf16_from_float(v));
  std::vector<float> plain;
  for (const uint16_t v : narrow) plain.push_back(bf16_to_float(v));
  const RandomStream first{3, Purpose::kGradient, 17, 5}, second{3, Purpose::kGradientWeight, 17, 5};
  const Placed<float> wide(plain), fold_row(small_numbers(p.cols, 7)), fold_column(small_numbers(p.rows, 8));
  const Placed<uint16_t> half(narrow);
  const int64_t stride = (p.cols + 7) / 8 * 8 + p.pad;
  const Placed<float> row_scale(std::vector<float>(static_cast<size_t>(p.rows), 5.0f)),
      column_scale(std::vector<float>(static_cast<size_t>(p.cols), 5.0f));
  const Placed<int8_t> row_codes(std::vector<int8_t>(static_cast<size_t>(p.rows * stride), 0x5A)),
      column_codes(std::vector<int8_t>(static_cast<size_t>(p.rows * stride), 0x5A));
  const Placed<uint32_t> flags({8u});
  Int8OrdersArgs args;
  args.rows = p.rows;
  args.cols = p.cols;
  args.x = p.bf16 ? static_cast<const void*>(half.data()) : wide.data();
  args.bf16 = p.bf16;
  args.flags = flags.data();
  if (p.by_row)
    args.by_row = {p.folds ? fold_row.data() : nullptr,
                   row_scale.data(),
                   row_codes.data(),
                   stride,
                   p.stochastic ? &first : nullptr,
                   3};
  if (p.by_column)
    args.by_column = {p.folds ? fold_column.data() : nullptr,
                      column_scale.data(),
                      column_codes.data(),
                      stride,
                      p.stochastic ? &second : nullptr,
                      11};
  quantize_int8_orders(args);
  out.add(row_scale);
  out.add(column_scale);
  out.add(flags);
  out.add(row_codes);
  out.add(column_codes);
}

}  // namespace

TEST_CASE("int8 codes in both orders on CUDA are the CPU's, from fp32 and bf16, folded and drawn") {
  std::mt19937 random(6);
  for (const int64_t rows : {1, 3, 63, 64, 65, 130})
    for (const int64_t cols : {1, 7, 8, 9, 255, 256, 257, 300})
      for (int i = 0; i < 2; ++i) {
        const bool by_row = random() % 4 != 0;
        const OrdersProblem p{rows,
                              cols,
                              static_cast<int64_t>(random() % 3) * 8,
                              random() % 2 == 0,
                              random() % 2 == 0,
                              random() % 2 == 0,
                              by_row,
                              !by_row || random() % 4 != 0,
                              static_cast<uint32_t>(random())};
        INFO(rows << " x " << cols << " bf16 " << p.bf16 << " folds " << p.folds << " stochastic " << p.stochastic
                  << " orders " << p.by_row << p.by_column);
        CHECK(differing_on_device([&](Outcome& out) { run_orders(p, out); }) == 0);
      }
}

TEST_CASE("int8 codes of columns on CUDA that are turned are those that are not") {
  const DeviceGuard guard(Device::cuda());
  std::mt19937 random(7);
  for (const int64_t rows : {16, 64, 128, 144, 272})
    for (const int64_t cols : {1, 8, 65, 127, 128, 131, 260}) {
      const bool bf16 = random() % 2 == 0, stochastic = random() % 2 == 0, both = random() % 3 != 0;
      INFO(rows << " x " << cols << " bf16 " << bf16 << " stochastic " << stochastic << " both " << both);
      const std::vector<float> x = test::some_numbers(rows * cols, static_cast<uint32_t>(random()));
      std::vector<uint16_t> narrow;
      for (const float v : x) narrow.push_back(bf16_from_float(v));
      const Placed<float> wide(x), fold(test::some_numbers(rows, 3));
      const Placed<uint16_t> half(narrow);
      const RandomStream draws{3, Purpose::kGradient, 17, 5};
      const int64_t stride = (cols + 7) / 8 * 8 + 16;
      const auto run = [&](bool turned) {
        const Placed<float> row_scale(std::vector<float>(static_cast<size_t>(rows), 5.0f)),
            scale(std::vector<float>(static_cast<size_t>(cols), 5.0f));
        const Placed<int8_t> row_codes(std::vector<int8_t>(static_cast<size_t>(rows * stride), 0x5A)),
            codes(std::vector<int8_t>(static_cast<size_t>(rows * stride), 0x5A));
        Int8OrdersArgs args;
        args.rows = rows;
        args.cols = cols;
        args.x = bf16 ? static_cast<const void*>(half.data()) : wide.data();
        args.bf16 = bf16;
        if (both) args.by_row = {nullptr, row_scale.data(), row_codes.data(), stride, nullptr, 0};
        args.by_column = {
            fold.data(), scale.data(), codes.data(), turned ? rows : stride, stochastic ? &draws : nullptr, 5, turned};
        quantize_int8_orders(args);
        std::vector<int8_t> out = codes.values();
        if (turned) {
          const std::vector<int8_t> by_column = out;
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; ++c)
              out[static_cast<size_t>(r * stride + c)] = by_column[static_cast<size_t>(c * rows + r)];
        }
        std::vector<int8_t> seen = row_codes.values();
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < cols; ++c) seen.push_back(out[static_cast<size_t>(r * stride + c)]);
        std::vector<uint32_t> bits;  // a line that is not finite has the scale NaN
        for (const float s : scale.values()) bits.push_back(std::bit_cast<uint32_t>(s));
        return std::pair{bits, seen};
      };
      REQUIRE(run(true) == run(false));
    }
}

TEST_CASE(
    "int8 codes on CUDA: a line with NaN or Inf gets the scale NaN and codes of scale 1, the others are as without") {
  const int64_t rows = 5, cols = 20;
  std::vector<float> x = test::some_numbers(rows * cols, 12);
  for (float& v : x) v = std::isfinite(v) && std::abs(v) < 1e30f && std::abs(v) > 1e-30f ? v : 40.0f;
  x[1 * cols + 3] = kNan;
  x[4 * cols + 19] = -kInf;
  const DeviceGuard guard(Device::cuda());
  for (const bool stochastic : {false, true}) {
    const RandomStream stream{3, Purpose::kGradient, 17, 5};
    const Placed<float> on(x), scale(std::vector<float>(rows, 0.0f)), column(std::vector<float>(cols, 0.0f));
    const Placed<int8_t> codes(std::vector<int8_t>(rows * 24, 1)), column_codes(std::vector<int8_t>(rows * 24, 1));
    const Placed<uint32_t> flags({0u});
    Int8OrdersArgs args;
    args.rows = rows;
    args.cols = cols;
    args.x = on.data();
    args.flags = flags.data();
    args.by_row = {nullptr, scale.data(), codes.data(), 24, stochastic ? &stream : nullptr, 0};
    args.by_column = {nullptr, column.data(), column_codes.data(), 24, stochastic ? &stream : nullptr, 0};
    CHECK(quantize_int8_orders(args));
    CHECK(flags.values()[0] == kFlagNonFinite);
    const std::vector<float> s = scale.values(), t = column.values();
    const std::vector<int8_t> q = codes.values(), u = column_codes.values();
    for (int64_t r = 0; r < rows; ++r) CHECK(std::isnan(s[static_cast<size_t>(r)]) == (r == 1 || r == 4));
    for (int64_t c = 0; c < cols; ++c) CHECK(std::isnan(t[static_cast<size_t>(c)]) == (c == 3 || c == 19));
    const auto expected = [&](int64_t r, int64_t c, float line_scale) {
      const float v = x[static_cast<size_t>(r * cols + c)];
      if (!std::isfinite(v)) return 0.0;
      const double z = std::isnan(line_scale) ? v : v * (1.0f / line_scale);
      const double draw = stochastic ? stream.bits16(static_cast<uint64_t>(r * cols + c)) : 0.0;
      const double n = stochastic ? static_cast<double>(test::code_by_draw(z, -127, 127, draw)) : std::nearbyint(z);
      return std::clamp(n, -127.0, 127.0);
    };
    int64_t wrong = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        wrong += q[static_cast<size_t>(r * 24 + c)] != expected(r, c, s[static_cast<size_t>(r)]);
        wrong += u[static_cast<size_t>(r * 24 + c)] != expected(r, c, t[static_cast<size_t>(c)]);
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("A flag of quantize on CUDA becomes an error when flags are drained, on the CPU at once") {
  const auto run = [] {
    const Placed<float> x({1.0f, kNan, 2.0f});
    const Placed<uint8_t> codes(std::vector<uint8_t>(8));
    QuantizeArgs args;
    args.rows = 1;
    args.cols = args.ldx = 3;
    args.x = x.data();
    args.codes = codes.data();
    args.stride = 8;
    args.lo = -128;
    args.hi = 127;
    FlagWord flag;
    args.flags = flag.word();
    quantize(args);
    flag.check([] { fail_with(ErrorCode::kNonFinite, "quantize", "a number is not finite"); });
  };
  CHECK(test::contains(test::error_of(run), "a number is not finite"));
  const DeviceGuard guard(Device::cuda());
  run();
  CHECK(test::contains(test::error_of(poll_errors), "a number is not finite"));
  poll_errors();
}

}  // namespace bitgrad
