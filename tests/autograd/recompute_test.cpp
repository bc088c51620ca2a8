// Blocks that run again in backward: the bits of the same ops on one tape, what they keep, and who gets rows.
#include "bitgrad/autograd/tape.h"

#include "bitgrad/autograd/op.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"
#include "support/numbers.h"
#include "support/strict_bits.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Counts {
  int runs = 0, again = 0;
};

// Takes rows where it is asked, and adds them up.
class RowSink final : public GradSink {
 public:
  explicit RowSink(const Shape& shape) : sum(Tensor::zeros(shape, dtypes::fp32)), rows_(*this) {}
  GradRows* rows(const Shape&, DType) override { return &rows_; }
  GradTarget target(const Shape&, DType) override { return {sum, true, nullptr}; }
  Tensor sum;
  int in_rows = 0;

 private:
  struct Rows final : GradRows {
    explicit Rows(RowSink& s) : sink(s) {}
    int64_t block_rows() const override { return 16; }
    void begin() override {}
    void consume(int64_t begin, const Tensor& g) override {
      for (int64_t i = 0; i < g.numel(); ++i) sink.sum.as<float>()[begin * g.cols() + i] += g.as<float>()[i];
    }
    void done() override { ++sink.in_rows; }
    RowSink& sink;
  };
  Rows rows_;
};

const Shape kX{6, 8}, kW{8, 8};

// Reads x and w twice; w3 is read once.
Var block(const Var& x, const Var& w, const Var& w3) {
  const Var h = gelu(linear(x, w));
  return add(linear(mul(h, x), w3), linear(h, w));
}

struct Gradients {
  std::vector<Tensor> bits;
  int in_rows = 0;
  int64_t nodes = 0;
};

enum class How { kPlain, kRecomputed, kNested };

Gradients run(How how, DType grad, Counts* counts = nullptr, bool tied = false) {
  const StrictBits strict;
  AccumulateSink x_sink, w_sink;
  RowSink rows(kW);
  Tape tape;
  const Tensor w = random_tensor(kW, dtypes::fp32, 2), w3 = random_tensor(kW, dtypes::fp32, 3);
  const auto body = [&](const Var& in) {
    Tape* const now = Tape::current();
    return block(in, now->leaf(w, &w_sink, dtypes::fp32), now->leaf(w3, &rows, dtypes::fp32));
  };
  const RecomputedBlock once = [&](const Var& in, bool again) {
    if (counts != nullptr) ++(again ? counts->again : counts->runs);
    return body(in);
  };
  Var x = gelu(tape.leaf(random_tensor(kX, dtypes::fp32, 1), &x_sink, dtypes::fp32));
  x.want_grad(grad);
  Var y = how == How::kPlain        ? body(x)
          : how == How::kRecomputed ? recompute(x, once)
                                    : recompute(x, [&](const Var& in, bool) { return gelu(recompute(in, once)); });
  if (tied) y = linear(y, tape.leaf(w3, &rows, dtypes::fp32));
  y = add(y, cast(x, dtypes::fp32));  // x has a reader outside too
  Gradients out;
  out.nodes = tape.nodes();
  tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 4)});
  out.bits = {y.value(), x_sink.grad(), w_sink.grad(), rows.sum};
  out.in_rows = rows.in_rows;
  return out;
}

bool same(const Gradients& a, const Gradients& b) {
  bool equal = a.bits.size() == b.bits.size();
  for (size_t i = 0; equal && i < a.bits.size(); ++i) equal = bits_of(a.bits[i]) == bits_of(b.bits[i]);
  return equal;
}

}  // namespace

TEST_CASE("a block that runs again gives the bits of its ops on the tape, and leaves one node there") {
  for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
    Counts counts;
    const Gradients plain = run(How::kPlain, grad), again = run(How::kRecomputed, grad, &counts);
    CHECK(same(plain, again));
    CHECK(counts.runs == 1);
    CHECK(counts.again == 1);
    CHECK(plain.nodes - again.nodes == 5);        // six ops
    const int blocks = runs_on_device() ? 0 : 1;  // a device sums the gradient of a whole weight at once
    CHECK(plain.in_rows == blocks);
    CHECK(again.in_rows == blocks);
  }
}

TEST_CASE("a leaf that is read in a block and outside gives its gradient as a whole, in the same order") {
  const Gradients plain = run(How::kPlain, dtypes::fp32, nullptr, true),
                  again = run(How::kRecomputed, dtypes::fp32, nullptr, true);
  CHECK(same(plain, again));
  CHECK(plain.in_rows == 0);
  CHECK(again.in_rows == 0);
}

// [cpu]: a device gives gradients whole (tests/cuda/autograd_test.cpp)
TEST_CASE("blocks nest, and leaves inside still give rows", "[cpu]") {
  Counts counts;
  const Gradients nested = run(How::kNested, dtypes::fp32, &counts);
  CHECK(counts.runs == 2);  // the outer block runs twice
  CHECK(counts.again == 1);
  CHECK(nested.in_rows == 1);
  // gelu on the tape in place of the outer block.
  const Gradients tied = run(How::kNested, dtypes::fp32, nullptr, true);
  CHECK(tied.in_rows == 0);
}

TEST_CASE("without a tape a block just runs, its input passes through, and constants leave nothing") {
  const Tensor x = random_tensor(kX, dtypes::fp32, 1);
  int runs = 0;
  CHECK(bits_of(recompute(x, [&](const Var& in, bool) {
                  ++runs;
                  return gelu(in);
                }).value()) == bits_of(gelu(Var(x)).value()));
  CHECK(runs == 1);
  AccumulateSink sink;
  Tape tape;
  const Var leaf = tape.leaf(x, &sink, dtypes::fp32);
  const Var same = recompute(leaf, [](const Var& in, bool) { return in; });
  CHECK(same.edge() == leaf.edge());
  const Var constant = recompute(x, [](const Var& in, bool) { return gelu(in); });
  CHECK_FALSE(constant.tracked());
  CHECK(tape.nodes() == 0);
}

TEST_CASE("a block of a constant trains the leaves that it reads") {
  for (const bool recomputed : {false, true}) {
    AccumulateSink sink;
    Tape tape;
    const Tensor x = random_tensor(kX, dtypes::fp32, 1), w = random_tensor(kW, dtypes::fp32, 2);
    const auto body = [&](const Var& in, bool) { return linear(in, Tape::current()->leaf(w, &sink, dtypes::fp32)); };
    const Var y = recomputed ? recompute(x, body) : body(Var(x), false);
    tape.backward({y}, {random_tensor(y.shape(), dtypes::fp32, 4)});
    AccumulateSink other;
    Tape second;
    const Var z = linear(Var(x), second.leaf(w, &other, dtypes::fp32));
    second.backward({z}, {random_tensor(z.shape(), dtypes::fp32, 4)});
    CHECK(bits_of(sink.grad()) == bits_of(other.grad()));
  }
}

TEST_CASE("a block keeps its input and nothing else") {
  const auto saved_bytes = [](bool recomputed) {
    AccumulateSink sink;
    Tape tape;
    std::vector<Tensor> kept;
    tape.set_saved_hook([&](const Tensor& t) {
      kept.push_back(t);
      return t;
    });
    const Var x = tape.leaf(random_tensor(kX, dtypes::fp32, 1), &sink, dtypes::fp32);
    const auto body = [](const Var& in, bool) { return gelu(gelu(gelu(in))); };
    const Var y = recomputed ? recompute(x, body) : body(x, false);
    return kept.size();
  };
  CHECK(saved_bytes(true) == 1);
  CHECK(saved_bytes(false) == 3);
}

TEST_CASE("a block that gives something else when it runs again is an error") {
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(random_tensor(kX, dtypes::fp32, 1), &sink, dtypes::fp32);
  const Var y = recompute(x, [](const Var& in, bool again) { return again ? slice(in, 0, 0, 1) : gelu(in); });
  CHECK(contains(error_of([&] { tape.backward({y}, {random_tensor(kX, dtypes::fp32, 4)}); }),
                 "[recompute] the block gave [6,8] fp32, and [1,8] fp32 when it ran again"));
}
