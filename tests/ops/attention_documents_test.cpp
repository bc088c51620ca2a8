// Attention within documents, and dropout on its probabilities: against doubles, alone, on every instruction set.
#include <cmath>
#include <limits>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/ops/attention.h"
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
  int64_t samples, rows, heads, kv_heads, dim;
  std::vector<int64_t> borders;  // where documents begin, of every second sample one later
  double dropout = 0;

  Tensor x(DType dtype) const {
    return Tensor::from_elements(
        {samples, rows, (heads + 2 * kv_heads) * dim}, dtype,
        random_tensor({samples, rows, (heads + 2 * kv_heads) * dim}, dtypes::fp32, 1, -2, 2).elements());
  }
  int64_t start(int64_t n, int64_t i) const {
    int64_t begin = 0;
    for (const int64_t b : borders)
      if (b + n % 2 <= i) begin = b + n % 2;
    return begin;
  }
  AttentionOptions options() const {
    AttentionOptions o{.heads = heads, .kv_heads = kv_heads, .dropout = dropout};
    o.stream = {7, Purpose::kDropout, site_id("a"), 3};
    std::vector<double> starts;
    for (int64_t n = 0; n < samples; ++n)
      for (int64_t i = 0; i < rows; ++i) starts.push_back(static_cast<double>(start(n, i)));
    if (!borders.empty()) o.starts = Tensor::from_elements({samples, rows}, dtypes::int32, starts);
    return o;
  }
};
std::ostream& operator<<(std::ostream& out, const Problem& p) {
  return out << p.samples << " samples, " << p.rows << " rows, " << p.heads << " heads over " << p.kv_heads << ", dim "
             << p.dim << ", " << p.borders.size() << " borders, dropout " << p.dropout;
}

const std::vector<Problem> kProblems = {{2, 5, 2, 1, 3, {2}},
                                        {2, 5, 2, 1, 3, {}, 0.4},
                                        {2, 65, 4, 2, 8, {1, 2, 40, 63}},
                                        {1, 130, 2, 1, 17, {64, 128}},
                                        {1, 200, 3, 1, 16, {65, 66, 190}, 0.2},
                                        {2, 129, 2, 2, 5, {}, 0.5},
                                        {1, 300, 1, 1, 33, {10, 250}, 0.1},
                                        {3, 1, 2, 1, 4, {}, 0.3},
                                        {1, 513, 2, 1, 12, {100, 256, 320}}};

struct Ran {
  Tensor y, g;
};
Ran run(const Problem& p, DType dtype = dtypes::fp32) {
  const DeviceGuard where(device_for(dtype));
  AccumulateSink sink;
  Tape tape;
  const DType edge = dtype == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
  const Var y = attention(tape.leaf(p.x(dtype), &sink, edge), p.options());
  tape.backward({y}, {Tensor::from_elements(y.shape(), edge, random_tensor(y.shape(), dtypes::fp32, 9).elements())});
  return {y.value(), sink.grad()};
}

double distance(const Tensor& got, const Tensor& expected) {
  const std::vector<double> g = got.elements(), e = expected.elements();
  double error = 0, size = 1e-30;
  for (size_t i = 0; i < e.size(); ++i) {
    REQUIRE(std::isfinite(g[i]));
    error = std::max(error, std::fabs(g[i] - e[i]));
    size = std::max(size, std::fabs(e[i]));
  }
  return error / size;
}

bool same(const Ran& a, const Ran& b) { return bits_of(a.y) == bits_of(b.y) && bits_of(a.g) == bits_of(b.g); }

// By matrices: the softmax over the own document, then draws, then values.
std::vector<double> by_hand(const Problem& p) {
  const std::vector<double> x = p.x(dtypes::fp64).elements();
  const AttentionOptions o = p.options();
  const int64_t width = (p.heads + 2 * p.kv_heads) * p.dim;
  const auto at = [&](int64_t n, int64_t i, int64_t head, int64_t c) {
    return x[static_cast<size_t>((n * p.rows + i) * width + head * p.dim + c)];
  };
  std::vector<double> y;
  for (int64_t n = 0; n < p.samples; ++n)
    for (int64_t i = 0; i < p.rows; ++i)
      for (int64_t h = 0; h < p.heads; ++h) {
        const int64_t key_head = p.heads + h / (p.heads / p.kv_heads);
        std::vector<double> w;
        double sum = 0;
        for (int64_t j = p.start(n, i); j <= i; ++j) {
          double s = 0;
          for (int64_t c = 0; c < p.dim; ++c) s += at(n, i, h, c) * at(n, j, key_head, c);
          w.push_back(std::exp(s * static_cast<double>(1.0f / std::sqrt(static_cast<float>(p.dim)))));
          sum += w.back();
        }
        for (int64_t c = 0; c < p.dim; ++c) {
          double total = 0;
          for (size_t k = 0; k < w.size(); ++k) {
            const int64_t j = p.start(n, i) + static_cast<int64_t>(k);
            const auto element = static_cast<uint64_t>(((n * p.heads + h) * p.rows + i) * p.rows + j);
            if (p.dropout > 0 && o.stream.bits16(element) < std::rint(p.dropout * 65536)) continue;
            total += w[k] / sum / (1 - p.dropout) * at(n, j, key_head + p.kv_heads, c);
          }
          y.push_back(total);
        }
      }
  return y;
}

}  // namespace

TEST_CASE("attention in documents and with dropout is that of matrices in double") {
  for (const Problem& p : kProblems) {
    if (p.rows > 130) continue;
    INFO(p);
    const std::vector<double> expected = by_hand(p);
    const std::vector<double> got = run(p, dtypes::fp64).y.elements();
    REQUIRE(got.size() == expected.size());
    double largest = 0;
    for (size_t i = 0; i < got.size(); ++i) largest = std::max(largest, std::fabs(got[i] - expected[i]));
    CHECK(largest < 1e-12);
  }
}

TEST_CASE("attention in documents and with dropout passes the gradient check, and is that of doubles in fp32") {
  for (const Problem& p : kProblems) {
    INFO(p);
    if (p.rows <= 5)
      CHECK(gradcheck([&](const auto& in) { return attention(in[0], p.options()); }, {p.x(dtypes::fp64)}) == "");
    const Ran got = run(p), expected = run(p, dtypes::fp64);
    const double bound = 4 * std::sqrt(static_cast<double>(p.rows + p.dim + 16)) * 0x1p-24 * 16;
    CHECK(distance(got.y, expected.y) <= bound);
    CHECK(distance(got.g, expected.g) <= 4 * bound);
  }
}

TEST_CASE("attention in documents and with dropout has the same bits on every instruction set and for any threads") {
  for (const Problem& p : kProblems) {
    INFO(p);
    const Ran expected = run(p);
    check_everywhere([&] { return same(run(p), expected); });
  }
}

TEST_CASE("values of another document never reach a row or its gradients") {
  Problem p{1, 150, 2, 1, 9, {70, 128}};
  const Tensor x = p.x(dtypes::fp32);
  const Ran all = run(p);
  const AttentionOptions options = p.options();
  const int64_t width = x.cols();
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 70}, {70, 128}, {128, 150}}) {
    const Tensor drawn = random_tensor(x.shape(), dtypes::fp32, 12, -30, 30);
    const Tensor other = x.clone(MemoryKind::kActivation), nan = x.clone(MemoryKind::kActivation);
    for (int64_t i = 0; i < p.rows; ++i) {
      if (i >= begin && i < end) continue;
      std::copy_n(drawn.as<float>() + i * width, width, other.as<float>() + i * width);
      std::fill_n(nan.as<float>() + i * width, width, std::numeric_limits<float>::quiet_NaN());
    }
    AccumulateSink sink;
    Tape tape;
    const Var y = attention(tape.leaf(other, &sink, dtypes::fp32), options);
    tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 9)});
    const int64_t out = y.value().cols();
    const auto rows = [&](const Tensor& t, int64_t cols) {
      return std::vector<float>(t.as<float>() + begin * cols, t.as<float>() + end * cols);
    };
    CHECK((rows(y.value(), out) == rows(all.y, out)));
    CHECK((rows(attention(nan, options).value(), out) == rows(all.y, out)));
    CHECK((rows(sink.grad(), width) == rows(all.g, width)));
  }
}

TEST_CASE("a document from a multiple of 64 on has the bits that it has alone") {
  const Problem p{1, 150, 2, 1, 9, {64, 128}};
  const Tensor x = p.x(dtypes::fp32);
  const Ran all = run(p);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 64}, {64, 128}, {128, 150}}) {
    const auto rows = [begin = begin, end = end](const Tensor& t) {
      return t.reshape({t.shape()[1], t.cols()})
          .row_slice(begin, end)
          .clone(MemoryKind::kActivation)
          .reshape({1, end - begin, t.cols()});
    };
    AccumulateSink sink;
    Tape tape;
    const Var y = attention(tape.leaf(rows(x), &sink, dtypes::fp32), {.heads = 2, .kv_heads = 1});
    tape.backward({y}, {rows(random_tensor(all.y.shape(), dtypes::fp32, 9))});
    CHECK(bits_of(y.value()) == bits_of(rows(all.y)));
    CHECK(bits_of(sink.grad()) == bits_of(rows(all.g)));
  }
}

TEST_CASE("document_starts is the place after the last end before each id") {
  const std::vector<double> numbers{5, 0, 3, 0, 0, 1, 0, 2, 2, 2, 2, 0};
  const Tensor ids = Tensor::from_elements({2, 6}, dtypes::int32, numbers);
  const std::vector<double> expected{0, 0, 2, 2, 4, 5, 0, 1, 1, 1, 1, 1};
  CHECK(document_starts(ids, 0).elements() == expected);
  CHECK(document_starts(Tensor::from_elements({2, 6}, dtypes::int64, ids.elements()), 0).elements() == expected);
  CHECK(document_starts(ids, 9).elements() == std::vector<double>(12, 0));
  CHECK(contains(error_of([&] { document_starts(Tensor::zeros({3}, dtypes::int32), 0); }),
                 "[document_starts] ids must be [n,t] int32 or int64, got [3] int32"));
}

TEST_CASE("attention names unsupported starts and draws") {
  const Problem p{1, 4, 1, 1, 2, {}};
  const Tensor x = p.x(dtypes::fp32);
  const auto error = [&](const Tensor& starts, double dropout = 0) {
    AttentionOptions o{.heads = 1, .kv_heads = 1, .dropout = dropout};
    o.starts = starts;
    return error_of([&] { attention(x, o); });
  };
  const auto starts = [](const std::vector<double>& s) { return Tensor::from_elements({1, 4}, dtypes::int32, s); };
  CHECK(error(starts({0, 1, 1, 3})) == "");
  for (const auto& bad : {std::vector<double>{0, 2, 2, 2}, {0, 1, 0, 0}, {-1, 0, 0, 0}})
    CHECK(contains(error(starts(bad)), "[attention] starts: got one that is negative, past its row or below that of"));
  CHECK(contains(error(Tensor::zeros({4, 1}, dtypes::int32)), "starts must be [1,4] int32, a key for each row of q"));
  CHECK(contains(error({}, 1.0), "dropout: got 1, expected 0 <= dropout < 1"));
}

TEST_CASE("a window is the keys behind a start of its own: forward, backward, in documents, behind earlier rows") {
  for (const Problem& p : kProblems)
    for (const int64_t window : {int64_t{1}, int64_t{3}, int64_t{64}, int64_t{70}, p.rows - 1, p.rows, int64_t{1000}}) {
      if (window < 1) continue;
      INFO(p << ", window " << window);
      const Tensor x = p.x(dtypes::fp32), gy = random_tensor({p.samples, p.rows, p.heads * p.dim}, dtypes::fp32, 9);
      const auto ran = [&](const AttentionOptions& options) {
        AccumulateSink sink;
        Tape tape;
        const Var y = attention(tape.leaf(x, &sink, dtypes::fp32), options);
        tape.backward({y}, {gy});
        return Ran{y.value(), sink.grad()};
      };
      AttentionOptions by_window = p.options(), by_starts = p.options();
      by_window.window = window;
      std::vector<double> starts;
      for (int64_t n = 0; n < p.samples; ++n)
        for (int64_t i = 0; i < p.rows; ++i)
          starts.push_back(static_cast<double>(std::max(p.start(n, i), i - window + 1)));
      by_starts.starts = Tensor::from_elements({p.samples, p.rows}, dtypes::int32, starts);
      CHECK(same(ran(by_window), ran(by_starts)));
    }
  const Tensor q = random_tensor({1, 3, 8}, dtypes::fp32, 1), kv = random_tensor({1, 90, 8}, dtypes::fp32, 2);
  const auto rows = [&](int64_t window, const Tensor& starts) {
    AttentionOptions o{.heads = 2, .kv_heads = 2, .first = 80, .window = window, .starts = starts};
    return bits_of(attention(Var(q), Var(kv), Var(kv), o).value());
  };
  CHECK(rows(5, {}) == rows(0, Tensor::from_elements({1, 3}, dtypes::int32, std::vector<double>{76, 77, 78})));
  CHECK(rows(5, {}) != rows(6, {}));
  CHECK(contains(error_of([&] { rows(-1, {}); }), "window: got -1, expected a number of keys, or 0 for all."));
}

// [cpu]: fp64
TEST_CASE("gradients of attention in a window are those of differences", "[cpu]") {
  const Tensor x = random_tensor({2, 7, 16}, dtypes::fp64, 1, -2, 2);
  const AttentionOptions options{.heads = 2, .kv_heads = 1, .scale = 0.7f, .window = 3};
  CHECK(gradcheck([&](const auto& v) { return attention(v[0], options); }, {x}) == "");
}

// [cpu]: fp64
TEST_CASE("gradients of attention with capped scores are those of differences", "[cpu]") {
  const Tensor x = random_tensor({2, 7, 16}, dtypes::fp64, 1, -4, 4);
  const AttentionOptions options{.heads = 2, .kv_heads = 1, .softcap = 1.5f, .window = 4};
  CHECK(gradcheck([&](const auto& v) { return attention(v[0], options); }, {x}) == "");
}

TEST_CASE("capped scores and their gradients are those of doubles, in every shape") {
  for (const Problem& p : kProblems) {
    INFO(p);
    const auto ran = [&](DType dtype) {
      const DeviceGuard where(device_for(dtype));
      AccumulateSink sink;
      Tape tape;
      AttentionOptions options = p.options();
      options.softcap = 1.25f;
      const DType edge = dtype == dtypes::fp64 ? dtypes::fp64 : dtypes::fp32;
      const Var y = attention(tape.leaf(p.x(dtype), &sink, edge), options);
      tape.backward({y},
                    {Tensor::from_elements(y.shape(), edge, random_tensor(y.shape(), dtypes::fp32, 9).elements())});
      return Ran{y.value(), sink.grad()};
    };
    const Ran got = ran(dtypes::fp32), expected = on_cpu([&] { return ran(dtypes::fp64); });
    CHECK(distance(got.y, expected.y) <= 2e-5);
    CHECK(distance(got.g, expected.g) <= 8e-5);
    if (p.rows > 1) CHECK(distance(run(p).y, expected.y) > 1e-3);
  }
}
