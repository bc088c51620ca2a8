// Steps of the optimizer on an emulated device as one sweep a parameter: the bits of the CPU, and which kernels run.
#include "bitgrad/optim/optimizer.h"

#include "bitgrad/quant/scheme.h"
#include "cuda/counted.h"
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
  Shape shape{37, 48};
};

OptimizerSpec rule(const std::string& name, MomentKind moments = MomentKind::kFp32) {
  OptimizerSpec spec = named(name);
  spec.moments = moments;
  spec.momentum = name == "sgd" ? 0.9f : 0.0f;
  return spec;
}

ParameterSpec codes(DType dtype, const std::string& scheme, const Granularity& granularity = Granularity::channel(0)) {
  ParameterSpec p;
  p.init = {"uniform", -1, 1};
  p.quant.emplace();
  p.quant->dtype = dtype;
  p.quant->scheme = scheme;
  p.quant->granularity = granularity;
  return p;
}

bool legal(const ParameterSpec& p) {
  return error_of([&] { find_quantizer(p.quant->scheme).check(*p.quant, true); }).empty();
}

// The layouts that the step writes: those of a product on the device, where the dtype has them.
void plan_layouts(Parameter& p) {
  if (!p.low_bit()) return;
  for (const Layout layout : {layouts::transposed, layouts::frag64, layouts::planes})
    if (layout.info().supports(p.value().dtype())) p.memory().add_layout(layout);
}

// Codes of a derived layout as bytes.
Tensor bytes_of(const Tensor& layout) {
  std::vector<uint8_t> bytes(static_cast<size_t>(layout.bytes()));
  if (!bytes.empty()) {
    if (layout.device().is_cpu())
      std::memcpy(bytes.data(), layout.data(), bytes.size());
    else
      device_backend(layout.device()).copy_to_host(bytes.data(), layout.data(), layout.bytes());
  }
  return here(Tensor::from_elements({layout.bytes()}, dtypes::uint8, std::vector<double>(bytes.begin(), bytes.end())));
}

// Three steps; codes are not due in the second.
Results train(const Case& c) {
  Parameter p(c.shape, c.parameter);
  p.initialize("layers.0.weight", 3);
  plan_layouts(p);
  const auto optimizer = make_optimizer(c.optimizer);
  optimizer->attach({&p});
  Results out;
  for (int step = 0; step < 3; ++step) {
    accumulate(p, here(random_tensor(c.shape, p.spec().grad, 10 + static_cast<uint64_t>(step), -3, 3)));
    const RequantKey due{3, step + 1};
    optimizer->step(0.05f / static_cast<float>(step + 1), 7, step != 1 ? &due : nullptr);
    out.push_back(p.value().clone(MemoryKind::kWorkspace));
    out.push_back(dequantized(p).clone(MemoryKind::kWorkspace));
    for (const auto& s : optimizer->state()) out.push_back(s.tensor.clone(MemoryKind::kWorkspace));
    for (const auto& part : p.learned()) out.push_back(part->value().clone(MemoryKind::kWorkspace));
    for (const Tensor& layout : p.value().attached_layouts()) out.push_back(bytes_of(layout));
  }
  return out;
}

void check(const Case& c) {
  INFO(c.name << ' ' << c.shape);
  CHECK(device_difference([&] { return train(c); }) == "");
}

// What the device says of a parameter, and how many kernels a due step of it launches.
struct Said {
  std::string why;
  int64_t sweeps, checks, all;
};
Said said(const Case& c) {
  const DeviceGuard guard(gpu());
  Parameter p(c.shape, c.parameter);
  p.initialize("w", 1);
  if (p.low_bit())
    for (const Layout layout : {layouts::transposed, layouts::frag64})
      if (layout.info().supports(p.value().dtype())) p.memory().add_layout(layout);
  const auto optimizer = make_optimizer(c.optimizer);
  optimizer->attach({&p});
  accumulate(p, here(random_tensor(c.shape, p.spec().grad, 3, -1, 1)));
  const RequantKey due{1, 1};
  const std::string why = optimizer->not_one_kernel(p);
  device_backend(gpu()).synchronize();
  const Counted sweeps("update_rows_cuda"), checks("check_finite_cuda");
  const int64_t before = cuda::detail::launches();
  optimizer->step(0.1f, 4, &due);
  poll_errors();
  return {why, sweeps.now(), checks.now(), cuda::detail::launches() - before};
}

}  // namespace

TEST_CASE("A step is one kernel for every rule with fp32 moments, dtype and scheme with scales of rows") {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    std::vector<ParameterSpec> all = {codes(dtypes::bint1, "binary", Granularity::tensor()),
                                      codes(dtypes::int1, "step"), codes(dtypes::ternary, "ternary"),
                                      codes(dtypes::uint4, "affine"),
                                      codes(dtypes::int4, "fixed", Granularity::tensor())};
    for (const DType dtype :
         {dtypes::int2, dtypes::int3, dtypes::int4, dtypes::int5, dtypes::int6, dtypes::int7, dtypes::int8})
      for (const char* scheme : {"absmax", "symmetric", "symmetric_no_clip", "affine"})
        all.push_back(codes(dtype, scheme, dtype == dtypes::int8 ? Granularity::token() : Granularity::channel(0)));
    all.push_back(codes(dtypes::bint1, "binary"));
    all.back().quant->alpha = true;
    ParameterSpec plain;
    plain.init = {"uniform", -1, 1};
    all.push_back(plain);
    for (const ParameterSpec& p : all) {
      const Said it = said({"", rule(name), p});
      INFO(name << ' ' << (p.quant ? concat(p.quant->dtype, ' ', p.quant->scheme) : "fp32"));
      CHECK(it.why == "");
      CHECK(it.sweeps == 1);
      CHECK(it.checks == 1);
      CHECK(it.all == 2);
    }
  }
}

TEST_CASE("What one kernel cannot do is reported, and separate kernels do it") {
  const ParameterSpec int4 = codes(dtypes::int4, "symmetric");
  const auto with = [](ParameterSpec p, auto&& change) {
    change(p);
    return p;
  };
  const std::vector<std::pair<std::string, Case>> all = {
      {"it has no values", {"", rule("adam"), int4, {0, 3}}},
      {"its moments are widened from bf16 and rounded again", {"", rule("adam", MomentKind::kBf16), int4}},
      {"its moments are widened from int8 and rounded again", {"", rule("sgd", MomentKind::kInt8), int4}},
      {"its moments are widened from int4 and rounded again", {"", rule("adam", MomentKind::kInt4), int4}},
      {"its master is rounded to bf16 before requantization",
       {"", rule("adam"), with(int4, [](auto& p) { p.master = MasterKind::kBf16; })}},
      {"its values are dequantized from its codes first",
       {"", rule("adam"), with(codes(dtypes::int8, "absmax"), [](auto& p) { p.master = MasterKind::kNone; })}},
      {"scales of granularity tensor need all rows first",
       {"", rule("adam"), codes(dtypes::int4, "symmetric", Granularity::tensor())}},
      {"scales of granularity channel(1) need all rows first",
       {"", rule("adam"), codes(dtypes::int4, "symmetric", Granularity::channel(1))}},
      {"scales of granularity group(16) are not one per row",
       {"", rule("adam"), codes(dtypes::int4, "symmetric", Granularity::groups(16))}},
      {"learned parts are updated before requantization", {"", rule("adam"), codes(dtypes::int4, "lsq")}},
      {"scales of scheme minmax_offset are not computed row by row",
       {"", rule("adam"), codes(dtypes::int4, "minmax_offset")}},
      {"codes of nf4 by scheme codebook need a separate kernel", {"", rule("adam"), codes(dtypes::nf4, "codebook")}},
      {"scheme dorefa_weight has its own backward",
       {"", rule("adam"), codes(dtypes::uint4, "dorefa_weight", Granularity::tensor())}},
      {"its straight-through rule, of codes by scheme binary, needs a separate kernel",
       {"", rule("adam"), with(codes(dtypes::bint1, "binary"), [](auto& p) { p.quant->ste = SteRule::kTanh; })}},
      {"the update rule of family bop needs a separate kernel",
       {"", rule("bop"), with(codes(dtypes::bint1, "binary"), [](auto& p) { p.master = MasterKind::kNone; })}}};
  for (const auto& [why, c] : all) {
    const Said it = said(c);
    if (why.find("learned") == std::string::npos) CHECK(it.why == why);
    INFO(why);
    CHECK((it.all > 2 || c.shape.numel() == 0));
  }
  CHECK(said({"", rule("adam"), codes(dtypes::int4, "lsq")}).why == "scheme lsq has its own backward");
  auto p = float_parameter("w", {3, 4});
  CHECK(make_optimizer(rule("sgd"))->not_one_kernel(*p) == "the CPU updates blocks of rows");
}

TEST_CASE("Trained parameters and layouts have the bits of the CPU: every scheme, dtype and granularity") {
  std::mt19937 random(7);
  constexpr const char* kRules[] = {"sgd", "adam", "adamw"};
  constexpr SteRule kSte[] = {SteRule::kIdentity, SteRule::kClip, SteRule::kApproxSign, SteRule::kTanh, SteRule::kNone};
  for (const std::string_view scheme : quantizer_names())
    for (const DType dtype : {dtypes::bint1, dtypes::int1, dtypes::ternary, dtypes::int2, dtypes::int3, dtypes::int4,
                              dtypes::int7, dtypes::int8, dtypes::uint4, dtypes::nf4}) {
      if (!known_quantizer(scheme).on_device()) continue;  // of another test
      const Granularity some[] = {Granularity::channel(0), Granularity::channel(0), Granularity::tensor(),
                                  Granularity::groups(16)};
      Case c;
      c.parameter = codes(dtype, std::string(scheme), some[random() % std::size(some)]);
      QuantSpec& quant = *c.parameter.quant;
      const auto keep_if_legal = [&](auto&& change) {
        const QuantSpec before = quant;
        change();
        if (!legal(c.parameter)) quant = before;
      };
      keep_if_legal([&] { quant.alpha = scheme == "binary" && random() % 2 == 0; });
      keep_if_legal([&] { quant.pow2 = random() % 3 == 0; });
      keep_if_legal([&] { quant.div = random() % 3 == 0; });
      keep_if_legal([&] { quant.rounding = random() % 2 == 0 ? Rounding::kStochastic : Rounding::kNearest; });
      if (random() % 2 == 0) keep_if_legal([&] { quant.ste = kSte[random() % std::size(kSte)]; });
      if (!legal(c.parameter)) quant.granularity = Granularity::tensor();
      if (!legal(c.parameter)) continue;
      c.optimizer = rule(kRules[random() % std::size(kRules)]);
      c.optimizer.nesterov = c.optimizer.name == "sgd" && random() % 2 == 0;
      c.optimizer.weight_decay = random() % 2 == 0 ? 0.02f : 0.0f;
      c.optimizer.clip_value = random() % 2 == 0 ? 0.1f : 0.0f;
      c.optimizer.clip_norm = random() % 2 == 0 ? 0.5f : 0.0f;
      c.parameter.grad = random() % 2 == 0 ? dtypes::bf16 : dtypes::fp32;
      if (random() % 2 == 0) c.parameter.latent_clamp = 0.9f;
      c.shape = random() % 2 == 0 ? Shape{37, 48} : Shape{70, 131};
      c.name = concat(dtype, ' ', scheme, ' ', quant.granularity, ' ', c.optimizer.name);
      check(c);
    }
}

TEST_CASE("Trained signs with alpha have the bits of the CPU under every straight-through rule") {
  for (const SteRule ste : {SteRule::kIdentity, SteRule::kClip, SteRule::kApproxSign, SteRule::kTanh, SteRule::kNone})
    for (const Granularity& granularity : {Granularity::channel(0), Granularity::tensor(), Granularity::groups(16)}) {
      Case c{concat("rule ", enum_name(ste), ' ', granularity), rule("sgd"),
             codes(dtypes::bint1, "binary", granularity)};
      c.parameter.quant->alpha = true;
      c.parameter.quant->ste = ste;
      check(c);
    }
}

TEST_CASE("Trained parameters have the bits of the CPU: moments, masters, long rows, axes") {
  for (const MomentKind moments : {MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4})
    for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone}) {
      Case c{concat(enum_name(moments), ", master ", enum_name(master)), rule("adam", moments),
             codes(dtypes::int8, "absmax")};
      c.parameter.master = master;
      c.parameter.quant->rounding = Rounding::kStochastic;
      check(c);
    }
  for (const Shape& shape : {Shape{3, 1025}, Shape{2, 17000}, Shape{1, 5000}, Shape{5, 3, 40}, Shape{77}}) {
    check({"int4", rule("adam"), codes(dtypes::int4, "symmetric"), shape});
    check({"binary", rule("sgd"), codes(dtypes::bint1, "binary", Granularity::tensor()), shape});
    check({"fp32", rule("adamw"), ParameterSpec{}, shape});
  }
}

TEST_CASE("Frozen scales stay while codes follow the master, on the device as on the CPU") {
  const auto run = [] {
    Parameter p({9, 70}, codes(dtypes::int4, "symmetric"));
    p.initialize("w", 3);
    p.change([](ParameterSpec& s) { s.scales_frozen = true; });
    plan_layouts(p);
    const auto optimizer = make_optimizer(rule("adam"));
    optimizer->attach({&p});
    Results out;
    for (int step = 0; step < 2; ++step) {
      accumulate(p, here(random_tensor({9, 70}, dtypes::fp32, 4, -3, 3)));
      const RequantKey due{3, step + 1};
      optimizer->step(0.3f, 2, &due);
      out.push_back(p.value().clone(MemoryKind::kWorkspace));
      out.push_back(dequantized(p).clone(MemoryKind::kWorkspace));
    }
    return out;
  };
  CHECK(device_difference(run) == "");
}

TEST_CASE("A copy of the values in fp32 follows the codes, with kernels of its own") {
  const auto run = [] {
    Parameter p({9, 70}, codes(dtypes::int4, "symmetric"));
    p.initialize("w", 3);
    const Tensor copy = p.read(ReadAs::kValues).value();
    const auto optimizer = make_optimizer(rule("adam"));
    optimizer->attach({&p});
    if (!current_device().is_cpu())
      CHECK(optimizer->not_one_kernel(p) == "its dequantized copy in fp32 is written with the codes");
    accumulate(p, here(random_tensor({9, 70}, dtypes::fp32, 4, -3, 3)));
    const RequantKey due{3, 1};
    optimizer->step(0.3f, 2, &due);
    return Results{p.value().clone(MemoryKind::kWorkspace), copy.clone(MemoryKind::kWorkspace)};
  };
  CHECK(device_difference(run) == "");
}
