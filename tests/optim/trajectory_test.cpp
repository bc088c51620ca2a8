// Every rule with every choice of masters and moments, against plain code, bit for bit: the draws are taken again by
// the rule of docs/numerics.md section 7.
#include <cmath>

#include "bitgrad/base/parallel.h"
#include "nn/nn_support.h"
#include "optim/optim_support.h"
#include "optim/reference_update.h"
#include "support/catch.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Choice {
  std::string rule = "adam";
  MomentKind moments = MomentKind::kFp32;
  MasterKind master = MasterKind::kFp32;
  DType grad = dtypes::fp32;
  Shape shape{7, 301};
};

OptimizerSpec spec_of(const Choice& c) {
  OptimizerSpec spec = named(c.rule);
  spec.moments = c.moments;
  spec.weight_decay = 0.01f;
  spec.beta2 = 0.99;
  if (c.rule == "sgd") spec.momentum = 0.9f;
  fill_defaults(spec);
  return spec;
}

std::unique_ptr<Parameter> make_parameter(const Choice& c) {
  ParameterSpec spec = weight_spec(quant_spec(dtypes::int8, "absmax"), c.grad);
  spec.quant->granularity = Granularity::channel(0);
  spec.quant->ste = SteRule::kIdentity;
  spec.master = c.master;
  auto p = std::make_unique<Parameter>(c.shape, spec);
  p->initialize("w", 1);
  return p;
}

Floats numbers_of(const Parameter& p) {
  if (p.has_master()) return floats(p.master());
  const auto v = p.value().values();
  return {v.begin(), v.end()};
}

Tensor gradient(const Choice& c, int step) {
  return random_tensor(c.shape, c.grad, 50 + static_cast<uint64_t>(step), -3, 2);
}

// The bytes of all that training moves.
std::vector<std::vector<double>> state_of(const Parameter& p, const Optimizer& optimizer) {
  std::vector<std::vector<double>> out{p.value().elements(), p.value().quant()->scale->elements()};
  if (p.has_master()) out.push_back(p.master().elements());
  for (const auto& s : optimizer.state()) out.push_back(s.tensor.elements());
  return out;
}

void check(const Choice& c, int steps = 3) {
  INFO(c.rule << ", moments " << enum_name(c.moments) << ", master " << enum_name(c.master) << ", gradients "
              << c.grad.name() << ", " << c.shape);
  const auto p = make_parameter(c);
  const OptimizerSpec spec = spec_of(c);
  auto optimizer = make_optimizer(spec);
  optimizer->attach({p.get()});
  Reference reference{spec, c.moments, c.master, c.shape.rows(), c.shape.cols()};
  reference.w = numbers_of(*p);
  for (int step = 0; step < steps; ++step) {
    const Tensor g = gradient(c, step);
    accumulate(*p, g);
    const float lr = 0.05f / static_cast<float>(step + 1);
    optimizer->step(lr, 3);
    reference.step(floats(g), lr, 3.0f, 0.01f);
    REQUIRE(numbers_of(*p) == reference.w);
    if (c.master == MasterKind::kNone) {
      const auto codes = p->value().elements();
      CHECK(std::equal(codes.begin(), codes.end(), reference.codes.begin()));
      CHECK(floats(*p->value().quant()->scale) == reference.scales);
    }
  }
  // What is stored, widened by hand.
  const auto state = optimizer->state();
  const auto stored = [&](size_t part, size_t e) {
    if (c.moments == MomentKind::kFp32 || c.moments == MomentKind::kBf16)
      return static_cast<float>(state[part].tensor.elements()[e]);
    const int bits = c.moments == MomentKind::kInt8 ? 8 : 4;
    const bool square = part == 1;
    const MomentValues values = square ? MomentValues::kSquares : MomentValues::kMeans;
    const int q = moment_stored(static_cast<const uint8_t*>(state[2 * part].tensor.data()), e, bits, values);
    const float s = state[2 * part + 1].tensor.as<float>()[e / 256];
    const float y = s * static_cast<float>(moment_number(std::abs(q), moment_form(bits, values)));
    return square ? y * y : std::copysign(y, static_cast<float>(q));
  };
  for (size_t e = 0; e < reference.w.size(); e += 97) {
    CHECK(stored(0, e) == reference.part0[e]);
    if (c.rule != "sgd") CHECK(stored(1, e) == reference.part1[e]);
  }
}

constexpr MomentKind kMoments[] = {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4};
constexpr MasterKind kMasters[] = {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone};

}  // namespace

TEST_CASE("each rule with each kind of moments and masters equals plain code, bit for bit") {
  for (const char* rule : {"sgd", "adam", "adamw"})
    for (const MomentKind moments : kMoments)
      for (const MasterKind master : kMasters) {
        check({rule, moments, master, dtypes::fp32});
        check({rule, moments, master, dtypes::bf16});
      }
}

TEST_CASE("blocks of moments that span two blocks of rows are moved as one") {
  // 65536 / 301 = 217 rows a block: 65317 numbers, no multiple of 256; one row alone is longer than a block of moments.
  for (const MomentKind moments : {MomentKind::kInt8, MomentKind::kInt4}) {
    for (const MasterKind master : {MasterKind::kBf16, MasterKind::kNone})
      check({"adam", moments, master, dtypes::fp32, {230, 301}}, 2);
    check({"adam", moments, MasterKind::kFp32, dtypes::bf16, {230, 301}}, 2);
    // A row is longer than a block of rows: 65537 numbers, one more than a whole number of blocks of moments.
    check({"sgd", moments, MasterKind::kNone, dtypes::fp32, {2, 65537}}, 2);
  }
}

TEST_CASE("parameters of one element, of one row and of no elements have moments of every kind") {
  for (const MomentKind moments : kMoments)
    for (const MasterKind master : kMasters) {
      check({"adam", moments, master, dtypes::fp32, {1, 1}});
      check({"adam", moments, master, dtypes::bf16, {1, 256}});
      check({"adam", moments, master, dtypes::fp32, {300, 1}});
      check({"adam", moments, master, dtypes::fp32, {0, 5}}, 1);
    }
}

TEST_CASE("the number of threads changes no bit") {
  const int before = num_threads();
  for (const MomentKind moments : kMoments)
    for (const MasterKind master : kMasters) {
      const Choice c{"adam", moments, master, dtypes::bf16, {300, 301}};
      std::vector<std::vector<std::vector<double>>> states;
      for (const int threads : {1, 4}) {
        set_num_threads(threads);
        const auto p = make_parameter(c);
        auto optimizer = make_optimizer(spec_of(c));
        optimizer->attach({p.get()});
        for (int step = 0; step < 2; ++step) {
          accumulate(*p, gradient(c, step));
          optimizer->step(0.1f, 2);
        }
        states.push_back(state_of(*p, *optimizer));
      }
      CHECK(states[0] == states[1]);
    }
  set_num_threads(before);
}

TEST_CASE("updates of a tenth of a code or of a bf16 step arrive on average") {
  // 20000 equal weights; sd of the mean = step * sqrt(0.1 * 0.9 / 20000) = 0.0021 steps.
  const Shape shape{20, 1000};
  for (const MasterKind master : {MasterKind::kBf16, MasterKind::kNone}) {
    ParameterSpec spec = weight_spec(quant_spec(dtypes::int8, "fixed"));
    spec.quant->scale = 0.01f;
    spec.init = {"constant", 0.5, 0};
    spec.master = master;
    Parameter p(shape, spec);
    p.initialize("w", 5);
    auto optimizer = make_optimizer(named("sgd"));
    optimizer->attach({&p});
    const double step = master == MasterKind::kNone ? 0.01 : 0x1p-9;  // bf16 below 0.5: 8 bits from 0.25 on
    const double w0 = p.has_master() ? 0.5 : p.value().values()[0];
    accumulate(p, Tensor::full(shape, dtypes::fp32, 1.0));
    optimizer->step(static_cast<float>(0.1 * step), 1);
    const auto after = p.has_master() ? p.master().elements() : p.value().values();
    double mean = 0;
    int64_t moved = 0;
    for (const double x : after) {
      mean += x / static_cast<double>(after.size());
      moved += x != w0;
    }
    CHECK(moved > 0);
    CHECK(moved < 4000);
    CHECK(std::fabs((w0 - mean) / step - 0.1) < 0.011);
  }
}

TEST_CASE("squares in codes never become 0 where they were not, so no update explodes") {
  for (const MomentKind moments : {MomentKind::kInt8, MomentKind::kInt4}) {
    // Half the gradients are 1e-4 of the others: in 4 bits their roots are far below one code.
    auto p = float_parameter("w", {4, 256});
    OptimizerSpec spec = named("adam");
    spec.moments = moments;
    auto optimizer = make_optimizer(spec);
    optimizer->attach({p.get()});
    const Tensor g = Tensor::empty({4, 256}, dtypes::fp32);
    for (int step = 0; step < 50; ++step) {
      for (int64_t i = 0; i < g.numel(); ++i) g.as<float>()[i] = i % 2 ? 1.0f : 1e-4f;
      const Floats before = floats(p->master());
      accumulate(*p, g);
      optimizer->step(0.01f, 1);
      for (size_t i = 0; i < before.size(); ++i) CHECK(std::fabs(p->master().as<float>()[i] - before[i]) < 0.5f);
    }
  }
}
