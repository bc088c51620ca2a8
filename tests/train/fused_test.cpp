// Updates inside backward: the bits of the step that comes after it, when they are refused, and what is left when they
// fail.
#include <limits>

#include "bitgrad/autograd/op.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "bitgrad/ops/ops.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

constexpr int64_t kRows = 6, kClasses = 3;

struct Case {
  std::string optimizer = "adam";
  QuantSpec quant = quant_spec(dtypes::bint1, "binary");
  MasterKind master = MasterKind::kFp32;
  MomentKind moments = MomentKind::kFp32;
  DType grad = dtypes::fp32;
  ProductMode gw = ProductMode::kFp32;
  int64_t in = 40, out = 37, every = 1, accumulate = 1;
  float clip_norm = 0, clip_value = 0;
  bool fused = true;
  friend std::ostream& operator<<(std::ostream& o, const Case& c) {
    return o << c.optimizer << ", " << c.quant.dtype << ' ' << c.quant.scheme << " per " << c.quant.granularity
             << ", master " << enum_name(c.master) << ", moments " << enum_name(c.moments) << ", gradients " << c.grad
             << ", gw " << enum_name(c.gw) << ", [" << c.out << ',' << c.in << "], every " << c.every;
  }
};

LayerSpec quantize_layer(DType dtype) {
  LayerSpec spec;
  spec.kind = "quantize";
  spec.activation = ActivationQuant{quant_spec(dtype, dtype == dtypes::bint1 ? "binary" : "symmetric")};
  return spec;
}
LayerSpec linear_layer(const Case& c, int64_t out) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes["out"] = out;
  spec.attributes["bias"] = true;
  spec.product.gw = c.gw;
  spec.weight = weight_spec(c.quant, c.grad);
  spec.weight.master = c.master;
  if (c.optimizer == "bop") spec.weight.optimizer = "bop";
  if (c.master != MasterKind::kNone) spec.weight.latent_clamp = 0.9f;
  return spec;
}

// quantize -> linear -> quantize -> linear
std::unique_ptr<Learner> make_learner(const Case& c) {
  OptimizerSpec spec;
  spec.name = c.optimizer == "bop" ? "adam" : c.optimizer;
  if (spec.name == "sgd") spec.momentum = 0.9f;
  if (spec.name == "adamw") spec.weight_decay = 0.01f;
  spec.bop.threshold = 1e-7f;
  spec.moments = c.moments;
  spec.clip_norm = c.clip_norm;
  spec.clip_value = c.clip_value;
  spec.fused = c.fused;
  auto learner = std::make_unique<Learner>(
      make_sequential({quantize_layer(dtypes::bint1), linear_layer(c, c.out), quantize_layer(dtypes::int4),
                       linear_layer(c, kClasses)},
                      c.in),
      find_loss("squared_hinge"), spec, RequantPolicy{c.accumulate, c.every}, [](int64_t) { return 0.05f; }, 11);
  learner->plan({.input = {.sample = {c.in}}, .outputs = kClasses, .train_samples = kRows});
  return learner;
}

void train(Learner& learner, const Case& c, int64_t microbatches) {
  const std::vector<int32_t> labels{0, 1, 2, 0, 1, 2};
  for (int64_t i = 0; i < microbatches; ++i)
    learner.microbatch(
        random_tensor({kRows, c.in}, dtypes::fp32, 500 + static_cast<uint64_t>(learner.state().microbatch)), labels);
}

// Why the weight of layer 1 was not updated inside backward; empty: it was.
std::string why_not(const Learner& learner) {
  for (const auto& u : learner.fused_updates())
    if (u.path == "layers.1.weight") return u.why_not;
  return "no such parameter";
}

std::string hash_after(Case c, int64_t microbatches, bool fused) {
  c.fused = fused;
  const auto learner = make_learner(c);
  train(*learner, c, microbatches);
  CHECK(why_not(*learner).empty() == fused);
  return state_hash(*learner, {});
}

std::vector<Case> cases() {
  std::vector<Case> out;
  const auto with = [&](auto change) {
    Case c;
    change(c);
    out.push_back(c);
  };
  for (const char* optimizer : {"sgd", "adam", "adamw"})
    for (const MomentKind moments : {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4})
      for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16})
        with([&](Case& c) { c.optimizer = optimizer, c.moments = moments, c.master = master; });
  for (const DType grad : {dtypes::fp32, dtypes::bf16})
    for (const ProductMode gw : {ProductMode::kFp32, ProductMode::kBf16, ProductMode::kInt8})
      with([&](Case& c) { c.grad = grad, c.gw = gw, c.every = 3, c.optimizer = "sgd"; });
  for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1),
                               Granularity::groups(32), Granularity::groups(5, 0)})
    with([&](Case& c) { c.quant = quant_spec(dtypes::int4, "symmetric"), c.quant.granularity = g; });
  for (const MomentKind moments : {MomentKind::kFp32, MomentKind::kInt8, MomentKind::kInt4}) {
    with([&](Case& c) {
      c.quant = quant_spec(dtypes::int4, "absmax"), c.quant.granularity = Granularity::channel(0);
      c.master = MasterKind::kNone, c.moments = moments;
    });
    with([&](Case& c) { c.optimizer = "bop", c.master = MasterKind::kNone, c.moments = moments; });
  }
  with([](Case& c) {
    c.quant = quant_spec(dtypes::int8, "symmetric", Rounding::kStochastic);
    c.quant.granularity = Granularity::channel(0), c.every = 3;
  });
  with([](Case& c) { c.clip_value = 0.01f; });
  with([](Case& c) { c.quant.alpha = true, c.quant.granularity = Granularity::channel(0); });
  // Rows past one block, ragged, and alone.
  for (const int64_t rows : {1, 15, 64, 65, 200}) with([&](Case& c) { c.out = rows, c.in = 33; });
  for (const MomentKind moments : {MomentKind::kInt8, MomentKind::kInt4}) {
    with([&](Case& c) { c.out = 150, c.in = 1, c.moments = moments; });
    with([&](Case& c) { c.out = 35, c.in = 3000, c.master = MasterKind::kBf16, c.moments = moments; });
  }
  return out;
}

// The gradient of y is this number.
struct Slope {
  static constexpr std::string_view kName = "slope";
  struct Saved {
    Shape shape;
    float slope = 0;
  };
  static Tensor forward(Saved& s, std::span<const Tensor> in, float slope) {
    s = {in[0].shape(), slope};
    return Tensor::scalar(0);
  }
  static void backward(Saved& s, std::span<const Tensor>, std::span<GradSlot> g) {
    g[0].set(Tensor::full(s.shape, dtypes::fp32, static_cast<double>(s.slope)));
  }
};

}  // namespace

TEST_CASE("updates inside backward leave the bits of those after it, for every rule, form and number of threads") {
  const int threads = num_threads();
  for (const Case& c : cases()) {
    INFO(c);
    const std::string after = hash_after(c, 4, false);
    for (const int n : {1, 2, 4}) {
      set_num_threads(n);
      CHECK(hash_after(c, 4, true) == after);
    }
    set_num_threads(threads);
  }
}

TEST_CASE("updates inside backward leave the bits of those after it when the bits are strict") {
  set_bits_mode(BitsMode::kStrict);
  for (const ProductMode gw : {ProductMode::kFp32, ProductMode::kInt8}) {
    Case c;
    c.gw = gw;
    c.out = 130;
    CHECK(hash_after(c, 3, true) == hash_after(c, 3, false));
  }
  set_bits_mode(BitsMode::kFast);
}

TEST_CASE("what forbids updates inside backward is reported") {
  const auto reason = [](auto change) {
    Case c;
    change(c);
    const auto learner = make_learner(c);
    train(*learner, c, c.accumulate);
    return why_not(*learner);
  };
  CHECK(reason([](Case&) {}).empty());
  CHECK(reason([](Case& c) { c.fused = false; }) == "optim.fused is off");
  CHECK(reason([](Case& c) { c.clip_norm = 1; }) ==
        "the norm of all gradients must be known first (optim.clip_norm, log.gradient_norm)");
  CHECK(reason([](Case& c) { c.accumulate = c.every = 2; }) == "gradients are summed over 2 microbatches");
  CHECK(reason([](Case& c) { c.quant = quant_spec(dtypes::int4, "lsq"); }) ==
        "the gradient of its learned layers.1.weight.step needs all rows first");
  for (const MomentKind moments : {MomentKind::kInt8, MomentKind::kInt4})
    CHECK(reason([&](Case& c) { c.in = 20001, c.out = 60, c.moments = moments; }) ==
          "blocks of its moments span too many rows");
  // Biases are sums of columns, made at once.
  Case c;
  const auto learner = make_learner(c);
  train(*learner, c, 1);
  CHECK(contains(learner->fused_updates()[1].why_not, "its gradient was not produced in blocks of rows"));
}

TEST_CASE("a gradient that a library makes is reported to come as a whole, by the library's name") {
  struct ShippedCosts {
    ~ShippedCosts() { set_gemm_costs({}); }
  };
  const ShippedCosts shipped;
  std::vector<GemmCostFactors> cheap;
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (kernel.order != SumOrder::kFree || (kernel.needs & ~cpu_isa()) != 0) continue;
    cheap.emplace_back().kernel = kernel.name;
    cheap.back().factor.fill(1e-9);
  }
  if (cheap.empty()) {
    WARN("skipped: built without oneDNN and Eigen");
    return;
  }
  set_gemm_costs(cheap);
  const Case c;
  OptimizerSpec adam;
  adam.name = "adam";
  Learner learner(
      make_sequential({linear_layer(c, kClasses)}, c.in), find_loss("squared_hinge"), adam, {},
      [](int64_t) { return 0.1f; }, 1);
  train(learner, c, 1);
  const std::string why = learner.fused_updates().at(0).why_not;
  INFO(why);
  CHECK(std::any_of(cheap.begin(), cheap.end(), [&](const GemmCostFactors& row) {
    return why == concat("its gradient was not produced in blocks of rows: ", row.kernel,
                         " is a library kernel, which sums blocks of rows in another order");
  }));
  // The reason is of one step.
  set_gemm_costs({});
  set_bits_mode(BitsMode::kStrict);
  train(learner, c, 1);
  set_bits_mode(BitsMode::kFast);
  CHECK(learner.fused_updates().at(0).why_not.empty());
}

TEST_CASE("a parameter that is read twice on the tape is updated after backward, with both gradients") {
  set_bits_mode(BitsMode::kStrict);  // linear gives rows
  std::vector<std::vector<uint32_t>> masters;
  for (const bool fused : {false, true}) {
    Parameter w({20, 30}, weight_spec(quant_spec(dtypes::bint1, "binary")));
    w.initialize("w", 3);
    OptimizerSpec spec;
    spec.name = "adam";
    spec.fused = fused;
    Optimizer optimizer(spec);
    optimizer.attach({&w});
    const RequantKey due{3, 1};
    optimizer.arm(0.01f, 5, &due);
    {
      Tape tape;
      const Var x(random_tensor({4, 30}, dtypes::bint1, 1)), z(random_tensor({4, 30}, dtypes::bint1, 2));
      const Var y = add(linear(x, w.read(), {}), linear(z, w.read(), {}));
      tape.backward(apply<Slope>({y}, 0.5f));
    }
    CHECK(w.grad_sink().filled());
    optimizer.step(0.01f, 5, &due);
    CHECK(
        contains(optimizer.fused_updates()[0].why_not, fused ? "was not produced in blocks of rows" : "fused is off"));
    masters.push_back(bits_of(w.master()));
  }
  CHECK(masters[0] == masters[1]);
  set_bits_mode(BitsMode::kFast);
}

TEST_CASE("a step must be the one that was armed, and disarm leaves the rules where they were") {
  Parameter w({20, 30}, weight_spec(quant_spec(dtypes::bint1, "binary"))), twin(w.shape(), w.spec());
  w.initialize("w", 3);
  twin.initialize("w", 3);
  OptimizerSpec spec;
  spec.name = "adam";
  Optimizer optimizer(spec), other(spec);
  optimizer.attach({&w});
  other.attach({&twin});
  optimizer.arm(0.5f, 5);
  CHECK(contains(error_of([&] { optimizer.arm(0.5f, 5); }), "[optimizer] armed already"));
  CHECK(contains(error_of([&] { optimizer.step(0.25f, 5); }), "[optimizer] step differs from the arm that began it"));
  optimizer.disarm();
  const auto backward = [](Parameter& p) {
    Tape tape;
    const Var y = linear(Var(random_tensor({4, 30}, dtypes::fp32, 1)), p.read(), {});
    tape.backward(apply<Slope>({y}, 0.5f));
  };
  backward(w);
  backward(twin);
  CHECK(w.grad_sink().filled());
  optimizer.step(0.25f, 4);
  other.step(0.25f, 4);
  CHECK(bits_of(w.master()) == bits_of(twin.master()));
}

TEST_CASE("the gradient of a fused weight never exists as a whole") {
  for (const bool fused : {false, true}) {
    Case c;
    c.in = 1000;
    c.out = 600;
    c.fused = fused;
    const auto learner = make_learner(c);
    reset_memory_peaks();
    const int64_t before = memory_now()[MemoryKind::kGrad];
    train(*learner, c, 2);
    const int64_t max = memory_peak_by_kind()[MemoryKind::kGrad] - before, whole = 4 * c.in * c.out;
    CHECK((max >= whole) == !fused);
    if (fused) CHECK(max <= 4 * (c.out + kClasses));  // biases
  }
}

TEST_CASE("a gradient that is not finite inside backward names the parameter, and the learner is of no further use") {
  const TempDir dir;
  for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
    Case c;
    c.grad = grad;
    LossFunction infinite = [](const Var& y, const Tensor&) {
      return apply<Slope>({y}, std::numeric_limits<float>::infinity());
    };
    OptimizerSpec spec;
    spec.name = "adam";
    Learner learner(
        make_sequential({quantize_layer(dtypes::bint1), linear_layer(c, kClasses)}, c.in), infinite, spec, {},
        [](int64_t) { return 0.1f; }, 1);
    const Tensor x = random_tensor({kRows, c.in}, dtypes::fp32, 5);
    const std::vector<int32_t> labels(kRows, 0);
    CHECK(learner.usable());
    const std::string text = error_of([&] { learner.microbatch(x, labels); });
    CHECK(
        contains(text, concat("[optimizer] the gradient of 'layers.1.weight' ([3,40] ", grad,
                              ") holds NaN or Inf at optimizer step 0. Other rows were updated in the same backward")));
    CHECK_FALSE(learner.usable());
    const std::string refusal = "[Learner] an Error ended optimizer step 0 in the middle of its updates";
    CHECK(contains(error_of([&] { learner.microbatch(x, labels); }), refusal));
    CHECK(contains(error_of([&] { learner.predict(x); }), refusal));
    CHECK(contains(error_of([&] { learner.flush(); }), refusal));
    CHECK(contains(error_of([&] { save_checkpoint(dir.path() + "/c.safetensors", learner, {}, ""); }), refusal));
  }
}
