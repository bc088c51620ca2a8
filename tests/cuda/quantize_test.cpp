// Family quantize on a device where it differs from the CPU: transposed codes, lines that are not finite, late errors.
#include "bitgrad/dtype/bf16.h"
#include "cuda/both.h"
#include "kernels/flag.h"
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
