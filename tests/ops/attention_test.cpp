// Attention and rotary positions against doubles, rows alone, threads, instruction sets, and what they refuse.
#include "bitgrad/ops/attention.h"

#include <cmath>
#include <numbers>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/everywhere.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Problem {
  int64_t samples, rows, heads, kv_heads, dim, first = 0, later = 0;  // later: keys after the last row

  AttentionOptions options() const { return {.heads = heads, .kv_heads = kv_heads, .first = first}; }
  Tensor q(DType dtype) const { return random_tensor({samples, rows, heads * dim}, dtype, 1, -2, 2); }
  Tensor k(DType dtype) const {
    return random_tensor({samples, first + rows + later, kv_heads * dim}, dtype, 2, -2, 2);
  }
  Tensor v(DType dtype) const { return random_tensor({samples, first + rows + later, kv_heads * dim}, dtype, 3); }
};
std::ostream& operator<<(std::ostream& out, const Problem& p) {
  return out << p.samples << " samples, " << p.rows << " rows from " << p.first << " on, " << p.heads << " heads over "
             << p.kv_heads << ", dim " << p.dim;
}

// At and past the edges of blocks of keys, tiles of rows and vectors.
const std::vector<Problem> kProblems = {{1, 1, 1, 1, 1},      {1, 2, 1, 1, 3},        {2, 63, 2, 1, 16},
                                        {1, 64, 2, 2, 17},    {2, 65, 4, 2, 8},       {1, 130, 3, 1, 33},
                                        {3, 5, 6, 2, 64},     {1, 128, 1, 1, 15},     {1, 129, 2, 1, 32},
                                        {1, 513, 1, 1, 24},   {2, 3, 2, 1, 16, 62},   {1, 70, 2, 1, 16, 61},
                                        {1, 1, 4, 2, 20, 64}, {1, 4, 1, 1, 16, 0, 7}, {2, 66, 2, 1, 5, 1, 70},
                                        {0, 4, 2, 1, 8},      {1, 300, 2, 2, 48},     {1, 200, 1, 1, 100, 63}};

Tensor as(const Tensor& x, DType dtype) { return Tensor::from_elements(x.shape(), dtype, x.elements()); }

struct Ran {
  Tensor y;
  std::vector<Tensor> g;
};
Ran run(const std::vector<Tensor>& in, const AttentionOptions& options) {
  std::vector<AccumulateSink> sinks(in.size());
  Tape tape;
  std::vector<Var> leaves;
  const DType edge = in[0].dtype() == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
  for (size_t i = 0; i < in.size(); ++i) leaves.push_back(tape.leaf(in[i], &sinks[i], edge));
  const Var y = attention(leaves[0], leaves[1], leaves[2], options);
  tape.backward({y}, {as(random_tensor(y.shape(), dtypes::fp32, 9), edge)});
  Ran out{y.value(), {}};
  for (const AccumulateSink& s : sinks) out.g.push_back(s.grad());
  return out;
}
Ran run(const Problem& p, DType dtype = dtypes::fp32) {
  const DeviceGuard where(device_for(dtype));
  return run({p.q(dtype), p.k(dtype), p.v(dtype)}, p.options());
}

// Largest distance, relative to the largest of the numbers expected.
double distance(const Tensor& got, const Tensor& expected) {
  const std::vector<double> g = got.elements(), e = expected.elements();
  REQUIRE(g.size() == e.size());
  double error = 0, size = 1e-30;
  for (size_t i = 0; i < e.size(); ++i) {
    REQUIRE(std::isfinite(g[i]));
    error = std::max(error, std::fabs(g[i] - e[i]));
    size = std::max(size, std::fabs(e[i]));
  }
  return error / size;
}

bool same_bits(const Ran& a, const Ran& b) {
  bool same = bits_of(a.y) == bits_of(b.y);
  for (size_t i = 0; i < a.g.size(); ++i) same = same && bits_of(a.g[i]) == bits_of(b.g[i]);
  return same;
}

}  // namespace

TEST_CASE("attention and its gradients are those of doubles, in every shape") {
  for (const Problem& p : kProblems) {
    INFO(p);
    const Ran got = run(p), expected = on_cpu([&] {
                              return run({as(p.q(dtypes::fp32), dtypes::fp64), as(p.k(dtypes::fp32), dtypes::fp64),
                                          as(p.v(dtypes::fp32), dtypes::fp64)},
                                         p.options());
                            });
    const double steps = static_cast<double>(p.first + p.rows + p.dim + 16);
    const double bound = 4 * std::sqrt(steps) * 0x1p-24 * 16;
    CHECK(distance(got.y, expected.y) <= bound);
    for (size_t i = 0; i < 3; ++i) CHECK(distance(got.g[i], expected.g[i]) <= 4 * bound);
  }
}

// [cpu]: fp64
TEST_CASE("the double reference is softmax(q k) v by matrices", "[cpu]") {
  const Problem p{1, 5, 4, 2, 3, 2, 1};
  const Tensor q = p.q(dtypes::fp64), k = p.k(dtypes::fp64), v = p.v(dtypes::fp64);
  const Tensor y = attention(q, k, v, p.options()).value();
  const auto at = [](const Tensor& t, int64_t i, int64_t c) { return t.as<double>()[i * t.cols() + c]; };
  for (int64_t h = 0; h < p.heads; ++h)
    for (int64_t i = 0; i < p.rows; ++i) {
      std::vector<double> w;
      double sum = 0;
      for (int64_t j = 0; j <= p.first + i; ++j) {
        double s = 0;
        for (int64_t c = 0; c < p.dim; ++c) s += at(q, i, h * p.dim + c) * at(k, j, h / 2 * p.dim + c);
        w.push_back(std::exp(s * static_cast<double>(1.0f / std::sqrt(3.0f))));
        sum += w.back();
      }
      for (int64_t c = 0; c < p.dim; ++c) {
        double expected = 0;
        for (size_t j = 0; j < w.size(); ++j)
          expected += w[j] / sum * at(v, static_cast<int64_t>(j), h / 2 * p.dim + c);
        CHECK(at(y, i, h * p.dim + c) == Approx(expected).epsilon(1e-12));
      }
    }
}

TEST_CASE("a scale of its own is the factor of q k, forward and backward, in fp32 and in double") {
  // The default scale with q times c, by other code than that of `scale`; c is a power of two, so that fp32 has the
  // same bits.
  for (const Problem& p : {Problem{2, 5, 4, 2, 3, 2, 1}, Problem{1, 65, 2, 1, 16}, Problem{1, 1, 2, 1, 8, 70}})
    for (const DType dtype : {dtypes::fp32, dtypes::fp64})
      for (const double c : {0.25, 4.0}) {
        INFO(p << ", " << dtype << ", times " << c);
        if (dtype == dtypes::fp64 && runs_on_device()) continue;
        std::vector<double> numbers = p.q(dtype).elements();
        for (double& x : numbers) x *= c;
        const Tensor q = p.q(dtype), k = p.k(dtype), v = p.v(dtype);
        AttentionOptions options = p.options();
        const Ran expected = run({Tensor::from_elements(q.shape(), dtype, numbers), k, v}, options);
        options.scale = static_cast<float>(c) * (1.0f / std::sqrt(static_cast<float>(p.dim)));
        const Ran got = run({q, k, v}, options);
        CHECK(bits_of(got.y) == bits_of(expected.y));
        CHECK(bits_of(got.y) != bits_of(run({q, k, v}, p.options()).y));
        std::vector<double> of_q = expected.g[0].elements();
        for (double& g : of_q) g *= c;
        CHECK(got.g[0].elements() == of_q);
        CHECK(bits_of(got.g[1]) == bits_of(expected.g[1]));
        CHECK(bits_of(got.g[2]) == bits_of(expected.g[2]));
      }
}

TEST_CASE("attention and rope pass the gradient check") {
  AttentionOptions scaled{.heads = 2, .kv_heads = 1};
  scaled.scale = 0.7f;
  const Problem small{1, 4, 2, 1, 3};
  CHECK(gradcheck([&](const auto& in) { return attention(in[0], in[1], in[2], scaled); },
                  {small.q(dtypes::fp64), small.k(dtypes::fp64), small.v(dtypes::fp64)}) == "");
  for (const Problem& p : {Problem{2, 3, 2, 1, 4}, Problem{1, 4, 2, 2, 3, 2, 1}, Problem{1, 66, 1, 1, 2}}) {
    if (p.rows > 60) continue;
    const auto f = [&](const auto& in) { return attention(in[0], in[1], in[2], p.options()); };
    CHECK(gradcheck(f, {p.q(dtypes::fp64), p.k(dtypes::fp64), p.v(dtypes::fp64)}) == "");
  }
  for (const bool interleaved : {false, true}) {
    const RopeOptions options{.dim = 4, .interleaved = interleaved};
    const Tensor table = rope_table(9, options);
    CHECK(gradcheck([&](const auto& in) { return rope(in[0], table, options, 3); },
                    {random_tensor({2, 3, 8}, dtypes::fp64, 1)}) == "");
  }
}

TEST_CASE("one row of q has the bits that it has among others, and later keys are not looked at") {
  for (const Problem& p : kProblems) {
    if (p.samples != 1) continue;
    INFO(p);
    const Tensor q = p.q(dtypes::fp32), k = p.k(dtypes::fp32), v = p.v(dtypes::fp32);
    const Tensor y = attention(q, k, v, p.options()).value();
    const int64_t row = p.heads * p.dim;
    const auto rows_of = [](const Tensor& t, int64_t begin, int64_t end) {
      const Tensor flat = t.reshape({t.shape()[1], t.cols()});
      return flat.row_slice(begin, end).clone(MemoryKind::kActivation).reshape({1, end - begin, t.cols()});
    };
    for (const int64_t i : {int64_t{0}, p.rows / 2, p.rows - 1})
      for (const int64_t keys : {p.first + i + 1, p.first + p.rows}) {
        AttentionOptions options = p.options();
        options.first += i;
        const Tensor one = attention(rows_of(q, i, i + 1), rows_of(k, 0, keys), rows_of(v, 0, keys), options).value();
        CHECK((bits_of(one) == bits_of(rows_of(y, i, i + 1))));
      }
    if (p.later == 0) continue;
    for (const Tensor& t : {k, v})
      std::fill_n(t.as<float>() + (p.first + p.rows) * t.cols(), p.later * t.cols(),
                  std::numeric_limits<float>::quiet_NaN());
    CHECK((bits_of(attention(q, k, v, p.options()).value()) == bits_of(y)));
    static_cast<void>(row);
  }
}

TEST_CASE("attention has the same bits on every instruction set and for any number of threads") {
  for (const Problem& p : kProblems) {
    INFO(p);
    const Ran expected = run(p);
    check_everywhere([&] { return same_bits(run(p), expected); });
  }
}

TEST_CASE("attention of q, k and v side by side has the bits of three tensors, and so have its gradients") {
  for (const Problem& p : kProblems) {
    if (p.first != 0 || p.later != 0) continue;
    INFO(p);
    for (const DType dtype : {dtypes::fp32, dtypes::fp64}) {
      const DeviceGuard where(device_for(dtype));
      const Ran apart = run(p, dtype);
      const Tensor x = concatenate({Var(p.q(dtype)), Var(p.k(dtype)), Var(p.v(dtype))}, -1).value();
      Tape tape;
      AccumulateSink sink;
      const Var y = attention(tape.leaf(x, &sink, dtype), p.options());
      tape.backward({y}, {as(random_tensor(y.shape(), dtypes::fp32, 9), dtype)});
      CHECK((bits_of(y.value()) == bits_of(apart.y)));
      const Tensor g = concatenate({Var(apart.g[0]), Var(apart.g[1]), Var(apart.g[2])}, -1).value();
      CHECK((bits_of(sink.grad()) == bits_of(g)));
    }
  }
}

namespace {

// The rows of k as a cache keeps them: blocks of 64 keys, each transposed; columns without a row hold `rest`.
Tensor in_key_blocks(const Tensor& k, float rest) {
  const int64_t samples = k.shape()[0], keys = k.shape()[1], features = k.cols(), blocks = (keys + 63) / 64;
  Tensor out = Tensor::empty({samples, blocks, features, 64}, dtypes::fp32);
  for (int64_t n = 0; n < samples; ++n)
    for (int64_t key = 0; key < blocks * 64; ++key)
      for (int64_t c = 0; c < features; ++c)
        out.as<float>()[((n * blocks + key / 64) * features + c) * 64 + key % 64] =
            key < keys ? k.as<float>()[(n * keys + key) * features + c] : rest;
  return out;
}

// The rows of v as a cache keeps them: blocks of 64, head by head.
Tensor in_value_blocks(const Tensor& v, int64_t heads, float rest) {
  const int64_t samples = v.shape()[0], keys = v.shape()[1], blocks = (keys + 63) / 64, dim = v.cols() / heads;
  Tensor out = Tensor::empty({samples, blocks, heads, 64, dim}, dtypes::fp32);
  for (int64_t n = 0; n < samples; ++n)
    for (int64_t key = 0; key < blocks * 64; ++key)
      for (int64_t c = 0; c < v.cols(); ++c)
        out.as<float>()[(((n * blocks + key / 64) * heads + c / dim) * 64 + key % 64) * dim + c % dim] =
            key < keys ? v.as<float>()[(n * keys + key) * v.cols() + c] : rest;
  return out;
}

}  // namespace

TEST_CASE("attention reads keys and values in blocks with the same result as in rows", "[cpu]") {
  for (const Problem& p : kProblems) {
    INFO(p);
    const Tensor q = p.q(dtypes::fp32), k = p.k(dtypes::fp32), v = p.v(dtypes::fp32);
    AttentionOptions windowed = p.options(), capped = p.options();
    windowed.window = 5;
    capped.softcap = 0.7f;
    for (const AttentionOptions& options : {p.options(), windowed, capped}) {
      const std::vector<double> expected = attention(Var(q), Var(k), Var(v), options).value().elements();
      for (const float rest : {0.0f, 3e38f}) {
        const Var keys(in_key_blocks(k, rest)), values(in_value_blocks(v, options.kv_heads, rest));
        CHECK(attention(Var(q), keys, values, options).value().elements() == expected);
      }
      const Tensor k16 = as(k, dtypes::bf16), v16 = as(v, dtypes::bf16);
      const Tensor k_wide = as(k16, dtypes::fp32), v_wide = as(v16, dtypes::fp32);
      const Var keys(as(in_key_blocks(k_wide, 3e38f), dtypes::bf16));
      const Var values(as(in_value_blocks(v_wide, options.kv_heads, 3e38f), dtypes::bf16));
      CHECK(attention(Var(q), keys, values, options).value().elements() ==
            attention(Var(q), Var(k_wide), Var(v_wide), options).value().elements());
    }
  }
  const Problem p{2, 3, 4, 2, 8, 5};
  const Tensor q = p.q(dtypes::fp32), k = in_key_blocks(p.k(dtypes::fp32), 0),
               v = in_value_blocks(p.v(dtypes::fp32), 2, 0);
  const auto error = [&](const Tensor& x, const Tensor& keys, const Tensor& values) {
    return error_of([&] { attention(Var(x), Var(keys), Var(values), p.options()); });
  };
  CHECK(error(q, k, v).empty());
  const std::string as_q = " fp32 or bf16 on the CPU, k and v alike, with q of fp32, got ";
  const std::string wanted = "k in blocks of 64 keys must be [2,1,16,64]" + as_q;
  const std::string wanted_v = "v in blocks of 64 keys must be [2,1,2,64,8]" + as_q;
  CHECK(contains(error(q, Tensor::zeros({2, 1, 16, 64}, dtypes::bf16), v), wanted_v));
  CHECK(contains(error(q, Tensor::zeros({2, 1, 16, 64}, dtypes::int32), v), wanted));
  CHECK(contains(error(q, Tensor::zeros({2, 1, 16, 32}, dtypes::fp32), v), wanted));
  CHECK(contains(error(q, k, p.v(dtypes::fp32)), wanted_v));
  CHECK(contains(error(q, k, Tensor::zeros({2, 2, 2, 64, 8}, dtypes::fp32)), wanted_v));
  CHECK(contains(error(q, p.k(dtypes::fp32), v), "v must be [2,s,2*8] fp32"));
  CHECK(contains(error(p.q(dtypes::fp64), k, v), "k in blocks of 64 keys must be"));
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(q, &sink, dtypes::fp32);
  CHECK(contains(error_of([&] { attention(x, Var(k), Var(v), p.options()); }),
                 "k in blocks of 64 keys has no gradient: got [2,1,16,64] fp32. Pass rows, or run without a tape."));
}

TEST_CASE("bf16 attention is that of fp32, rounded once, from what is kept") {
  const Problem p{2, 65, 4, 2, 8};
  const auto wide = [](const Tensor& x) { return as(x, dtypes::fp32); };
  const Ran narrow = run(p, dtypes::bf16);
  const Ran full = run({wide(p.q(dtypes::bf16)), wide(p.k(dtypes::bf16)), wide(p.v(dtypes::bf16))}, p.options());
  CHECK(narrow.y.dtype() == dtypes::bf16);
  CHECK((bits_of(narrow.y) == bits_of(as(full.y, dtypes::bf16))));
  for (size_t i = 0; i < 3; ++i) CHECK(distance(narrow.g[i], full.g[i]) < 0.01);
}

TEST_CASE("gradients that nobody wants are not made") {
  const Problem p{1, 70, 2, 1, 8};
  const Ran all = run(p);
  const std::vector<Tensor> in{p.q(dtypes::fp32), p.k(dtypes::fp32), p.v(dtypes::fp32)};
  for (size_t wanted = 0; wanted < 3; ++wanted) {
    Tape tape;
    AccumulateSink sink;
    std::vector<Var> vars(in.begin(), in.end());
    vars[wanted] = tape.leaf(in[wanted], &sink, dtypes::fp32);
    const Var y = attention(vars[0], vars[1], vars[2], p.options());
    tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 9)});
    CHECK((bits_of(sink.grad()) == bits_of(all.g[wanted])));
  }
}

TEST_CASE("scores of any size leave finite rows, and a NaN stays in the rows that see it") {
  const Problem p{1, 80, 1, 1, 4};
  Tensor q = p.q(dtypes::fp32), k = p.k(dtypes::fp32);
  const Tensor v = p.v(dtypes::fp32);
  for (int64_t i = 0; i < q.numel(); ++i) q.as<float>()[i] *= 1e4f;
  for (int64_t i = 0; i < k.numel(); ++i) k.as<float>()[i] *= 1e4f;
  for (const double x : attention(q, k, v, p.options()).value().elements()) CHECK(std::isfinite(x));
  k.as<float>()[70 * 4] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> y = attention(q, k, v, p.options()).value().elements();
  for (size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i / 4 >= 70));
}

TEST_CASE("rope turns pairs by angles of the position") {
  for (const int64_t dim : {6, 40})
    for (const bool interleaved : {false, true})
      for (const int64_t first : {0, 5}) {
        const RopeOptions options{.dim = dim, .base = 100, .interleaved = interleaved};
        const int64_t half = dim / 2, cols = 2 * dim;
        const Tensor x = random_tensor({2, 3, cols}, dtypes::fp32, 4), table = rope_table(8, options);
        const Tensor y = rope(x, table, options, first).value();
        for (int64_t row = 0; row < 6; ++row)
          for (int64_t i = 0; i < dim; ++i) {
            const int64_t pair = i % half;
            const double angle = static_cast<double>(first + row % 3) *
                                 std::pow(100.0, -2.0 * static_cast<double>(pair) / static_cast<double>(dim));
            const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
            const float* const in = x.as<float>() + row * cols + i / half * dim;
            const float* const out = y.as<float>() + row * cols + i / half * dim;
            const int64_t a = interleaved ? 2 * pair : pair, b = interleaved ? a + 1 : pair + half;
            CHECK(out[a] == in[a] * cosine - in[b] * sine);
            CHECK(out[b] == in[b] * cosine + in[a] * sine);
          }
        const Tensor part = rope(x, table, options, first, 1).value();
        for (int64_t i = 0; i < x.numel(); ++i)
          CHECK(part.as<float>()[i] == (i % cols < dim ? y.as<float>()[i] : x.as<float>()[i]));
      }
}

TEST_CASE("the gradient of rope turns back, bit for bit") {
  for (const bool interleaved : {false, true}) {
    const RopeOptions options{.dim = 40, .base = 100, .interleaved = interleaved};
    const Tensor x = random_tensor({1, 3, 120}, dtypes::fp32, 4), table = rope_table(8, options);
    Tensor mirrored = rope_table(8, options);  // sines of the opposite sign
    for (int64_t i = 0; i < mirrored.numel(); ++i)
      if (i % 40 >= 20) mirrored.as<float>()[i] = -mirrored.as<float>()[i];
    AccumulateSink sink;
    Tape tape;
    const Var y = rope(tape.leaf(Tensor::zeros(x.shape(), dtypes::fp32), &sink, dtypes::fp32), table, options, 2, 2);
    tape.backward({y}, {x});
    CHECK((bits_of(sink.grad()) == bits_of(rope(Var(x), mirrored, options, 2, 2).value())));
  }
}

TEST_CASE("the scaled frequencies of Llama 3.1 leave short waves alone and divide long ones") {
  const RopeOptions plain{.dim = 128, .base = 500000}, scaled{.dim = 128, .base = 500000, .factor = 8};
  const Tensor a = rope_table(2, plain), b = rope_table(2, scaled);
  const auto angle = [](const Tensor& t, int64_t i) { return std::asin(static_cast<double>(t.at({1, 64 + i}))); };
  CHECK(angle(b, 1) == angle(a, 1));
  CHECK(angle(b, 63) == Approx(angle(a, 63) / 8).epsilon(1e-5));
  const double f = std::pow(500000.0, -2.0 * 31 / 128), wave = 2 * std::numbers::pi / f;
  const double smooth = (8192 / wave - 1) / 3;
  REQUIRE((smooth > 0 && smooth < 1));
  CHECK(angle(b, 31) == Approx((1 - smooth) * f / 8 + smooth * f).epsilon(1e-5));
}

TEST_CASE("attention and rope name unsupported arguments") {
  const auto tensor = [](const Shape& s, DType d = dtypes::fp32) { return random_tensor(s, d, 1); };
  const auto error = [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
    return error_of([&] { attention(q, k, v, o); });
  };
  const Tensor q = tensor({2, 3, 8}), k = tensor({2, 3, 4});
  CHECK(contains(error(q, k, k, {.heads = 3, .kv_heads = 2}),
                 "[attention] heads: got 3 of q and 2 of k and v, expected a multiple."));
  CHECK(contains(error(q, k, k, {.heads = 3, .kv_heads = 1}), "q must be [n,t,3*d], got [2,3,8] fp32"));
  CHECK(contains(error(q, q, k, {.heads = 2, .kv_heads = 1}),
                 "k must be [2,s,1*4] fp32, as q [2,3,8] fp32, got [2,3,8] fp32"));
  CHECK(contains(error(q, k, tensor({2, 4, 4}), {.heads = 2, .kv_heads = 1}), "v must be [2,s,1*4] fp32, as k and q"));
  CHECK(contains(error(q, tensor({2, 3, 4}, dtypes::bf16), k, {.heads = 2, .kv_heads = 1}), "k must be"));
  CHECK(contains(error(q, k, k, {.heads = 2, .kv_heads = 1, .first = 1}),
                 "rows of q at positions 1 to 3: got keys of 3 positions"));
  CHECK(contains(error(q, k, k, {.heads = 2, .kv_heads = 1, .scale = -1}), "scale: got -1"));
  CHECK(contains(error(tensor({6, 8}), k, k, {.heads = 2, .kv_heads = 1}), "q must be [n,t,2*d], got [6,8] fp32"));
  CHECK(contains(error_of([&] { attention(q, {.heads = 3, .kv_heads = 1}); }),
                 "x must be [n,t,(3 + 2 * 1)*d], q, k and v side by side, got [2,3,8] fp32"));
  CHECK(contains(error_of([&] { attention(q, {.heads = 2, .kv_heads = 1, .first = 1}); }), "first: got 1, expected 0"));
  const RopeOptions four{.dim = 4};
  const Tensor table = rope_table(3, four);
  CHECK(contains(error_of([&] { rope(q, table, four, 1); }),
                 "[rope] rows at positions 1 to 3: got a table of 3 positions"));
  CHECK(contains(error_of([&] { rope(tensor({2, 3, 6}), table, four); }), "x must be [n,t,heads*4], got [2,3,6] fp32"));
  CHECK(contains(error_of([&] { rope(q, rope_table(3, {.dim = 2}), four); }), "table must be [positions,4] fp32"));
  CHECK(contains(error_of([&] { rope(q, table, four, 0, 3); }), "rotated: got 3 heads of 2."));
  CHECK(contains(error_of([] { rope_table(3, {.dim = 3}); }), "dim: got 3, expected an even number"));
  CHECK(contains(error_of([] { rope_table(0, {.dim = 2}); }), "positions: got 0"));
  CHECK(contains(error_of([] { rope_table(1, {.dim = 2, .base = 1}); }), "base: got 1"));
  CHECK(contains(error_of([] { rope_table(1, {.dim = 2, .factor = 2, .low = 4}); }), "expected 0 < low < high"));
}
