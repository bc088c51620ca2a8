// Quantization off, on again and frozen; observers off; calibration.
#include <algorithm>
#include <cmath>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/optimizer.h"
#include "nn/activation_quantizer.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/label_loss.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr QuantMode kOn{}, kOff{QuantSwitch::kOff, true}, kFrozen{QuantSwitch::kFrozen, true};

LayerSpec linear_of(int64_t out) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes["out"] = out;
  spec.attributes["bias"] = true;
  spec.weight.init = {"uniform", -1, 1};
  return spec;
}
std::shared_ptr<Sequential> two_layers() {
  LayerSpec relu;
  relu.kind = "relu";
  return make_sequential({linear_of(12), relu, linear_of(3)}, 10);
}

struct Trained {
  std::shared_ptr<Sequential> model = two_layers();
  StepState state;
  OptimizerSpec spec{.name = "adam"};

  explicit Trained(const LayerQuant& quant) {
    PrepareSpec all;
    all.all = quant;
    prepare(*model, all);
    model->initialize("layers", state);
  }
  Quantizable& slot(size_t i) { return *model->quantizables()[i]; }
  void train(int steps) {
    Optimizer optimizer(spec);
    optimizer.attach(model->parameters());
    const std::vector<int32_t> labels{0, 1, 2, 0, 1, 2};
    for (int i = 0; i < steps; ++i) {
      {
        Tape tape;
        const Tensor x = random_tensor({6, 10}, dtypes::fp32, static_cast<uint64_t>(40 + state.microbatch));
        tape.backward(label_loss((*model)(x), labels));
      }
      const RequantKey due{state.seed, ++state.step};
      optimizer.step(0.05f, 6, &due);
      ++state.microbatch;
    }
  }
};

std::vector<uint32_t> scales_of(Parameter& p) { return bits_of(*p.value().quant()->scale); }
LayerQuant weights_of(DType dtype, const std::string& scheme, const Granularity& g, MasterKind master) {
  LayerQuant q;
  q.weight = quant_spec(dtype, scheme);
  q.weight->granularity = g;
  q.master = master;
  return q;
}

}  // namespace

TEST_CASE("switched off, a prepared model trains as the float model does, bit for bit") {
  Trained low(find_recipe("w8a8")), high(find_recipe("none"));
  set_quant_mode(*low.model, kOff);
  low.train(4);
  high.train(4);
  CHECK_FALSE(low.slot(0).on());
  CHECK_FALSE(low.slot(0).weight().low_bit());
  CHECK(low.slot(0).quant().recipe == "w8a8");
  for (size_t i = 0; i < 2; ++i) CHECK(bits_of(low.slot(i).weight().value()) == bits_of(high.slot(i).weight().value()));

  // On again: the numbers become masters, and codes are those of a model that is prepared now.
  set_quant_mode(*low.model, kOn);
  PrepareSpec now;
  now.all = find_recipe("w8a8");
  prepare(*high.model, now);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(bits_of(low.slot(i).weight().master()) == bits_of(high.slot(i).weight().master()));
    CHECK(bits_of(low.slot(i).weight().value()) == bits_of(high.slot(i).weight().value()));
  }
  low.train(2);
  high.train(2);
  CHECK(bits_of(low.slot(0).weight().master()) == bits_of(high.slot(0).weight().master()));
}

TEST_CASE("masters of every kind survive off and on") {
  for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone}) {
    INFO(enum_name(master));
    LayerQuant q = find_recipe("int8wo");
    q.weight->scheme = "absmax";
    q.master = master;
    Trained t(q);
    t.train(2);
    Parameter& w = t.slot(0).weight();
    const auto codes = bits_of(w.value());
    const auto master_bits = w.has_master() ? bits_of(w.master()) : std::vector<uint32_t>();
    const std::vector<double> values = dequantize_tensor(w.value()).values();
    set_quant_mode(*t.model, kOff);
    CHECK(w.value().dtype() == dtypes::fp32);
    if (w.has_master() && master != MasterKind::kNone) CHECK(bits_of(w.value()) == master_bits);
    if (master == MasterKind::kNone) CHECK(w.value().values() == values);
    set_quant_mode(*t.model, kOn);
    CHECK(bits_of(w.value()) == codes);
    if (w.has_master()) CHECK(bits_of(w.master()) == master_bits);
    CHECK(w.spec().master == master);
  }
}

TEST_CASE("frozen scales stay while codes follow the masters, for every scheme and master") {
  const auto g0 = Granularity::channel(0);
  std::vector<LayerQuant> quants{
      weights_of(dtypes::int4, "symmetric", g0, MasterKind::kFp32),
      weights_of(dtypes::uint4, "minmax_offset", Granularity::groups(4), MasterKind::kBf16),
      weights_of(dtypes::int4, "affine", Granularity::channel(1), MasterKind::kFp32),
      weights_of(dtypes::int4, "symmetric", Granularity::groups(5, 0), MasterKind::kFp32),
      weights_of(dtypes::ternary, "ternary_threshold", Granularity::tensor(), MasterKind::kFp32),
      weights_of(dtypes::ternary, "ternary_threshold", g0, MasterKind::kBf16),
      weights_of(dtypes::bint1, "standardized_binary", g0, MasterKind::kFp32),
      weights_of(dtypes::uint3, "dorefa_weight", Granularity::tensor(), MasterKind::kFp32),
      weights_of(dtypes::nf4, "codebook", Granularity::groups(4), MasterKind::kFp32),
      weights_of(dtypes::int3, "lsq", g0, MasterKind::kFp32),
      weights_of(dtypes::int3, "lsq_plus", Granularity::tensor(), MasterKind::kFp32)};
  for (const LayerQuant& q : quants) {
    INFO(q.weight->scheme << ' ' << q.weight->granularity);
    Trained t(q);
    t.train(1);
    Parameter& w = t.slot(0).weight();
    set_quant_mode(*t.model, kFrozen);
    const std::shared_ptr<const QuantParams> params = w.value().quant();
    const auto codes = bits_of(w.value());
    t.train(6);
    CHECK(scales_of(w) == bits_of(*params->scale));
    CHECK(bits_of(w.value()) != codes);
    const Tensor wide = Tensor::from_elements(w.shape(), dtypes::fp32, w.master().values());
    CHECK(bits_of(w.value()) == bits_of(quantize_tensor(*w.spec().quant, wide, params)));
    set_quant_mode(*t.model, kOn);
    t.train(1);
    if (q.weight->scheme != "dorefa_weight") CHECK(scales_of(w) != bits_of(*params->scale));
  }
}

TEST_CASE("numbers that are refused leave frozen scales frozen") {
  Trained t(weights_of(dtypes::int4, "symmetric", Granularity::channel(0), MasterKind::kFp32));
  Parameter& w = t.slot(0).weight();
  set_quant_mode(*t.model, kFrozen);
  CHECK(error_code_of([&] {
          w.assign(
              Tensor::full(w.shape(), dtypes::fp32, std::numeric_limits<float>::quiet_NaN(), MemoryKind::kWorkspace),
              0);
        }) == 5);
  CHECK(w.spec().scales_frozen);
}

TEST_CASE("a spec and a mode that come together are checked together and change the numbers once") {
  Trained t(weights_of(dtypes::int2, "absmax", Granularity::channel(0), MasterKind::kNone));
  set_quant_mode(*t.model, kOff);
  Parameter& w = t.slot(0).weight();
  w.assign(random_tensor(w.shape(), dtypes::fp32, 77), 0);
  const auto before = bits_of(w.value());
  LayerQuant integer = weights_of(dtypes::int4, "symmetric", Granularity::tensor(), MasterKind::kFp32);
  integer.compute = Compute::kIntegerOut;
  PrepareSpec spec;
  spec.all = integer;
  CHECK(contains(error_of([&] { prepare(*t.model, spec, kOff); }), "it cannot be switched off"));
  CHECK(bits_of(w.value()) == before);
  prepare(*t.model, spec, kFrozen);
  CHECK(bits_of(w.master()) == before);
  CHECK(bits_of(dequantized(w)) == before);
  CHECK(w.spec().scales_frozen);
  CHECK(t.slot(1).mode() == kFrozen);
  CHECK(contains(error_of([&] { set_quant_mode(*t.model, kOff); }), "[set_quant_mode] layer 'layers.0'"));
}

TEST_CASE("without a master, frozen scales stay while updates are rounded into the codes") {
  Trained t(weights_of(dtypes::int8, "absmax", Granularity::channel(0), MasterKind::kNone));
  Parameter& w = t.slot(0).weight();
  set_quant_mode(*t.model, kFrozen);
  const auto scales = scales_of(w), codes = bits_of(w.value());
  t.train(3);
  CHECK(scales_of(w) == scales);
  CHECK(bits_of(w.value()) != codes);
}

TEST_CASE("frozen learned parts do not train, of weights and of inputs, and go on when they are on again") {
  Trained t(find_recipe("w4a4"));
  t.train(1);
  const auto learned = [&] {
    std::vector<uint32_t> bits;
    for (const Parameter* p : t.model->parameters())
      if (p->path().ends_with(".step"))
        for (const uint32_t b : bits_of(p->value())) bits.push_back(b);
    return bits;
  };
  set_quant_mode(*t.model, kFrozen);
  const auto before = learned(), masters = bits_of(t.slot(0).weight().master());
  REQUIRE(before.size() == 12 + 3 + 2);
  t.train(3);
  CHECK(learned() == before);
  CHECK(bits_of(t.slot(0).weight().master()) != masters);
  set_quant_mode(*t.model, kOn);
  t.train(1);
  CHECK(learned() != before);
}

TEST_CASE("observers see batches while quantization is off, and none while they are off or frozen") {
  LayerQuant q = find_recipe("w8a8");
  q.input->granularity = Granularity::tensor();
  q.observer = ObserverSpec{"moving_average"};
  Trained t(q);
  const auto range = [&] { return t.slot(0).input_quantizer()->observer()->state()[1].tensor.elements(); };
  set_quant_mode(*t.model, kOff);
  t.train(1);
  REQUIRE(t.slot(0).input_quantizer()->observer()->ready());
  const auto first = range();
  CHECK(first[0] > 0.5);
  for (const QuantMode mode : {QuantMode{QuantSwitch::kOn, false}, QuantMode{QuantSwitch::kOff, false}, kFrozen}) {
    set_quant_mode(*t.model, mode);
    t.train(3);
    CHECK(range() == first);
  }
  t.state.calibrating = true;  // a frozen one is not calibrated either
  t.train(2);
  CHECK(range() == first);
}

TEST_CASE("calibrate finds ranges and first values in evaluation mode") {
  LayerQuant q = find_recipe("w8a8");
  q.input->granularity = Granularity::tensor();
  q.observer = ObserverSpec{"min_max"};
  Trained t(q), learned(find_recipe("w4a4"));
  std::vector<Tensor> batches;
  for (uint64_t i = 0; i < 3; ++i) batches.push_back(random_tensor({8, 10}, dtypes::fp32, 60 + i));
  double high = 0;
  for (const Tensor& b : batches)
    for (const double v : b.elements()) high = std::max(high, v);
  calibrate(*t.model, t.state, batches);
  CHECK(t.state.training);
  CHECK_FALSE(t.state.calibrating);
  const auto state = t.slot(0).input_quantizer()->observer()->state();
  CHECK(state[1].tensor.elements()[0] == high);
  CHECK(state[2].tensor.elements()[0] == 3);

  Parameter& step = *learned.slot(0).input_quantizer()->learned()[0];
  CHECK(step.value().item() == 0);
  calibrate(*learned.model, learned.state, batches);
  CHECK(step.value().item() > 0);
  batches[1].as<float>()[4] = NAN;
  CHECK(contains(error_of([&] { calibrate(*t.model, t.state, batches); }), "[calibrate] NaN or Inf"));
}

TEST_CASE("steps of inputs are fitted to all samples of a calibration, however they are split into batches") {
  constexpr int64_t kRows = 103;
  const std::vector<double> x = random_tensor({kRows, 10}, dtypes::fp32, 70).elements();
  double sum = 0;
  for (const double v : x) sum += std::abs(v);
  const int64_t qmax = find_recipe("w4a4").input->dtype.info().qmax;
  const double whole = 2 * (sum / static_cast<double>(x.size())) / std::sqrt(static_cast<double>(qmax));
  for (const int64_t batch : {int64_t{1}, int64_t{5}, int64_t{20}, kRows}) {
    INFO("batches of " << batch);
    Trained learned(find_recipe("w4a4"));
    std::vector<Tensor> batches;
    for (int64_t row = 0; row < kRows; row += batch) {
      const int64_t rows = std::min(batch, kRows - row);
      batches.push_back(Tensor::from_elements({rows, 10}, dtypes::fp32,
                                              std::span(x).subspan(row * 10, static_cast<size_t>(rows) * 10)));
    }
    calibrate(*learned.model, learned.state, batches);
    const auto step = [&](size_t i) { return learned.slot(i).input_quantizer()->learned()[0]->value().item(); };
    CHECK(std::abs(step(0) / whole - 1) < 1e-6);
    CHECK(step(1) > 0);
    const double kept = step(0);  // what has values keeps them
    calibrate(*learned.model, learned.state, std::span(batches).first(1));
    CHECK(step(0) == kept);
  }
}

TEST_CASE("a product that stays in integers cannot be switched off, and then nothing is") {
  LayerSpec dequantize;
  dequantize.kind = "dequantize";
  const auto model = make_sequential({linear_of(12), linear_of(4), dequantize}, 10);
  PrepareSpec spec;
  spec.all = find_recipe("w8a8");
  LayerQuant integer = find_recipe("w8a8");
  integer.weight->granularity = Granularity::tensor();
  integer.compute = Compute::kIntegerOut;
  spec.rules = {{"layers.1", integer}};
  prepare(*model, spec);
  StepState state;
  model->initialize("layers", state);
  CHECK(contains(
      error_of([&] { set_quant_mode(*model, kOff); }),
      "[set_quant_mode] layer 'layers.1', quantization off: [Quantizable] compute: integer_out returns int32"));
  CHECK(model->quantizables()[0]->on());
  CHECK(model->quantizables()[0]->weight().low_bit());
  spec.rules.clear();
  prepare(*model, spec);
  set_quant_mode(*model, kOff);
  spec.rules = {{"layers.1", integer}};
  CHECK(contains(error_of([&] { prepare(*model, spec); }), "cannot be switched off"));
}

TEST_CASE("explicit quantize layers follow the mode, and a new recipe while off waits for on") {
  LayerSpec quantize;
  quantize.kind = "quantize";
  quantize.activation = ActivationQuant{quant_spec(dtypes::int8, "absmax")};
  const auto model = make_sequential({quantize, linear_of(4)}, 10);
  StepState state;
  model->initialize("layers", state);
  const Tensor x = random_tensor({5, 10}, dtypes::fp32, 8);
  CHECK((*model)[0].kind() == "quantize");
  CHECK((*model)[0](x).dtype() == dtypes::int8);
  set_quant_mode(*model, kOff);
  CHECK(bits_of((*model)[0](x).value()) == bits_of(x));
  PrepareSpec spec;
  spec.all = find_recipe("int4wo");
  prepare(*model, spec);
  CHECK_FALSE(model->quantizables()[0]->weight().low_bit());
  Form in;
  in.samples = 5;
  in.sample = {10};
  CHECK(model->plan(in).dtype == dtypes::fp32);
  set_quant_mode(*model, kFrozen);
  CHECK(model->quantizables()[0]->weight().value().dtype() == dtypes::uint4);
  CHECK((*model)[0](x).dtype() == dtypes::int8);
}

TEST_CASE("signs without a master are prepared from fp32 numbers, and flipped by Bop") {
  LayerSpec linear = linear_of(12);
  linear.weight.optimizer = "bop";
  const auto model = make_sequential({linear, linear_of(3)}, 10);
  PrepareSpec spec;
  LayerQuant q = find_recipe("w1a1");
  q.master = MasterKind::kNone;
  spec.rules = {{"layers.0", q}};
  StepState state;
  model->initialize("layers", state);
  Parameter& w = model->quantizables()[0]->weight();
  const std::vector<double> numbers = w.value().elements();
  prepare(*model, spec);
  std::vector<double> codes = w.value().elements();
  for (size_t i = 0; i < codes.size(); ++i) CHECK(codes[i] == (numbers[i] >= 0 ? 1 : -1));
  CHECK_FALSE(w.has_master());
  Optimizer optimizer({.name = "adam", .bop = {.gamma = 0.5f}});
  optimizer.attach(model->parameters());
  for (int64_t step = 1; step <= 4; ++step) {
    Tape tape;
    tape.backward(
        label_loss((*model)(random_tensor({6, 10}, dtypes::fp32, 40)), std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
    const RequantKey due{state.seed, step};
    optimizer.step(0.05f, 6, &due);
  }
  CHECK(w.value().elements() != codes);
}

TEST_CASE("layers that are off are converted to fp32 layers") {
  Trained t(find_recipe("w8a8"));
  t.train(2);
  t.slot(0).set_mode(kOff);
  const Tensor x = random_tensor({5, 10}, dtypes::fp32, 8);
  t.state.training = false;
  const auto y = bits_of((*t.model)(x).value());
  convert(*t.model);
  CHECK(bits_of((*t.model)(x).value()) == y);
  CHECK(t.slot(0).weight().value().dtype() == dtypes::fp32);
  CHECK(t.slot(0).input_quantizer() == nullptr);
  CHECK(t.slot(0).quant().recipe == "none");
  CHECK(t.slot(1).weight().value().dtype() == dtypes::int8);
  CHECK_FALSE(t.slot(1).weight().has_master());
}
