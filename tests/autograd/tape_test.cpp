// The tape: which gradients flow where, how they are summed and rounded, and what it refuses.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor row(const std::vector<double>& numbers, DType dtype = dtypes::fp32) {
  return Tensor::from_elements({static_cast<int64_t>(numbers.size())}, dtype, numbers);
}
using Numbers = std::vector<double>;

// y = x; its gradient is a tensor of its own, which it may keep, and of which it notes the memory.
struct Gives {
  static constexpr std::string_view kName = "gives";
  struct Saved {
    Tensor gradient;
    const void** memory = nullptr;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Tensor& gradient, const void** memory) {
    s = {gradient, memory};
    return in[0].clone(MemoryKind::kActivation);
  }
  static void backward(Saved& s, std::span<const Tensor>, std::span<GradSlot> g) {
    const Tensor gradient = s.memory == nullptr ? s.gradient : s.gradient.clone(MemoryKind::kActivation);
    if (s.memory != nullptr) *s.memory = gradient.data();
    g[0].set(gradient);
  }
};
// y = x; notes the memory of the gradient that it gets.
struct Gets {
  static constexpr std::string_view kName = "gets";
  struct Saved {
    const void** memory = nullptr;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, const void** memory) {
    s.memory = memory;
    return in[0].clone(MemoryKind::kActivation);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    *s.memory = gy[0].data();
    g[0].set(gy[0]);
  }
};

}  // namespace

TEST_CASE("a leaf that is read twice adds both gradients, and two leaves on one sink do too") {
  AccumulateSink sink;
  {
    Tape tape;
    const Var x = tape.leaf(row({2, -3}), &sink, dtypes::fp32);
    tape.backward(sum(add(mul(x, x), x)));
    CHECK(sink.grad().elements() == Numbers{5, -5});
  }
  sink.clear();
  Tape tape;
  const Var a = tape.leaf(row({2, -3}), &sink, dtypes::fp32), b = tape.leaf(row({2, -3}), &sink, dtypes::fp32);
  tape.backward(sum(mul(a, b)));
  CHECK(sink.grad().elements() == Numbers{4, -6});
}

TEST_CASE("the first gradient of several readers is added to in its own memory") {
  AccumulateSink sink;
  Tape tape;
  const void *given = nullptr, *got = nullptr;
  const Var x = apply<Gets>({tape.leaf(row({1, 1}), &sink, dtypes::fp32)}, &got);
  const Var early = mul(x, Var(row({3, 4}))), late = apply<Gives>({x}, row({10, 20}), &given);
  tape.backward({early, late}, {row({1, 2}), row({0, 0})});
  CHECK(sink.grad().elements() == Numbers{13, 28});
  CHECK(given != nullptr);
  CHECK(got == given);
}

TEST_CASE("a gradient that somebody else holds is not added to") {
  AccumulateSink sink;
  Tape tape;
  const Tensor held = row({10, 20});
  const void* got = nullptr;
  const Var x = apply<Gets>({tape.leaf(row({1, 1}), &sink, dtypes::fp32)}, &got);
  const Var early = mul(x, Var(row({3, 4}))), late = apply<Gives>({x}, held, nullptr);
  // Both operands get the gradient of the sum: the one that is read once keeps it, the other one is added to.
  const Var other = apply<Gives>({x}, row({0, 0}), nullptr), both = add(other, x);
  tape.backward({early, late, both}, {row({1, 2}), row({0, 0}), row({100, 200})});
  CHECK(sink.grad().elements() == Numbers{113, 228});
  CHECK(held.elements() == Numbers{10, 20});
  CHECK(got != held.data());
  Tape second;
  AccumulateSink twice;
  const Var y = apply<Gets>({second.leaf(row({1, 1}), &twice, dtypes::fp32)}, &got);
  second.backward({add(y, y)}, {row({5, 6})});
  CHECK(twice.grad().elements() == Numbers{10, 12});
}

// [cpu]: the order is the tape's
TEST_CASE("a leaf is complete when backward has passed the first op that reads it, once on each tape", "[cpu]") {
  std::map<std::string, AccumulateSink> sinks;
  std::vector<std::string> complete;
  for (const char* name : {"first", "twice", "two leaves", "in a block", "of a branch", "not read"}) {
    AccumulateSink& sink = sinks[name];
    sink.set_on_complete([&complete, &sink, name] {
      complete.emplace_back(name);
      if (!sink.filled()) complete.back() += ", without a gradient";
    });
  }
  for (int tapes = 0; tapes < 2; ++tapes) {
    Tape tape;
    const auto leaf = [&](const char* name) { return tape.leaf(row({2}), &sinks[name], dtypes::fp32); };
    const Var twice = leaf("twice"), one = leaf("two leaves"), other = leaf("two leaves");
    leaf("not read");
    Var y = add(leaf("first"), twice);
    y = mul(y, one);
    y = recompute(y, [&](const Var& x, bool) {
      return mul(x, Tape::current()->leaf(row({2}), &sinks["in a block"], dtypes::fp32));
    });
    mul(leaf("of a branch"), y);  // reaches no output
    y = mul(mul(y, twice), other);
    complete.clear();
    tape.backward(sum(y));
    CHECK(complete ==
          std::vector<std::string>{"of a branch, without a gradient", "in a block", "two leaves", "twice", "first"});
  }
}

TEST_CASE("gradients add up over tapes until the sink is cleared, in the same memory") {
  AccumulateSink sink;
  const auto run = [&] {
    Tape tape;
    tape.backward(sum(mul(tape.leaf(row({1, 1}), &sink, dtypes::fp32), Var(row({3, 4})))));
  };
  run();
  const void* memory = sink.grad().data();
  run();
  CHECK(sink.grad().elements() == Numbers{6, 8});
  sink.clear();
  CHECK_FALSE(sink.filled());
  run();
  CHECK(sink.grad().elements() == Numbers{3, 4});
  CHECK(sink.grad().data() == memory);
  CHECK(sink.grad().kind() == MemoryKind::kGrad);
}

// [cpu]: fp64
TEST_CASE("an edge without a wish has fp32 gradients, fp64 values have fp64 ones", "[cpu]") {
  AccumulateSink s1, s2;
  Tape tape;
  CHECK(tape.leaf(row({1}), &s1, dtypes::bf16).grad_dtype() == dtypes::bf16);
  const Var x = tape.leaf(row({1}), &s1, dtypes::fp32), d = tape.leaf(row({1}, dtypes::fp64), &s2, dtypes::fp64);
  CHECK(add(x, x).grad_dtype() == dtypes::fp32);
  CHECK(add(d, d).grad_dtype() == dtypes::fp64);
  CHECK(Var(row({1}, dtypes::fp64)).grad_dtype() == dtypes::fp64);
}

TEST_CASE("a bf16 edge rounds its gradient once, also after fan-out") {
  // 1 + 2^-9 + 2^-9 = 1 + 2^-8 rounds to even: 1. Rounded one by one each 2^-9 would be lost or the sum differ; 1 + 3 *
  // 2^-9 rounds up.
  const double tiny = std::ldexp(1.0, -9);
  for (const int readers : {1, 2, 3, 4}) {
    AccumulateSink sink;
    Tape tape;
    Var y = mul(tape.leaf(row({1}), &sink, dtypes::fp32), Var(row({1})));
    y.want_grad(dtypes::bf16);
    CHECK(y.grad_dtype() == dtypes::bf16);
    // The last reader gives the first contribution: the 1, to which each tiny one would be lost if it were rounded at
    // once.
    Var total = Var(row({0}));
    for (int r = 1; r < readers; ++r) total = add(total, mul(y, Var(row({tiny}))));
    tape.backward(sum(add(total, mul(y, Var(row({1}))))));
    const float exact = static_cast<float>(1 + (readers - 1) * tiny);
    CHECK(sink.grad().item() == static_cast<double>(bf16_to_float(bf16_from_float(exact))));
    if (readers == 4) CHECK(sink.grad().item() == 1.0 + std::ldexp(1.0, -7));
  }
}

TEST_CASE("a bf16 wish must come before the first reader, and must be a dtype that gradients can have") {
  AccumulateSink sink;
  Tape tape;
  Var x = tape.leaf(row({1, 2}), &sink, dtypes::fp32);
  Var y = add(x, x);
  CHECK(error_of([&] { y.want_grad(dtypes::int8); }) ==
        "[want_grad] gradients of [2] fp32 can be fp32 or bf16, got int8");
  CHECK(contains(error_of([&] { x.want_grad(dtypes::bf16); }),
                 "an op has read this Var already, with gradients in fp32, now bf16 is requested"));
  CHECK_NOTHROW(x.want_grad(dtypes::fp32));
  Var constant = row({1});
  CHECK(contains(error_of([&] { constant.want_grad(dtypes::bf16); }), "the Var [1] fp32 is a constant"));
  CHECK(contains(error_of([&] { tape.leaf(row({1}, dtypes::fp64), &sink, dtypes::bf16); }),
                 "gradients of [1] fp64 can be fp64, got bf16"));
  CHECK(contains(error_of([&] { tape.leaf(row({1}), &sink, dtypes::fp64); }), "can be fp32 or bf16, got fp64"));
  CHECK(contains(error_of([&] { tape.leaf(row({1}), nullptr, dtypes::fp32); }), "a leaf needs a GradSink"));
  CHECK(contains(error_of([&] { tape.leaf(Tensor(), &sink, dtypes::fp32); }), "the tensor is undefined"));
}

TEST_CASE("integer leaves get gradients of their values") {
  for (const DType d : code_dtypes()) {
    AccumulateSink sink;
    Tape tape;
    const Var codes = tape.leaf(random_codes({2, 5}, d, 7), &sink, dtypes::bf16);
    tape.backward(sum(dequantize(codes)));
    CHECK(sink.grad().dtype() == dtypes::bf16);
    CHECK(sink.grad().elements() == Numbers(10, 1.0));
  }
}

TEST_CASE("several outputs with their own seeds, one of them a leaf or read by another") {
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(row({1, 2}), &sink, dtypes::fp32);
  const Var y = mul(x, Var(row({10, 10}))), z = mul(y, Var(row({2, 3})));
  const Tensor seed = row({1, 1});
  tape.backward({z, y, x, y}, {seed, seed, seed, seed});
  CHECK(sink.grad().elements() == Numbers{2 * 10 + 20 + 1, 3 * 10 + 20 + 1});
  CHECK(seed.elements() == Numbers{1, 1});
}

TEST_CASE("branches that do not reach the output cost nothing and give nothing") {
  AccumulateSink used, unused;
  Tape tape;
  const Var x = tape.leaf(row({2}), &used, dtypes::fp32), u = tape.leaf(row({3}), &unused, dtypes::fp32);
  const Var dead = mul(u, u);
  tape.backward(sum(mul(x, x)));
  CHECK(used.grad().item() == 4);
  CHECK_FALSE(unused.filled());
  CHECK(dead.value().item() == 9);
}

TEST_CASE("constants and detached Vars stop gradients") {
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(row({3}), &sink, dtypes::fp32);
  CHECK_FALSE(add(Var(row({1})), Var(row({2}))).tracked());
  CHECK(tape.nodes() == 0);
  tape.backward(sum(mul(x, mul(x, x).detach())));
  CHECK(sink.grad().item() == 9);
}

TEST_CASE("NoGrad records nothing and ends with its scope") {
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(row({3}), &sink, dtypes::fp32);
  {
    const NoGrad off;
    CHECK(Tape::current() == nullptr);
    CHECK_FALSE(mul(x, x).tracked());
    {
      Tape inner;
      CHECK(Tape::current() == &inner);
      CHECK(mul(x, x).tracked());
    }
    CHECK(Tape::current() == nullptr);
  }
  CHECK(Tape::current() == &tape);
  CHECK(tape.nodes() == 1);
}

TEST_CASE("tapes nest like scopes, and inputs on two tapes are refused") {
  CHECK(Tape::current() == nullptr);
  AccumulateSink outer_sink, inner_sink;
  Tape outer;
  const Var x = outer.leaf(row({2}), &outer_sink, dtypes::fp32);
  {
    Tape inner;
    CHECK(Tape::current() == &inner);
    const Var y = inner.leaf(x.value(), &inner_sink, dtypes::fp32);
    CHECK(error_of([&] { add(x, y); }) == "[add] inputs are on two tapes");
    inner.backward(sum(mul(y, y)));
  }
  CHECK(Tape::current() == &outer);
  CHECK(inner_sink.grad().item() == 4);
  outer.backward(sum(mul(x, Var(row({5})))));
  CHECK(outer_sink.grad().item() == 5);
}

TEST_CASE("backward runs once, from outputs of this tape, with seeds that fit") {
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(row({1, 2}), &sink, dtypes::fp32), y = mul(x, x);
  CHECK(contains(error_of([&] { tape.backward(y); }), "an output without a seed has one element, got [2] fp32"));
  CHECK(error_of([&] {
          tape.backward({y}, {row({1, 2, 3})});
        }) == "[backward] seed 0 is [3] fp32 but output 0 needs [2] fp32");
  CHECK(error_of([&] {
          tape.backward({y}, {row({1, 2}, dtypes::bf16)});
        }) == "[backward] seed 0 is [2] bf16 but output 0 needs [2] fp32");
  CHECK(contains(error_of([&] { tape.backward({y}, {}); }), "got 1 outputs and 0 seeds"));
  CHECK(contains(error_of([&] { tape.backward(Var(row({1}))); }), "it is a constant, computed from no leaf"));
  {
    Tape other;
    CHECK(contains(error_of([&] { other.backward({y}, {row({1, 1})}); }), "output 0 ([2] fp32) is not on this tape"));
  }
  tape.backward({y}, {row({1, 1})});
  CHECK(sink.grad().elements() == Numbers{2, 4});
  CHECK(contains(error_of([&] {
                   tape.backward({y}, {row({1, 1})});
                 }),
                 "this tape has run backward already: its saved tensors are freed"));
  CHECK(contains(
      error_of([&] { mul(x, x); }),
      "[mul] an input belongs to a tape that has run backward, which frees what gradients need. Run the forward "
      "pass again on a new tape, or detach() the input."));
  CHECK(contains(error_of([&] { tape.leaf(row({1}), &sink, dtypes::fp32); }), "this tape has run backward"));
  CHECK(sink.grad().elements() == Numbers{2, 4});
}

TEST_CASE("a Var whose tape is gone, or was replaced by a later one, is refused; its value is not lost") {
  AccumulateSink sink;
  std::optional<Tape> tape(std::in_place);
  const Var x = tape->leaf(row({2, 3}), &sink, dtypes::bf16), y = mul(x, x);
  CHECK(Tape::lives(y));
  tape.reset();
  CHECK_FALSE(Tape::lives(y));
  // Without a tape the value is a constant.
  CHECK(add(y, y).value().elements() == Numbers{8, 18});
  CHECK(x.grad_dtype() == dtypes::fp32);
  tape.emplace();
  REQUIRE(&*tape == y.tape());  // the address of the one before
  const std::string gone =
      "[add] input 0 ([2] fp32) was recorded on a tape that no longer exists or belongs to another thread. Use it "
      "while its tape exists, or detach() it.";
  CHECK(error_of([&] { add(y, y); }) == gone);
  const Var own = tape->leaf(row({1, 1}), &sink, dtypes::fp32);
  CHECK(contains(error_of([&] { add(own, y); }),
                 "[add] input 1 ([2] fp32) was recorded on a tape that no longer exists"));
  CHECK(contains(error_of([&] { tape->backward({y}, {row({1, 1})}); }), "output 0 ([2] fp32) is not on this tape"));
  CHECK(contains(error_of([&] { Var(y).want_grad(dtypes::bf16); }), "the tape of the Var [2] fp32 no longer exists"));
  tape->backward(sum(mul(own, y.detach())));
  CHECK(sink.grad().elements() == Numbers{4, 9});
}

TEST_CASE("a sink keeps one shape and dtype") {
  AccumulateSink sink;
  const auto run = [&](const Tensor& value, DType grad) {
    Tape tape;
    tape.backward(sum(tape.leaf(value, &sink, grad)));
  };
  run(row({1, 2}), dtypes::fp32);
  CHECK(error_of([&] {
          run(row({1, 2, 3}), dtypes::fp32);
        }) == "[AccumulateSink] the gradient is [3] fp32, the sum so far is [2] fp32");
  CHECK(error_of([&] {
          run(row({1, 2}), dtypes::bf16);
        }) == "[AccumulateSink] the gradient is [2] bf16, the sum so far is [2] fp32");
}

namespace {

// Takes rows, and keeps them.
struct RowLog final : GradRows {
  int64_t block_rows() const override { return 2; }
  void begin() override { ++begun; }
  void consume(int64_t, const Tensor& g) override {
    const Numbers n = g.elements();
    rows.insert(rows.end(), n.begin(), n.end());
  }
  void done() override { ++ended; }
  int begun = 0, ended = 0;
  Numbers rows;
};

// The sum of all numbers; gives its gradient in rows where they are taken.
struct SumByRows {
  static constexpr std::string_view kName = "sum_by_rows";
  struct Saved {
    Shape shape;
    bool commits = true;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, bool commits) {
    s = {in[0].shape(), commits};
    return Tensor::scalar(0);
  }
  static void backward(Saved& s, std::span<const Tensor>, std::span<GradSlot> g) {
    GradRows* rows = g[0].rows();
    if (rows == nullptr) return g[0].set(Tensor::full(s.shape, dtypes::fp32, 7));
    for (int64_t r = 0; r < s.shape.rows(); r += rows->block_rows())
      rows->consume(
          r, Tensor::full({std::min(rows->block_rows(), s.shape.rows() - r), 1}, dtypes::fp32, static_cast<double>(r)));
    if (s.commits) g[0].commit();
  }
};

}  // namespace

// [cpu]: a device gives gradients whole (tests/cuda/autograd_test.cpp)
TEST_CASE("the only gradient of a leaf goes in rows to a sink that accepts them, any other one as a whole", "[cpu]") {
  AccumulateSink sink;
  RowLog log;
  const Tensor x = Tensor::zeros({3, 1}, dtypes::fp32);
  const auto run = [&](int reads, int leaves, bool commits = true) {
    Tape tape;
    Var total;
    for (int l = 0; l < leaves; ++l) {
      const Var leaf = tape.leaf(x, &sink, dtypes::fp32);
      for (int r = 0; r < reads; ++r) {
        const Var s = apply<SumByRows>({leaf}, commits);
        total = total.defined() ? add(total, s) : s;
      }
    }
    tape.backward(total);
  };
  run(1, 1);
  CHECK(sink.grad().elements() == Numbers{7, 7, 7});  // nobody takes rows
  sink.clear();
  sink.set_rows(&log);
  run(1, 1);
  CHECK_FALSE(sink.filled());
  CHECK(log.rows == Numbers{0, 0, 2});
  CHECK((log.begun == 1 && log.ended == 1));
  run(2, 1);
  CHECK(sink.grad().elements() == Numbers{14, 14, 14});
  sink.clear();
  run(1, 2);
  CHECK(sink.grad().elements() == Numbers{14, 14, 14});
  run(1, 1);  // the sum of the window is not complete without it
  CHECK(sink.grad().elements() == Numbers{21, 21, 21});
  CHECK(log.begun == 1);
  sink.clear();
  CHECK(contains(error_of([&] { run(1, 1, false); }),
                 "[sum_by_rows] gradient 0 has a target() or rows() but no commit()"));
}
