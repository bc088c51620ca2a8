// Codes and rule clip of neighbours that share their scales, where a quotient lies on or beside the middle of two
// codes, against the formulas in doubles.
#include "kernels/quantize_problem.h"
#include "support/catch.h"

namespace bitgrad {

using namespace kernels;

using namespace quantize_problem;

namespace {

float pick(std::mt19937& random, std::initializer_list<float> list) { return list.begin()[random() % list.size()]; }

// Groups of `group` along the rows; zero: with zero points; wild: some beyond what products may stand for.
void set_groups(Case& c, std::mt19937& random, int64_t group, bool zero, bool wild) {
  const int64_t per_row = (c.cols + group - 1) / group;
  c.args.scale.row_step = per_row;
  c.args.scale.col_step = 1;
  c.args.scale.col_group = group;
  std::uniform_real_distribution<float> unit(1.0f, 2.0f);
  for (int64_t j = 0; j < c.rows * per_row; ++j) {
    float s = unit(random) * pick(random, {1.0f, 0.01f, 7.0f}), m = (unit(random) - 1.5f) * s * 40;
    if (wild && random() % 5 == 0) s = pick(random, {0.0f, 1e-40f, 1e-30f, 1e30f, 1e38f, kInf});
    if (wild && random() % 5 == 0) m = pick(random, {1e30f, -1e30f, 300 * s});
    c.scale.push_back(s);
    c.offset.push_back(m);
    if (zero) c.zero.push_back(static_cast<int32_t>(random() % 300) - 150);
    if (zero && wild && random() % 5 == 0) c.zero.back() = static_cast<int32_t>(random());
  }
}

// Quotients at and beside k + 1/2 and at the ends of the codes.
void fill_middles(Case& c, std::mt19937& random, bool nonfinite) {
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t k = 0; k < c.cols; ++k) {
      const size_t at = static_cast<size_t>(c.args.scale.index(r, k));
      const double z = c.zero.empty() ? 0.0 : c.zero[at];
      const int64_t span = c.args.hi - c.args.lo + 4;
      const double code =
          static_cast<double>(c.args.lo - 2 + static_cast<int64_t>(random() % static_cast<uint64_t>(span)));
      const double middle = code - z + (random() % 8 == 0 ? 0.0 : 0.5);
      const double m = c.args.rule == CodeRule::kOffset ? static_cast<double>(c.offset[at]) : 0.0;
      float x = static_cast<float>(m + middle * static_cast<double>(c.scale[at]));
      for (uint32_t i = random() % 4; i > 0; --i) x = std::nextafter(x, random() % 2 == 0 ? kInf : -kInf);
      if (!std::isfinite(x) || random() % 64 == 0) x = pick(random, {0.0f, -0.0f, 1e-45f, 3e38f, -3e38f, 1.0f});
      if (nonfinite && random() % 50 == 0) x = pick(random, {kNan, kInf, -kInf});
      c.x[static_cast<size_t>(r * c.ldx + k)] = x;
    }
}

// gx of rule clip, and whether it is the same in place.
std::vector<float> clipped(const Case& c) {
  std::vector<float> g, gx(static_cast<size_t>(c.rows * c.cols), 7.0f);
  for (size_t i = 0; i < gx.size(); ++i) g.push_back(static_cast<float>(i % 19) - 9.5f);
  clip_gradient(c.args, g.data(), gx.data());
  clip_gradient(c.args, g.data(), g.data());
  const bool same_in_place = g == gx;
  CHECK(same_in_place);
  return gx;
}

int64_t wrong_gradients(const Case& c, const std::vector<float>& gx) {
  int64_t wrong = 0;
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t k = 0; k < c.cols; ++k) {
      const size_t i = static_cast<size_t>(r * c.cols + k);
      wrong += gx[i] != (expect(c, r, k).pass ? static_cast<float>(i % 19) - 9.5f : 0.0f);
    }
  return wrong;
}

}  // namespace

TEST_CASE("groups with quotients at the middle of two codes get the codes and the clip of the division") {
  test::RestoreCpu restore;
  std::mt19937 random(5);
  for (DType dtype : {dtypes::int2, dtypes::int3, dtypes::int4, dtypes::uint4, dtypes::int8, dtypes::uint8})
    for (CodeRule rule : {CodeRule::kInverse, CodeRule::kDivide, CodeRule::kOffset})
      for (int64_t group : {3, 16, 20, 32, 48, 100, 700})
        for (bool zero : {false, true})
          for (int turn = 0; turn < 4; ++turn) {
            static constexpr int64_t kCols[] = {1, 15, 16, 33, 64, 200, 512, 530, 784, 1030};
            const bool wild = turn == 3;
            Case c(2, kCols[random() % std::size(kCols)], dtype);
            c.args.rule = rule;
            set_groups(c, random, group, zero, wild);
            fill_middles(c, random, turn == 2);
            std::vector<uint8_t> codes;
            std::vector<float> gx;
            for (IsaLevel level : kLevels) {  // scalar first
              INFO("ISA level " << static_cast<int>(level) << " group " << group << " zero " << zero << " turn "
                                << turn);
              set_isa_cap(level);
              c.args.ste = SteRule::kIdentity;  // codes without passes
              c.run();
              if (!wild) check_against_formula(c);
              if (codes.empty()) codes = c.codes;
              const bool same_codes = codes == c.codes;
              CHECK(same_codes);
              c.args.ste = SteRule::kClip;
              const std::vector<float> now = clipped(c);
              if (!wild) CHECK(wrong_gradients(c, now) == 0);
              if (gx.empty()) gx = now;
              const bool same_gradients = gx == now;
              CHECK(same_gradients);
            }
          }
}

}  // namespace bitgrad
