// What a parameter may choose for itself: rule, moments, rate, decay, floor; and frozen ones.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "bitgrad/base/memory.h"
#include "nn/nn_support.h"
#include "optim/matrix_parts.h"
#include "optim/optim_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::unique_ptr<Parameter> parameter(const std::string& path, const Shape& shape,
                                     const std::function<void(ParameterSpec&)>& change) {
  ParameterSpec spec;
  spec.init = {"uniform", -1, 1};
  change(spec);
  auto p = std::make_unique<Parameter>(shape, spec);
  p->initialize(path, 1);
  return p;
}

}  // namespace

TEST_CASE("a parameter may have its own rule, rate, decay and floor") {
  const auto plain = parameter("a", {3, 5}, [](ParameterSpec&) {});
  const auto own = parameter("b", {3, 5}, [](ParameterSpec& s) {
    s.optimizer = "sgd";
    s.lr_factor = 0.25f;
    s.weight_decay = 0.5f;
    s.floor = 0.1f;
    s.latent_clamp = 0.6f;
  });
  OptimizerSpec spec = named("adam");
  spec.weight_decay = 0.125f;
  auto optimizer = make_optimizer(spec);
  optimizer->attach({plain.get(), own.get()});
  REQUIRE(optimizer->state().size() == 2);
  CHECK(optimizer->state()[0].name == "a.adam.m");
  const Tensor g = random_tensor({3, 5}, dtypes::fp32, 3);
  Floats w = floats(own->master()), a = floats(plain->master());
  accumulate(*plain, g);
  accumulate(*own, g);
  optimizer->step(0.5f, 2);
  bool floored = false;
  for (size_t i = 0; i < w.size(); ++i) {
    const float step = g.as<float>()[i] / 2.0f + 0.5f * w[i];
    const float moved = std::clamp(w[i] - (0.5f * 0.25f) * step, -0.6f, 0.6f);
    floored = floored || moved < 0.1f;
    CHECK(own->master().as<float>()[i] == std::max(moved, 0.1f));
  }
  CHECK(floored);
  // One step of Adam: m / c1 = g and sqrt(v / c2) = abs g but for rounding.
  for (size_t i = 0; i < a.size(); ++i) {
    const float d = g.as<float>()[i] / 2.0f + 0.125f * a[i];
    CHECK(std::fabs(plain->master().as<float>()[i] - (a[i] - (d > 0 ? 0.5f : -0.5f))) < 1e-4f);
  }
}

TEST_CASE("a parameter may have its own kind of moments, and the account shows it") {
  const Shape shape{64, 512};
  const int64_t n = shape.numel();
  const auto bytes = [&](MomentKind run, std::optional<MomentKind> own) {
    const auto p = parameter("w", shape, [&](ParameterSpec& s) { s.moments = own; });
    OptimizerSpec spec = named("adam");
    spec.moments = run;
    const int64_t before = memory_now()[MemoryKind::kOptimizer];
    auto optimizer = make_optimizer(spec);
    optimizer->attach({p.get()});
    return memory_now()[MemoryKind::kOptimizer] - before;
  };
  CHECK(bytes(MomentKind::kFp32, std::nullopt) == 2 * 4 * n);
  CHECK(bytes(MomentKind::kBf16, std::nullopt) == 2 * 2 * n);
  CHECK(bytes(MomentKind::kInt8, std::nullopt) == 2 * (n + n / 256 * 4));
  CHECK(bytes(MomentKind::kInt4, std::nullopt) == 2 * (n / 2 + n / 256 * 4));
  CHECK(bytes(MomentKind::kInt8, MomentKind::kFp32) == 2 * 4 * n);
  CHECK(bytes(MomentKind::kFp32, MomentKind::kInt8) == 2 * (n + n / 256 * 4));
  CHECK(bytes(MomentKind::kInt8, MomentKind::kInt4) == 2 * (n / 2 + n / 256 * 4));
}

TEST_CASE("a frozen parameter has no gradient, no state and no master, and stays") {
  for (const bool low : {false, true}) {
    const auto p = parameter("w", {4, 16}, [&](ParameterSpec& s) {
      if (low) s.quant = quant_spec(dtypes::int4, "symmetric");
      s.frozen = true;
    });
    const auto other = parameter("v", {4, 16}, [&](ParameterSpec& s) {
      if (low) s.quant = quant_spec(dtypes::int4, "symmetric");
    });
    CHECK(p->has_master() == !low);
    auto optimizer = make_optimizer(named("adam"));
    optimizer->attach({p.get(), other.get()});
    CHECK(optimizer->state().size() == 2);
    const auto before = p->value().values();
    accumulate(*other, random_tensor({4, 16}, dtypes::fp32, 1));
    optimizer->step(0.1f, 1);
    CHECK(p->value().values() == before);
    Tape tape;
    CHECK_FALSE(p->read().tracked());
  }
  // Its codes are those of a parameter with a master of the same path.
  const auto frozen = parameter("w", {300, 301}, [](ParameterSpec& s) {
    s.quant = quant_spec(dtypes::int4, "symmetric");
    s.quant->granularity = Granularity::groups(7);
    s.frozen = true;
  });
  const auto trained = parameter("w", {300, 301}, [](ParameterSpec& s) {
    s.quant = quant_spec(dtypes::int4, "symmetric");
    s.quant->granularity = Granularity::groups(7);
  });
  CHECK(frozen->value().values() == trained->value().values());
}

// [cpu]: a rule that moves numbers of the host (tests/cuda/optim_test.cpp)
TEST_CASE("rules of one family hand their state on, and a rule of a program names its own", "[cpu]") {
  class Halve final : public UpdateRule {
   public:
    std::string_view family() const override { return "halve"; }
    std::vector<Moment> moments(const Shape&) const override { return {{"count"}}; }
    void update(const UpdatePiece& piece) const override {
      for (int64_t i = 0; i < piece.n; ++i) {
        piece.state[0][i] += 1;
        piece.w[i] = piece.w[i] / 2 - piece.lr * piece.g[i];
      }
    }
  };
  register_optimizer("choices_test_halve", [](const OptimizerSpec&) { return std::make_unique<Halve>(); });
  const auto p = parameter("w", {4, 5}, [](ParameterSpec& s) { s.optimizer = "choices_test_halve"; });
  const Floats w = floats(p->master());
  auto optimizer = make_optimizer(named("adam"));
  optimizer->attach({p.get()});
  CHECK(optimizer->state()[0].name == "w.halve.count");
  accumulate(*p, Tensor::full({4, 5}, dtypes::fp32, 1));
  optimizer->step(0.5f, 1);
  for (size_t i = 0; i < w.size(); ++i) CHECK(p->master().as<float>()[i] == w[i] / 2 - 0.5f);
  CHECK(floats(optimizer->state()[0].tensor) == Floats(20, 1.0f));
  const auto unknown = parameter("w", {2}, [](ParameterSpec& s) { s.optimizer = "adagrad"; });
  CHECK(contains(error_of([&] { make_optimizer(named("adam"))->attach({unknown.get()}); }),
                 "unknown optimizer 'adagrad'"));
}

TEST_CASE("numbers that cannot be are refused when the parameter is made") {
  const auto refused = [](const std::function<void(ParameterSpec&)>& change) {
    return error_of([&] { parameter("w", {2, 2}, change); });
  };
  CHECK(refused([](ParameterSpec& s) { s.lr_factor = -1; }) == "[Parameter] lr_factor must be at least 0, got -1");
  CHECK(contains(refused([](ParameterSpec& s) { s.learned.lr_factor = NAN; }), "learned_lr_factor"));
  CHECK(
      contains(refused([](ParameterSpec& s) { s.weight_decay = -0.5f; }), "weight_decay must be at least 0, got -0.5"));
  CHECK(contains(refused([](ParameterSpec& s) { s.floor = INFINITY; }), "floor must be finite, got inf"));
  CHECK(contains(refused([](ParameterSpec& s) { s.latent_clamp = -1.0f; }), "latent_clamp must be at least 0, got -1"));
  CHECK(refused([](ParameterSpec& s) { s.master = MasterKind::kBf16; }) ==
        "[Parameter] a parameter of dtype fp32 is its own master: got master bf16. Give it a low-bit dtype, or leave "
        "master at fp32");
}

TEST_CASE("an update that leaves fp32 names the parameter without a master") {
  ParameterSpec spec = weight_spec(quant_spec(dtypes::int8, "absmax"));
  spec.quant->granularity = Granularity::channel(0);
  spec.master = MasterKind::kNone;
  Parameter p({2, 8}, spec);
  p.initialize("layers.1.weight", 1);
  auto optimizer = make_optimizer(named("sgd"));
  optimizer->attach({&p});
  accumulate(p, Tensor::full({2, 8}, dtypes::fp32, 1e38));
  const auto step = [&] { optimizer->step(1e38f, 1); };
  const std::string text = error_of(step);
  CHECK(contains(text, "[update] the new values of 'layers.1.weight' ([2,8] int8, no master)"));
  CHECK(contains(text, "hold NaN or Inf at optimizer step 0"));
}

TEST_CASE("moments with blocks across long rows have the bits of those of one row") {
  // [60, 20001]: 256 rows are 2^22 numbers, so rows are taken in order and blocks stay open between them.
  for (const MomentKind kind : {MomentKind::kInt8, MomentKind::kInt4}) {
    constexpr int64_t kCount = int64_t{60} * 20001;
    OptimizerSpec how = named("adam");
    how.moments = kind;
    auto rows = float_parameter("w", {60, 20001}), flat = float_parameter("w", {kCount});
    flat->master().copy_from(rows->master().reshape({kCount}));
    auto first = make_optimizer(how), second = make_optimizer(how);
    first->attach({rows.get()});
    second->attach({flat.get()});
    for (uint64_t step = 0; step < 2; ++step) {
      const Tensor g = random_tensor({60, 20001}, dtypes::fp32, 40 + step);
      accumulate(*rows, g);
      accumulate(*flat, g.reshape({kCount}));
      first->step(0.01f, 3);
      second->step(0.01f, 3);
    }
    const auto same = [](const Tensor& a, const Tensor& b) {
      return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
    };
    CHECK(same(rows->master(), flat->master()));
    for (size_t i = 0; i < 4; ++i) CHECK(same(first->state()[i].tensor, second->state()[i].tensor));
  }
}

TEST_CASE("every matrix has one owner, the heaviest first to the rank with the least") {
  const std::vector<int64_t> costs{5, 9, 1, 9, 3};
  CHECK(detail::owners_of(costs, 1) == std::vector<int>{0, 0, 0, 0, 0});
  CHECK(detail::owners_of(costs, 2) == std::vector<int>{0, 0, 1, 1, 1});
  CHECK(detail::owners_of(costs, 7) == std::vector<int>{2, 0, 4, 1, 3});
  CHECK(detail::owners_of({}, 3).empty());
}
