// Optimizers on the (emulated) device against the CPU, in strict mode, bit for bit.
#include "bitgrad/optim/optimizer.h"

#include "cuda/same_as_cpu.h"
#include "optim/optim_support.h"
#include "support/numbers.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

struct Case {
  std::string name;
  OptimizerSpec optimizer;
  ParameterSpec parameter;
};

ParameterSpec codes(DType dtype, const std::string& scheme, MasterKind master,
                    const Granularity& granularity = Granularity::channel(0)) {
  ParameterSpec p;
  p.init = {"uniform", -1, 1};
  p.quant.emplace();
  p.quant->dtype = dtype;
  p.quant->scheme = scheme;
  p.quant->granularity = granularity;
  p.quant->rounding = Rounding::kStochastic;
  p.master = master;
  return p;
}

OptimizerSpec rule(const std::string& name, MomentKind moments = MomentKind::kFp32) {
  OptimizerSpec spec = named(name);
  spec.moments = moments;
  spec.momentum = name == "sgd" ? 0.9f : 0.0f;
  return spec;
}

// Every rule, moments, master; value clip, norm clip, decay, clamp, learned parts, gradients in bf16.
std::vector<Case> cases() {
  std::vector<Case> all;
  ParameterSpec plain;
  plain.init = {"uniform", -1, 1};
  for (const char* name : {"sgd", "adam", "adamw"})
    for (const MomentKind moments : {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8})
      all.push_back({concat(name, ' ', moment_name(moments)), rule(name, moments), plain});
  for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone})
    all.push_back({concat("int8, master ", master_name(master)), rule("adam", MomentKind::kInt8),
                   codes(dtypes::int8, "absmax", master)});
  Case nesterov{"nesterov, decay, value clip", rule("sgd"), codes(dtypes::int4, "symmetric", MasterKind::kFp32)};
  nesterov.optimizer.nesterov = true;
  nesterov.optimizer.weight_decay = 0.01f;
  nesterov.optimizer.clip_value = 0.05f;
  nesterov.parameter.latent_clamp = 0.9f;
  all.push_back(nesterov);
  Case norm{"norm clip, bf16 gradient", rule("adamw"), codes(dtypes::int8, "affine", MasterKind::kFp32)};
  norm.optimizer.clip_norm = 0.5f;
  norm.parameter.grad = dtypes::bf16;
  all.push_back(norm);
  Case narrow{"norm clip, fp32 gradient, bf16 master", rule("adam"), codes(dtypes::int8, "absmax", MasterKind::kBf16)};
  narrow.optimizer.clip_norm = 0.25f;
  all.push_back(narrow);
  for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
    Case learned{concat("learned steps, gradient ", grad), rule("adam"), codes(dtypes::int4, "lsq", MasterKind::kFp32)};
    learned.parameter.quant->rounding = Rounding::kNearest;
    learned.parameter.grad = grad;
    learned.optimizer.clip_norm = 3;
    learned.optimizer.clip_value = 0.5f;
    all.push_back(learned);
  }
  Case signs{"signs, clamp", rule("adam"), codes(dtypes::bint1, "binary", MasterKind::kFp32, Granularity::tensor())};
  signs.parameter.quant->rounding = Rounding::kNearest;
  signs.parameter.latent_clamp = 1;
  all.push_back(signs);
  Case bop{"bop", rule("bop"), codes(dtypes::bint1, "binary", MasterKind::kNone, Granularity::tensor())};
  bop.parameter.quant->rounding = Rounding::kNearest;
  bop.optimizer.bop_gamma = 0.1f;
  all.push_back(bop);
  return all;
}

Results train(const Case& c) {
  Parameter p({37, 48}, c.parameter);
  p.initialize("layers.0.weight", 3);
  ParameterSpec bias;
  bias.optimizer = "sgd";
  Parameter b({37}, bias);
  b.initialize("layers.0.bias", 3);
  const auto optimizer = make_optimizer(c.optimizer);
  optimizer->attach({&p, &b});
  Results out;
  for (int step = 0; step < 3; ++step) {
    const auto seed = static_cast<uint64_t>(step);
    accumulate(p, here(random_tensor({37, 48}, p.grad_dtype(), 10 + seed, -3, 3)));
    accumulate(b, here(random_tensor({37}, dtypes::fp32, 20 + seed, -3, 3)));
    const RequantKey due{3, step + 1};
    optimizer->step(0.05f / static_cast<float>(step + 1), 7, step != 1 ? &due : nullptr);
    out.push_back(p.value().clone(MemoryKind::kWorkspace));
    out.push_back(p.dequantized().clone(MemoryKind::kWorkspace));
    out.push_back(b.value().clone(MemoryKind::kWorkspace));
    for (const auto& s : optimizer->state()) out.push_back(s.tensor.clone(MemoryKind::kWorkspace));
    for (const auto& part : p.learned()) out.push_back(part->value().clone(MemoryKind::kWorkspace));
    out.push_back(here(Tensor::from_elements({1}, dtypes::fp32, std::vector<double>{optimizer->last_norm()})));
  }
  return out;
}

// Moves numbers of the host.
class HostRule final : public UpdateRule {
 public:
  std::string_view family() const override { return "host"; }
  std::vector<Part> parts() const override { return {}; }
  void update(const UpdatePiece& piece) const override {
    for (int64_t i = 0; i < piece.n; ++i) piece.w[i] -= piece.lr * piece.g[i];
  }
};

}  // namespace

TEST_CASE("Three steps of every rule, master and kind of moments have the bits of the CPU") {
  for (const Case& c : cases()) {
    INFO(c.name);
    CHECK(device_difference([&] { return train(c); }) == "");
  }
}

TEST_CASE("A gradient that is not finite is refused with the CPU's text, before anything moves") {
  for (const DType grad : {dtypes::fp32, dtypes::bf16})
    for (const float clip_norm : {0.0f, 1.0f}) {
      ParameterSpec spec;
      spec.grad = grad;
      spec.init = {"uniform", -1, 1};
      OptimizerSpec rules = rule("adam");
      rules.clip_norm = clip_norm;
      std::vector<double> moved;
      const TwoErrors e = errors_of([&] {
        Parameter a({2, 5}, spec), p({3, 5}, spec);
        a.initialize("a", 1);
        p.initialize("p", 1);
        const auto optimizer = make_optimizer(rules);
        optimizer->attach({&a, &p});
        accumulate(a, Tensor::full(Shape{2, 5}, grad, 1));
        accumulate(p, Tensor::full(Shape{3, 5}, grad, NAN));
        const std::vector<double> before = a.value().elements();
        try {
          optimizer->step(0.1f, 1);
        } catch (const Error&) {
          CHECK(a.value().elements() == before);
          CHECK_FALSE(optimizer->half_moved());
          throw;
        }
      });
      CHECK(e.on_cpu != "");
      CHECK(e.on_gpu == e.on_cpu);
    }
}

TEST_CASE("The largest gradients in bf16 are finite") {
  const DeviceGuard guard(gpu());
  ParameterSpec spec;
  spec.grad = dtypes::bf16;
  Parameter p({3, 5}, spec);
  p.initialize("p", 1);
  const auto optimizer = make_optimizer(rule("sgd"));
  optimizer->attach({&p});
  accumulate(p, Tensor::full(Shape{3, 5}, dtypes::bf16, 3.3e38));
  optimizer->step(1e-38f, 1);
  CHECK(error_of([] { poll_errors(); }) == "");
}

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
  CHECK_FALSE(optimizer->half_moved());
  CHECK(contains(error_of([] { poll_errors(); }), "the master of 'p'"));
  CHECK(optimizer->half_moved());
  CHECK(contains(error_of([&] { optimizer->step(0.1f, 1); }), "between two steps"));
}

TEST_CASE("A rule that moves numbers of the host cannot train on a device, and says what to do") {
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

TEST_CASE("Updates are not fused on a device, and say so") {
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
