// Ops that a user's program writes with the same struct as the library, and what the tape says when they are wrong.
#include <cmath>

#include "bitgrad/base/memory.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Numbers = std::vector<double>;
Tensor row(const Numbers& numbers, DType dtype = dtypes::fp32) {
  return Tensor::from_elements({static_cast<int64_t>(numbers.size())}, dtype, numbers);
}

// y = x*x, as the comment of op.h writes it.
struct Square {
  static constexpr std::string_view kName = "square";
  struct Saved {
    Tensor x;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in) {
    s.x = keep(in[0]);
    Tensor y = Tensor::empty(in[0].shape(), dtypes::fp64);
    for (int64_t i = 0; i < y.numel(); ++i) y.as<double>()[i] = in[0].as<double>()[i] * in[0].as<double>()[i];
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    Tensor gx = Tensor::empty(s.x.shape(), dtypes::fp64);
    for (int64_t i = 0; i < gx.numel(); ++i) gx.as<double>()[i] = 2 * s.x.as<double>()[i] * gy[0].as<double>()[i];
    g[0].set(gx);
  }
};

// (sin x, cos x) with an option: the factor of the angle.
struct SinCos {
  static constexpr std::string_view kName = "sin_cos";
  struct Saved {
    Tensor x;
    double factor = 0;
  };
  static std::vector<Tensor> forward(Saved& s, std::span<const Tensor> in, double factor) {
    s.x = keep(in[0]);
    s.factor = factor;
    std::vector<Tensor> y = {Tensor::empty(in[0].shape(), dtypes::fp64), Tensor::empty(in[0].shape(), dtypes::fp64)};
    for (int64_t i = 0; i < in[0].numel(); ++i) {
      y[0].as<double>()[i] = std::sin(factor * in[0].as<double>()[i]);
      y[1].as<double>()[i] = std::cos(factor * in[0].as<double>()[i]);
    }
    return y;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gx = Tensor::zeros(s.x.shape(), dtypes::fp64);
    for (int64_t i = 0; i < gx.numel(); ++i) {
      const double angle = s.factor * s.x.as<double>()[i];
      if (gy[0].defined()) gx.as<double>()[i] += s.factor * std::cos(angle) * gy[0].as<double>()[i];
      if (gy[1].defined()) gx.as<double>()[i] -= s.factor * std::sin(angle) * gy[1].as<double>()[i];
    }
    g[0].set(gx);
  }
};

// Identity whose backward does what the test says.
using Misdeed = std::function<void(std::span<const Tensor>, std::span<GradSlot>)>;
struct Custom {
  static constexpr std::string_view kName = "custom";
  struct Saved {
    Misdeed misdeed;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Misdeed& misdeed) {
    s.misdeed = misdeed;
    return in[0].clone(MemoryKind::kActivation);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) { s.misdeed(gy, g); }
};

std::string run_custom(const Misdeed& misdeed, DType grad = dtypes::fp32) {
  return error_of([&] {
    AccumulateSink sink;
    Tape tape;
    tape.backward(sum(apply<Custom>({tape.leaf(row({1, 2}), &sink, grad), Var(row({5, 5}))}, misdeed)));
  });
}

struct Nothing {
  static constexpr std::string_view kName = "nothing";
  struct Saved {};
  static Tensor forward(Saved&, std::span<const Tensor>) { return {}; }
  static void backward(Saved&, std::span<const Tensor>, std::span<GradSlot>) {}
};

}  // namespace

// [cpu]: ops of the test in fp64, whose loops read the host
TEST_CASE("an op of one's own with one output passes the gradient check", "[cpu]") {
  CHECK(gradcheck([](const auto& v) { return apply<Square>({v[0]}); }, {random_tensor({3, 4}, dtypes::fp64, 1)}) == "");
}

// [cpu]: ops of the test in fp64, whose loops read the host
TEST_CASE("an op of one's own with two outputs passes it when both, either or none is used", "[cpu]") {
  const std::vector<Tensor> x = {random_tensor({5}, dtypes::fp64, 2)};
  CHECK(gradcheck(
            [](const auto& v) {
              const std::vector<Var> y = apply_multi<SinCos>({v[0]}, 1.5);
              return mul(y[0], add(y[1], y[1]));
            },
            x) == "");
  CHECK(gradcheck([](const auto& v) { return apply_multi<SinCos>({v[0]}, 0.5)[0]; }, x) == "");
  CHECK(gradcheck([](const auto& v) { return apply_multi<SinCos>({v[0]}, 0.5)[1]; }, x) == "");
  AccumulateSink sink;
  Tape tape;
  const Var v = tape.leaf(x[0], &sink, dtypes::fp64);
  apply_multi<SinCos>({v}, 2.0);
  tape.backward(sum(v));
  CHECK(sink.grad().elements() == Numbers(5, 1.0));
}

TEST_CASE("a gradient of a wrong shape or dtype is an error that names both sides") {
  CHECK(run_custom([](auto, auto g) {
          g[0].set(row({1, 2, 3}));
        }) == "[custom] gradient 0 is [3] fp32, expected [2] fp32");
  CHECK(run_custom(
            [](auto, auto g) {
              g[0].set(row({1, 2}));
            },
            dtypes::bf16) == "[custom] gradient 0 is [2] fp32, expected [2] bf16");
  CHECK(run_custom([](auto, auto g) {
          g[0].set(row({1, 2}, dtypes::int8));
        }) == "[custom] gradient 0 is [2] int8, expected [2] fp32");
  CHECK(run_custom([](auto, auto g) {
          g[0].set_rounded(row({1, 2}, dtypes::fp64));
        }) == "[custom] gradient 0 is [2] fp64, expected [2] fp32");
  CHECK(run_custom([](auto, auto g) {
          g[0].set_rounded(row({1, 2}, dtypes::bf16));
        }) == "[custom] gradient 0 is [2] bf16, expected [2] fp32");
  CHECK(run_custom([](auto, auto g) { g[0].set_rounded(row({1, 2})); }, dtypes::bf16).empty());
}

TEST_CASE("a slot accepts one contribution, from ops that asked whether it is wanted") {
  CHECK(contains(run_custom([](auto, auto g) {
                   g[1].set(row({1, 2}));
                 }),
                 "[custom] gradient 1 is not needed: input 1 is a constant"));
  CHECK(contains(run_custom([](auto, auto g) { g[1].target(); }), "[custom] gradient 1 is not needed"));
  CHECK(contains(run_custom([](auto, auto g) { g[1].stored_dtype(); }), "[custom] gradient 1 is not needed"));
  CHECK(contains(run_custom([](auto, auto g) {
                   g[0].set(row({1, 2}));
                   g[0].set(row({1, 2}));
                 }),
                 "[custom] gradient 0 was set already"));
  CHECK(contains(run_custom([](auto, auto g) { g[0].target(); }),
                 "[custom] gradient 0 has a target() or rows() but no commit()"));
  CHECK(contains(run_custom([](auto, auto g) { g[0].commit(); }),
                 "[custom] commit of gradient 0 without target() or rows()"));
  CHECK(run_custom([](auto, auto) {}).empty());  // no gradient at all is legal: it is zero
  CHECK(error_of([] {
          AccumulateSink sink;
          Tape tape;
          apply<Nothing>({tape.leaf(row({1}), &sink, dtypes::fp32)});
        }) == "[nothing] forward left output 0 undefined");
}

TEST_CASE("a slot knows what its edge wants, and its target adds in place") {
  AccumulateSink sink;
  const auto run = [&](double number) {
    Tape tape;
    const Misdeed in_place = [number](auto, std::span<GradSlot> g) {
      CHECK(g[0].wanted());
      CHECK_FALSE(g[1].wanted());
      CHECK(g[0].shape() == Shape{2});
      CHECK(g[0].dtype() == dtypes::fp32);
      const GradTarget t = g[0].target();
      for (int i = 0; i < 2; ++i)
        t.out.as<float>()[i] = (t.accumulate ? t.out.as<float>()[i] : 0.0f) + static_cast<float>(number);
      g[0].commit();
    };
    tape.backward(sum(apply<Custom>({tape.leaf(row({1, 2}), &sink, dtypes::fp32), Var(row({5, 5}))}, in_place)));
  };
  run(3);
  run(4);
  CHECK(sink.grad().elements() == Numbers{7, 7});
}

TEST_CASE("the caller's tensors are not changed by later sums on their edge") {
  // add hands one gradient to both inputs; the second reader of x must not write into it.
  AccumulateSink sx, sz;
  Tape tape;
  const Var x = tape.leaf(row({1, 1}), &sx, dtypes::fp32), z = tape.leaf(row({1, 1}), &sz, dtypes::fp32);
  const Var u = mul(x, Var(row({1, 1}))), v = mul(z, Var(row({1, 1})));
  tape.backward(sum(add(add(u, v), add(u, u))));
  CHECK(sx.grad().elements() == Numbers{3, 3});
  CHECK(sz.grad().elements() == Numbers{1, 1});
}

// [cpu]: ops of the test in fp64, whose loops read the host
TEST_CASE("saved tensors are counted as saved, pass the hook, and are freed by backward", "[cpu]") {
  const int64_t before_saved = memory_now()[MemoryKind::kSaved], before = memory_now().total;
  AccumulateSink sink;
  int64_t seen = 0;
  {
    Tape tape;
    tape.set_saved_hook([&](const Tensor& t) {
      seen += t.numel();
      return t;
    });
    Var y;
    {
      const Var x = tape.leaf(Tensor::full({1000}, dtypes::fp64, 0.5), &sink, dtypes::fp64);
      y = sum(apply<Square>({apply<Square>({x})}));
    }
    CHECK(seen == 2000);
    CHECK(memory_now()[MemoryKind::kSaved] - before_saved == 16000);
    tape.backward(y);
    CHECK(memory_now()[MemoryKind::kSaved] == before_saved);
    CHECK(memory_now().total - before == 8000 + 8);  // the gradient of the leaf, and y
  }
  CHECK(sink.grad().elements() == Numbers(1000, 4 * 0.125));
}

TEST_CASE("backward frees the tensors of a node as soon as it has run") {
  const int64_t before = memory_now()[MemoryKind::kSaved];
  AccumulateSink sink;
  Tape tape;
  int64_t saved = -1;
  // The first op is the last whose backward runs: by then nothing of the others is left.
  const Misdeed look = [&](auto gy, std::span<GradSlot> g) {
    saved = memory_now()[MemoryKind::kSaved] - before;
    g[0].set(gy[0]);
  };
  Var y = apply<Custom>({tape.leaf(Tensor::full({1000}, dtypes::fp32, 0.5), &sink, dtypes::fp32)}, look);
  for (int i = 0; i < 6; ++i) y = tanh(y);
  y = sum(y);
  CHECK(memory_now()[MemoryKind::kSaved] - before == 6 * 4000);
  tape.backward(y);
  CHECK(saved == 0);
}

// [cpu]: ops of the test in fp64, whose loops read the host
TEST_CASE("what the hook returns is what backward reads", "[cpu]") {
  AccumulateSink sink;
  Tape tape;
  tape.set_saved_hook([](const Tensor& t) { return Tensor::full(t.shape(), t.dtype(), 10); });
  tape.backward(sum(apply<Square>({tape.leaf(row({1, 2}, dtypes::fp64), &sink, dtypes::fp64)})));
  CHECK(sink.grad().elements() == Numbers{20, 20});
}

// [cpu]: ops of the test in fp64, whose loops read the host
TEST_CASE("ops that are not recorded keep nothing", "[cpu]") {
  const int64_t before = memory_now()[MemoryKind::kSaved];
  const Var y = apply<Square>({Var(row({1, 2}, dtypes::fp64))});
  CHECK(memory_now()[MemoryKind::kSaved] == before);
  AccumulateSink sink;
  Tape tape;
  const NoGrad off;
  const Var z = apply<Square>({tape.leaf(row({1, 2}, dtypes::fp64), &sink, dtypes::fp64)});
  CHECK(memory_now()[MemoryKind::kSaved] == before);
  CHECK(y.value().elements() == z.value().elements());
}

TEST_CASE("tensors of other kinds stay in their column of the account when saved") {
  AccumulateSink sink;
  const Tensor w = random_tensor({4, 8}, dtypes::int4, 9).clone(MemoryKind::kValue);
  Tape tape;
  const Var y = linear(Var(random_tensor({2, 8}, dtypes::fp32, 10)), tape.leaf(w, &sink, dtypes::fp32));
  CHECK(w.kind() == MemoryKind::kValue);
  tape.backward({y}, {Tensor::full({2, 4}, dtypes::fp32, 1)});
}
