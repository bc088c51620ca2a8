// Optimizers on a device: errors that are found when flags are read, and what a device cannot do.
#include "bitgrad/optim/optimizer.h"

#include "cuda/same_as_cpu.h"
#include "optim/optim_support.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

ParameterSpec codes(DType dtype, const std::string& scheme, MasterKind master) {
  ParameterSpec p;
  p.init = {"uniform", -1, 1};
  p.quant.emplace();
  p.quant->dtype = dtype;
  p.quant->scheme = scheme;
  p.quant->granularity = Granularity::channel(0);
  p.quant->rounding = Rounding::kStochastic;
  p.master = master;
  return p;
}

OptimizerSpec rule(const std::string& name) {
  OptimizerSpec spec = named(name);
  spec.momentum = name == "sgd" ? 0.9f : 0.0f;
  return spec;
}

// Moves numbers of the host.
class HostRule final : public UpdateRule {
 public:
  std::string_view family() const override { return "host"; }
  std::vector<Moment> moments(const Shape&) const override { return {}; }
  void update(const UpdatePiece& piece) const override {
    for (int64_t i = 0; i < piece.n; ++i) piece.w[i] -= piece.lr * piece.g[i];
  }
};

}  // namespace

TEST_CASE(
    "New numbers that are not finite are found when the flags are read, and the optimizer knows that it is lost") {
  const DeviceGuard guard(gpu());
  Parameter p({4, 32}, codes(dtypes::int8, "absmax", MasterKind::kFp32));
  p.initialize("p", 1);
  const auto optimizer = make_optimizer(rule("sgd"));
  optimizer->attach({&p});
  accumulate(p, Tensor::full(Shape{4, 32}, dtypes::fp32, 3e38));
  const RequantKey due{1, 1};
  optimizer->step(3e38f, 1, &due);
  CHECK_FALSE(optimizer->partially_updated());
  CHECK(contains(error_of([] { poll_errors(); }), "the master of 'p'"));
  CHECK(optimizer->partially_updated());
  CHECK(contains(error_of([&] { optimizer->step(0.1f, 1); }), "between two steps"));
}

TEST_CASE("A rule that updates values of the host cannot train on a device, and the error has a remedy") {
  register_optimizer("host_rule_of_test", [](const OptimizerSpec&) { return std::make_unique<HostRule>(); });
  const DeviceGuard guard(gpu());
  auto p = float_parameter("w", {3, 4});
  const auto optimizer = make_optimizer(named("host_rule_of_test"));
  try {
    optimizer->attach({p.get()});
    FAIL("attached");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::kDevice);
    CHECK(contains(e.what(), "'host_rule_of_test' needs CPU memory"));
  }
}

TEST_CASE("Updates are not fused on a device, which is reported") {
  const DeviceGuard guard(gpu());
  auto p = float_parameter("w", {3, 4});
  const auto optimizer = make_optimizer(rule("adam"));
  optimizer->attach({p.get()});
  CHECK(optimizer->not_fused(*p) == "on cuda:0 whole tensors are updated after backward");
  optimizer->arm(0.1f, 1);
  accumulate(*p, here(random_tensor({3, 4}, dtypes::fp32, 3, -1, 1)));
  optimizer->step(0.1f, 1);
  CHECK(optimizer->fused_updates().front().why_not == "on cuda:0 whole tensors are updated after backward");
}
