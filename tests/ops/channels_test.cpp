// avg_pool, global_avg_pool, shortcut_a, prelu and shift against direct loops.
#include <cmath>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Draw {
  RandomStream stream;
  uint64_t i = 0;
  explicit Draw(uint64_t seed) : stream{seed, Purpose::kUser, 2, 0} {}
  int64_t operator()(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(stream.bits32(i++) % static_cast<uint32_t>(hi - lo + 1));
  }
};

struct Ran {
  Tensor y;
  std::vector<Tensor> g;
};
// y, and the gradients of all inputs for gy; the first gradient in the dtype of its edge, `grad`.
Ran run(const std::function<Var(const std::vector<Var>&)>& f, const std::vector<Tensor>& in, uint64_t seed,
        DType grad = dtypes::fp32) {
  std::vector<AccumulateSink> sinks(in.size());
  Tape tape;
  std::vector<Var> leaves;
  for (size_t i = 0; i < in.size(); ++i) leaves.push_back(tape.leaf(in[i], &sinks[i], i == 0 ? grad : dtypes::fp32));
  const Var y = f(leaves);
  tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, seed)});
  Ran out{y.value(), {}};
  for (AccumulateSink& s : sinks) out.g.push_back(s.grad());
  return out;
}

PoolOptions drawn_pool(const Shape& s, Draw& pick) {
  for (;;) {
    PoolOptions o;
    for (size_t a = 0; a < 2; ++a) {
      o.size[a] = pick(1, 4);
      o.stride[a] = pick(1, 4);
      for (const size_t side : {a, a + 2}) o.padding[side] = pick(0, o.size[a] - 1);
    }
    try {
      pool_output("test", s[1], s[2], o);
      return o;
    } catch (const Error&) {
    }
  }
}

float rounded(DType dtype, float v) { return dtype == dtypes::bf16 ? bf16_to_float(bf16_from_float(v)) : v; }

// The mean and its gradient in the documented order of fp32 operations.
void check_mean(const Tensor& x, const PoolOptions& o, const Ran& got, uint64_t seed) {
  const Shape& s = x.shape();
  const auto [oh, ow] = pool_output("test", s[1], s[2], o);
  const std::vector<double> values = x.elements();
  std::vector<float> want, gx(values.size());
  const std::vector<double> gy = random_tensor({s[0], oh, ow, s[3]}, dtypes::fp32, seed).elements();
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t oy = 0; oy < oh; ++oy)
      for (int64_t ox = 0; ox < ow; ++ox)
        for (int64_t c = 0; c < s[3]; ++c) {
          float sum = 0;
          std::vector<size_t> inside;
          for (int64_t ky = 0; ky < o.size[0]; ++ky)
            for (int64_t kx = 0; kx < o.size[1]; ++kx) {
              const int64_t y = oy * o.stride[0] + ky - o.padding[0], px = ox * o.stride[1] + kx - o.padding[1];
              if (y < 0 || y >= s[1] || px < 0 || px >= s[2]) continue;
              inside.push_back(static_cast<size_t>(((n * s[1] + y) * s[2] + px) * s[3] + c));
              sum += static_cast<float>(values[inside.back()]);
            }
          const float share = 1.0f / static_cast<float>(inside.size());
          for (const size_t i : inside) gx[i] += static_cast<float>(gy[want.size()]) * share;
          want.push_back(rounded(x.dtype(), sum * share));
        }
  REQUIRE(got.y.dtype() == x.dtype());
  REQUIRE(got.y.elements() == std::vector<double>(want.begin(), want.end()));
  REQUIRE(got.g[0].elements() == std::vector<double>(gx.begin(), gx.end()));
}

const int64_t kChannels[] = {1, 3, 16, 63, 64, 65, 130};

}  // namespace

TEST_CASE("avg_pool sums in row-major order, and pads are not counted") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Draw pick(seed);
    const Shape shape{pick(0, 3), pick(1, 8), pick(1, 8), kChannels[pick(0, 6)]};
    const PoolOptions o = drawn_pool(shape, pick);
    INFO("seed " << seed << ", x " << shape);
    for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
      const Tensor x = random_tensor(shape, dtype, seed);
      check_mean(x, o, run([&](const auto& v) { return avg_pool(v[0], o); }, {x}, seed), seed);
    }
    const Tensor whole = random_tensor(shape, dtypes::fp32, seed);
    const PoolOptions image{{shape[1], shape[2]}, {1, 1}, {}};
    const Ran global = run([](const auto& v) { return global_avg_pool(v[0]); }, {whole}, seed);
    REQUIRE(global.y.shape() == Shape{shape[0], shape[3]});
    check_mean(whole, image, global, seed);
  }
}

TEST_CASE("shortcut_a reads every stride-th pixel and puts zero channels around it") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Draw pick(seed);
    const Shape s{pick(0, 3), pick(1, 8), pick(1, 8), pick(1, 70)};
    const int64_t out = s[3] + pick(0, 5), sy = pick(1, 3), sx = pick(1, 3);
    for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
      const Tensor x = random_tensor(s, dtype, seed);
      const Ran got = run([&](const auto& v) { return shortcut_a(v[0], out, {sy, sx}); }, {x}, seed);
      const int64_t oh = (s[1] + sy - 1) / sy, ow = (s[2] + sx - 1) / sx, before = (out - s[3]) / 2;
      REQUIRE(got.y.shape() == Shape{s[0], oh, ow, out});
      std::vector<double> want, gx(static_cast<size_t>(s.numel())), values = x.elements();
      const std::vector<double> gy = random_tensor(got.y.shape(), dtypes::fp32, seed).elements();
      for (int64_t n = 0; n < s[0]; ++n)
        for (int64_t y = 0; y < oh; ++y)
          for (int64_t px = 0; px < ow; ++px)
            for (int64_t c = 0; c < out; ++c) {
              const bool there = c >= before && c - before < s[3];
              const auto i = static_cast<size_t>(((n * s[1] + y * sy) * s[2] + px * sx) * s[3] + c - before);
              if (there) gx[i] = gy[want.size()];
              want.push_back(there ? values[i] : 0);
            }
      REQUIRE(got.y.elements() == want);
      REQUIRE(got.g[0].elements() == gx);
    }
  }
  const Var x = random_tensor({1, 3, 3, 4}, dtypes::fp32, 1);
  CHECK(shortcut_a(x, 4, {1, 1}).value().data() == x.value().data());
  CHECK(contains(error_of([&] {
                   shortcut_a(x, 3, {1, 1});
                 }),
                 "[shortcut_a] x [1,3,3,4] fp32 has more channels than out: got 3, expected at least 4"));
}

TEST_CASE("prelu and shift use a number a channel, in fp32 with one rounding for bf16") {
  for (const int64_t c : kChannels)
    for (const Shape& shape : {Shape{3, c}, Shape{2, 3, 2, c}, Shape{0, c}, Shape{2, 1, 2, 1, 2, c}})
      for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
        Tensor x = random_tensor(shape, dtype, 3);
        if (x.numel() > 0 && dtype == dtypes::fp32) x.as<float>()[0] = 0;
        const Tensor a = random_tensor({c}, dtypes::fp32, 4);
        const std::vector<double> v = x.elements(), s = a.elements(),
                                  gy = random_tensor(shape, dtypes::fp32, 5).elements();
        const auto prelu_f = [](const auto& in) { return prelu(in[0], in[1]); };
        const auto shift_f = [](const auto& in) { return shift(in[0], in[1]); };
        const Ran p = run(prelu_f, {x, a}, 5), q = run(shift_f, {x, a}, 5);
        std::vector<double> sums(s.size()), shifts(s.size()), bound(s.size());
        for (size_t i = 0; i < v.size(); ++i) {
          const size_t j = i % s.size();
          const auto xi = static_cast<float>(v[i]), si = static_cast<float>(s[j]), gi = static_cast<float>(gy[i]);
          REQUIRE(p.y.elements()[i] == rounded(dtype, xi > 0 ? xi : xi * si));
          REQUIRE(p.g[0].elements()[i] == (xi > 0 ? gi : gi * si));
          REQUIRE(q.y.elements()[i] == rounded(dtype, xi + si));
          REQUIRE(q.g[0].elements()[i] == gi);
          sums[j] += xi > 0 ? 0 : gy[i] * v[i];
          shifts[j] += gy[i];
          bound[j] += 1e-6 * (std::fabs(gy[i]) + std::fabs(gy[i] * v[i]));
        }
        for (size_t j = 0; j < s.size(); ++j) {
          REQUIRE(std::fabs(p.g[1].elements()[j] - sums[j]) <= bound[j]);
          REQUIRE(std::fabs(q.g[1].elements()[j] - shifts[j]) <= bound[j]);
        }
      }
  const Tensor x = random_tensor({2, 3}, dtypes::fp32, 1), two = random_tensor({2}, dtypes::fp32, 1);
  CHECK(error_of([&] { prelu(x, two); }) == "[prelu] slope must be [3] fp32, got [2] fp32");
  CHECK(error_of([&] { shift(x, two); }) == "[shift] b must be [3] fp32, got [2] fp32");
}

TEST_CASE("means, shortcut_a, prelu and shift pass the gradient check") {
  const Tensor x = random_tensor({2, 5, 4, 3}, dtypes::fp64, 1), a = random_tensor({3}, dtypes::fp64, 2);
  const PoolOptions o{{3, 2}, {2, 1}, {1, 0, 2, 1}};
  CHECK(gradcheck([&](const auto& v) { return avg_pool(v[0], o); }, {x}) == "");
  CHECK(gradcheck([](const auto& v) { return global_avg_pool(v[0]); }, {x}) == "");
  CHECK(gradcheck([](const auto& v) { return shortcut_a(v[0], 6, {2, 3}); }, {x}) == "");
  CHECK(gradcheck([](const auto& v) { return prelu(v[0], v[1]); }, {x, a}) == "");
  CHECK(gradcheck([](const auto& v) { return shift(v[0], v[1]); }, {x, a}) == "");
}

TEST_CASE("means refuse codes and windows outside the image") {
  const Tensor codes = random_tensor({1, 4, 4, 3}, dtypes::int8, 1), x = random_tensor({1, 4, 4, 3}, dtypes::fp32, 1);
  CHECK(contains(error_of([&] { avg_pool(codes, {}); }), "[avg_pool] x must be fp32 (or fp64), got [1,4,4,3] int8"));
  CHECK(contains(error_of([&] { avg_pool(x, {{2, 2}, {2, 2}, {0, 2, 0, 0}}); }), "is outside the image of 4 x 4"));
  CHECK(contains(error_of([&] { global_avg_pool(x.reshape({16, 3})); }), "[global_avg_pool] x must be images"));
}
