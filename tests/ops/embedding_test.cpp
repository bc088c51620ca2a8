#include <bit>
#include <cstring>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor random_ids(int64_t n, int64_t t, int64_t v, uint64_t seed, DType dtype = dtypes::int32) {
  const RandomStream draws{seed, Purpose::kUser, 1, 0};
  std::vector<double> ids(static_cast<size_t>(n * t));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(draws.bits32(i) % static_cast<uint32_t>(v));
  return Tensor::from_elements({n, t}, dtype, ids);
}

// Where the parameters of element (r, c) lie, by the words of numerics.md section 2.
size_t block_of(const Granularity& g, int64_t cols, int64_t r, int64_t c) {
  if (g.kind == Granularity::kTensor) return 0;
  if (g.kind == Granularity::kToken) return static_cast<size_t>(r);
  if (g.kind == Granularity::kChannel) return static_cast<size_t>(g.axis == 0 ? r : c);
  if (g.axis == 0) return static_cast<size_t>(r / g.group * cols + c);
  return static_cast<size_t>(r * ((cols + g.group - 1) / g.group) + c / g.group);
}

// fp32(s * (q - z)), or fp32(s * q) + m; the bare number without parameters.
float value_at(const Tensor& w, const std::vector<double>& numbers, int64_t r, int64_t c) {
  const float q = static_cast<float>(numbers[static_cast<size_t>(r * w.cols() + c)]);
  if (!w.quant()) return q;
  const QuantParams& p = *w.quant();
  const size_t b = block_of(p.granularity, w.cols(), r, c);
  const float s = p.scale->as<float>()[b];
  if (p.zero) return s * (q - static_cast<float>(p.zero->as<int32_t>()[b]));
  return p.offset ? s * q + p.offset->as<float>()[b] : s * q;
}

// Ones in the bits behind the last code of each row.
void fill_pads(const Tensor& w) {
  for (int64_t r = 0; r < w.rows(); ++r) {
    auto* row = static_cast<uint8_t*>(w.data()) + r * w.stride();
    for (int64_t bit = w.cols() * w.dtype().bits(); bit < w.stride() * 8; ++bit)
      row[bit / 8] = static_cast<uint8_t>(row[bit / 8] | (1u << (bit % 8)));
  }
}

std::string check_forward(const Tensor& ids, const Tensor& w) {
  const Tensor y = embedding(Var(ids), Var(w)).value();
  const int64_t d = w.cols();
  if (y.shape() != Shape{ids.rows(), ids.cols() * d} || y.dtype() != dtypes::fp32) return concat("y is ", y);
  const std::vector<double> numbers = w.elements(), at = ids.elements();
  for (int64_t p = 0; p < ids.numel(); ++p)
    for (int64_t c = 0; c < d; ++c) {
      const float expected = value_at(w, numbers, static_cast<int64_t>(at[static_cast<size_t>(p)]), c);
      const float got = y.as<float>()[p * d + c];
      if (std::bit_cast<uint32_t>(got) != std::bit_cast<uint32_t>(expected))
        return concat("position ", p, " column ", c, ": got ", got, ", expected ", expected, "; ", w.describe());
    }
  return "";
}

// One add at a time, in the order of the text.
std::vector<float> scattered(const Tensor& ids, const Tensor& gy, int64_t v, int64_t d) {
  std::vector<float> g(static_cast<size_t>(v * d), 0.0f);
  const std::vector<double> at = ids.elements(), numbers = gy.elements();
  for (int64_t p = 0; p < ids.numel(); ++p)
    for (int64_t c = 0; c < d; ++c)
      g[static_cast<size_t>(static_cast<int64_t>(at[static_cast<size_t>(p)]) * d + c)] +=
          static_cast<float>(numbers[static_cast<size_t>(p * d + c)]);
  return g;
}

Tensor gradient(const Tensor& ids, const Tensor& w, const Tensor& gy, DType dtype = dtypes::fp32) {
  AccumulateSink sink;
  Tape tape;
  tape.backward({embedding(Var(ids), tape.leaf(w, &sink, dtype))}, {gy});
  return sink.grad();
}

std::vector<double> numbers_of(const std::vector<float>& x) { return {x.begin(), x.end()}; }

struct Sizes {
  int64_t n, t, v, d;
};
const std::vector<Sizes> kSizes = {{1, 1, 1, 1}, {3, 2, 5, 7}, {2, 5, 65, 31},  {7, 1, 9, 64},   {4, 3, 33, 65},
                                   {0, 4, 3, 8}, {5, 0, 3, 8}, {2, 300, 4, 13}, {9, 8, 70, 130}, {1, 3, 2, 128}};

// Takes blocks of rows into one tensor.
class BlockRows final : public GradRows, public GradSink {
 public:
  BlockRows(const Shape& shape, int64_t block) : sum(Tensor::full(shape, dtypes::fp32, 9)), block_(block) {}
  int64_t block_rows() const override { return block_; }
  void begin() override { ++begun; }
  void consume(int64_t first, const Tensor& g) override { sum.row_slice(first, first + g.rows()).copy_from(g); }
  void done() override { ++ended; }
  GradRows* rows(const Shape&, DType) override { return this; }
  GradTarget target(const Shape&, DType) override { throw std::logic_error("rows were offered"); }
  Tensor sum;
  int begun = 0, ended = 0;

 private:
  int64_t block_;
};

}  // namespace

TEST_CASE("embedding gives the values of the rows, for every dtype, granularity and kind of zero point") {
  const std::vector<Granularity> granularities = {
      Granularity::tensor(),   Granularity::channel(0), Granularity::channel(1),  Granularity::token(),
      Granularity::groups(32), Granularity::groups(5),  Granularity::groups(3, 0)};
  uint64_t seed = 1;
  for (const DType dtype : code_dtypes())
    for (const Sizes& s : kSizes) {
      ++seed;
      const Tensor ids = random_ids(s.n, s.t, s.v, seed, seed % 2 ? dtypes::int32 : dtypes::int64);
      CHECK(check_forward(ids, random_tensor({s.v, s.d}, dtype, seed)) == "");
      for (const Granularity& g : granularities)
        for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) {
          const Tensor w = random_codes({s.v, s.d}, dtype, ++seed, g, zero);
          fill_pads(w);
          const std::string wrong = check_forward(ids, w);
          if (!wrong.empty()) FAIL_CHECK(wrong);
        }
    }
  for (const Sizes& s : kSizes)
    CHECK(check_forward(random_ids(s.n, s.t, s.v, 300), random_tensor({s.v, s.d}, dtypes::fp32, 301)) == "");
}

TEST_CASE("embedding reads ids that are a view, and tables that are rows of a larger one") {
  const Tensor ids = random_ids(6, 9, 11, 400), table = random_codes({40, 20}, dtypes::int3, 401, Granularity::token());
  CHECK(check_forward(ids.column_slice(2, 7).row_slice(1, 5), table) == "");
  const Tensor rows = table.row_slice(8, 19);
  CHECK(embedding(Var(ids), Var(rows)).value().elements() ==
        embedding(Var(ids), Var(rows.clone(MemoryKind::kActivation))).value().elements());
}

TEST_CASE("embedding makes no copy of the table") {
  const Tensor w = random_codes({200000, 64}, dtypes::int4, 402, Granularity::channel(0));
  const Tensor ids = random_ids(2, 3, 200000, 403);
  reset_memory_peaks();
  const int64_t before = memory_now().total;
  const Tensor y = embedding(Var(ids), Var(w)).value();
  CHECK(memory_at_peak().total - before <= 4096);
}

TEST_CASE("a row's gradient is the sum over its ids in ascending order, for any number of threads") {
  const int threads = num_threads();
  uint64_t seed = 500;
  std::vector<Sizes> sizes = kSizes;
  sizes.push_back({64, 40, 5000, 33});
  for (const Sizes& s : sizes) {
    ++seed;
    const Tensor ids = random_ids(s.n, s.t, s.v, seed), w = random_codes({s.v, s.d}, dtypes::int8, seed),
                 gy = random_tensor({s.n, s.t * s.d}, dtypes::fp32, seed + 100);
    const std::vector<double> expected = numbers_of(scattered(ids, gy, s.v, s.d));
    for (const int n : {1, 2, 5}) {
      set_num_threads(n);
      const Tensor g = gradient(ids, w, gy);
      if (g.elements() != expected) FAIL_CHECK("sizes " << s.n << ' ' << s.t << ' ' << s.v << ' ' << s.d);
    }
    set_num_threads(threads);
  }
}

TEST_CASE("sums over microbatches of embedding add the whole part: grad = round(float(grad) + g)") {
  const int64_t v = 6, d = 70;
  const Tensor w = random_codes({v, d}, dtypes::int4, 600, Granularity::groups(32));
  const RandomStream draws{5, Purpose::kGradAccumulate, 7, 3};
  for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
    AccumulateSink sum;
    std::vector<float> expected(static_cast<size_t>(v * d), 0.0f);
    for (int microbatch = 0; microbatch < 6; ++microbatch) {
      const bool stochastic = dtype == dtypes::bf16 && microbatch >= 3;
      // Some microbatches leave rows out.
      const Tensor ids = random_ids(5, 3, microbatch % 2 ? 3 : v, 601 + static_cast<uint64_t>(microbatch)),
                   gy = random_tensor({5, 3 * d}, dtypes::fp32, 701 + static_cast<uint64_t>(microbatch));
      sum.set_rounding(stochastic ? &draws : nullptr);
      {
        Tape tape;
        tape.backward({embedding(Var(ids), tape.leaf(w, &sum, dtype))}, {gy});
      }
      const std::vector<float> g = scattered(ids, gy, v, d);
      for (size_t i = 0; i < expected.size(); ++i) {
        const float total = expected[i] + g[i];
        if (dtype == dtypes::fp32)
          expected[i] = total;
        else
          expected[i] =
              bf16_to_float(stochastic ? bf16_from_float_stochastic(total, draws.bits16(i)) : bf16_from_float(total));
      }
      CHECK(sum.grad().elements() == numbers_of(expected));
    }
    CHECK(sum.grad().dtype() == dtype);
  }
}

TEST_CASE("a gradient of embedding in bf16 from a bf16 edge is the fp32 sum of what arrived, rounded once") {
  const int64_t v = 4, d = 9;
  const Tensor ids = random_ids(6, 5, v, 650), w = random_tensor({v, d}, dtypes::fp32, 651),
               gy = random_tensor({6, 5 * d}, dtypes::bf16, 652);
  AccumulateSink sink;
  Tape tape;
  Var y = embedding(Var(ids), tape.leaf(w, &sink, dtypes::bf16));
  y.want_grad(dtypes::bf16);
  tape.backward({y}, {gy});
  std::vector<float> expected = scattered(ids, gy, v, d);
  for (float& x : expected) x = bf16_to_float(bf16_from_float(x));
  CHECK(sink.grad().elements() == numbers_of(expected));
}

// [cpu]: a device gives gradients whole (tests/cuda/autograd_test.cpp)
TEST_CASE("embedding gives its gradient in blocks of rows where they are accepted", "[cpu]") {
  const Tensor ids = random_ids(7, 4, 23, 800), w = random_codes({23, 12}, dtypes::bint1, 801),
               gy = random_tensor({7, 48}, dtypes::fp32, 802);
  for (const int64_t block : {1, 5, 23, 64}) {
    BlockRows rows(w.shape(), block);
    Tape tape;
    tape.backward({embedding(Var(ids), tape.leaf(w, &rows, dtypes::fp32))}, {gy});
    CHECK(bits_of(rows.sum) == bits_of(gradient(ids, w, gy)));
    CHECK((rows.begun == 1 && rows.ended == 1));
  }
}

TEST_CASE("embedding passes the gradient check, also where its table comes from an op") {
  const Tensor ids = random_ids(4, 3, 5, 900);
  for (const Shape& shape : {Shape{5, 1}, Shape{5, 6}}) {
    const Tensor w = random_tensor(shape, dtypes::fp64, 901);
    CHECK(gradcheck([&](const auto& x) { return embedding(Var(here(ids)), x[0]); }, {w}) == "");
    CHECK(gradcheck([&](const auto& x) { return embedding(Var(here(ids)), mul(x[0], x[0])); }, {w}) == "");
    CHECK(gradcheck(
              [&](const auto& x) {
                return add(embedding(Var(here(ids)), x[0]), mul(embedding(Var(here(ids)), x[0]), x[1]));
              },
              {w, random_tensor({4, 3 * shape.cols()}, dtypes::fp64, 902)}) == "");
  }
}

TEST_CASE("ids that name no row are an error with their place, and operands that do not fit name both sides") {
  const Tensor w = random_codes({5, 3}, dtypes::int4, 950);
  const auto with = [&](int64_t n, int64_t t, const std::vector<double>& ids, DType dtype = dtypes::int32) {
    return error_of([&] { embedding(Var(Tensor::from_elements({n, t}, dtype, ids)), Var(w)); });
  };
  CHECK(with(2, 3, {0, 1, 2, 3, 4, 5}) ==
        "[embedding] id at row 1, column 2: got 5, expected 0 .. 4, the rows of w [5,3] int4");
  CHECK(with(3, 2, {0, 1, -1, 9, 0, 0}, dtypes::int64) ==
        "[embedding] id at row 1, column 0: got -1, expected 0 .. 4, the rows of w [5,3] int4");
  CHECK(with(1, 2, {0, 1}, dtypes::fp32) ==
        "[embedding] ids must be int32 or int64, got [1,2] fp32. Pass indices of the table's rows, not values.");
  const Var ids = Tensor::from_elements({1, 2}, dtypes::int32, std::vector<double>{0, 1});
  CHECK(contains(error_of([&] { embedding(Tensor::zeros({4}, dtypes::int32), Var(w)); }), "matrix [n,t]"));
  CHECK(contains(error_of([&] { embedding(ids, Tensor::zeros({4}, dtypes::fp32)); }), "w must be a matrix [v,d], got"));
  CHECK(contains(error_of([&] {
                   embedding(ids, Tensor::zeros({4, 2}, dtypes::int32));
                 }),
                 "w must be fp32, fp64 or codes of at most 8 bits in layout canonical, got [4,2] int32"));
  CHECK(contains(error_of([&] { embedding(Var(), Var(w)); }), "[embedding] input 0 is undefined"));
  AccumulateSink sink;
  Tape tape;
  const Var leaf = tape.leaf(ids.value(), &sink, dtypes::fp32);
  CHECK(contains(error_of([&] { embedding(leaf, Var(w)); }), "[embedding] ids [1,2] int32 require a gradient"));
}
