// Where the scales of the quantize layer come from: learned numbers, observers, each batch. What is set when, saved and
// resumed; every scheme trains a step.
#include <algorithm>
#include <cmath>
#include <limits>

#include "bitgrad/base/parallel.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "kernels/flag.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/label_loss.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

LayerSpec quantize_layer(const std::string& scheme, DType dtype, const Granularity& granularity = {}) {
  LayerSpec spec;
  spec.kind = "quantize";
  spec.activation = ActivationQuant{quant_spec(dtype, scheme)};
  spec.activation->spec.granularity = granularity;
  return spec;
}
LayerSpec observed_layer(const std::string& observer, const Granularity& granularity = {}) {
  LayerSpec spec = quantize_layer("affine", dtypes::int8, granularity);
  spec.activation->observer.emplace();
  spec.activation->observer->name = observer;
  return spec;
}
LayerSpec linear_layer(int64_t out) {
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes["out"] = out;
  spec.attributes["bias"] = false;
  spec.weight = weight_spec(quant_spec(dtypes::int8, "symmetric"));
  return spec;
}

// A layer by itself, under the path "q".
struct Fixture {
  explicit Fixture(const LayerSpec& spec, int64_t features = 6) : layer(make_layer(spec, features)) {
    layer->initialize("q", state);
  }
  Tensor run(const Tensor& x) {
    NoGrad off;
    return layer->forward(Var(x)).value();
  }
  Tensor evaluate(const Tensor& x) {
    state.training = false;
    Tensor y = run(x);
    state.training = true;
    return y;
  }
  std::vector<double> learned(size_t i = 0) { return layer->parameters().at(i)->value().elements(); }

  StepState state;
  std::shared_ptr<Module> layer;
};

Tensor spread(uint64_t seed, double by = 1, int64_t rows = 8) {
  return random_tensor({rows, 6}, dtypes::fp32, seed, -by, by);
}

// LSQ's first step, in fp64.
double first_step(const Tensor& x, double qp) {
  double sum = 0;
  for (const double v : x.elements()) sum += std::fabs(v);
  return 2 * sum / static_cast<double>(x.numel()) / std::sqrt(qp);
}

std::vector<std::string> names(Module& m) {
  std::vector<std::string> out;
  for (const Parameter* p : m.parameters()) out.push_back(concat(p->path(), ' ', p->value()));
  for (const auto& b : m.buffers()) out.push_back(concat(b.path, ' ', b.tensor));
  return out;
}

}  // namespace

TEST_CASE("learned numbers and observed ranges are parameters and buffers of the layer's path") {
  using Names = std::vector<std::string>;
  CHECK(names(*Fixture(quantize_layer("lsq", dtypes::int4)).layer) == Names{"q.step [1] fp32"});
  CHECK(names(*Fixture(quantize_layer("lsq", dtypes::int4, Granularity::channel(1))).layer) ==
        Names{"q.step [6] fp32"});
  CHECK(names(*Fixture(quantize_layer("lsq_plus", dtypes::uint4)).layer) ==
        Names{"q.step [1] fp32", "q.offset [1] fp32"});
  CHECK(names(*Fixture(quantize_layer("pact", dtypes::uint4)).layer) == Names{"q.clip [1] fp32"});
  CHECK(names(*Fixture(observed_layer("moving_average")).layer) ==
        Names{"q.observer.low [1] fp32", "q.observer.high [1] fp32", "q.observer.batches [1] int64"});
  CHECK(names(*Fixture(observed_layer("min_max", Granularity::channel(1))).layer) ==
        Names{"q.observer.low [6] fp32", "q.observer.high [6] fp32", "q.observer.batches [1] int64"});
  CHECK(names(*Fixture(observed_layer("percentile")).layer).size() > 3);
  CHECK(names(*Fixture(quantize_layer("symmetric", dtypes::int4)).layer).empty());
}

TEST_CASE("rate, decay and floor of learned numbers come from the layer and the scheme") {
  LayerSpec spec = quantize_layer("pact", dtypes::uint4);
  spec.activation->learned.lr_factor = 0.25f;
  spec.activation->learned.weight_decay = 0.125f;
  Fixture pact(spec);
  const ParameterSpec& clip = pact.layer->parameters()[0]->spec();
  CHECK(clip.lr_factor == 0.25f);
  CHECK(clip.weight_decay == 0.125f);
  CHECK(clip.floor == std::ldexp(1.0f, -20));
  Fixture plus(quantize_layer("lsq_plus", dtypes::uint4));
  CHECK(plus.layer->parameters()[0]->spec().floor == std::ldexp(1.0f, -20));
  CHECK_FALSE(plus.layer->parameters()[1]->spec().floor.has_value());
  CHECK_FALSE(plus.layer->parameters()[0]->spec().weight_decay.has_value());
  // They are few and move slowly: an optimizer keeps their moments in fp32, whatever those of the run are.
  for (Fixture* f : {&pact, &plus})
    for (const Parameter* p : f->layer->parameters()) CHECK(p->spec().moments == MomentKind::kFp32);
}

TEST_CASE("a step is set by the first batch of training, once, and kept") {
  Fixture f(quantize_layer("lsq", dtypes::int4));
  CHECK(f.learned() == std::vector<double>{0});
  const Tensor first = spread(1), second = spread(2, 9);
  f.run(first);
  const double step = f.learned()[0];
  CHECK(std::fabs(step - first_step(first, 7)) < 1e-6 * step);
  const Tensor y = f.run(second);
  CHECK(f.learned()[0] == step);
  CHECK(y.quant()->scale->item() == step);
  f.evaluate(second);
  CHECK(f.learned()[0] == step);
}

TEST_CASE("an evaluation before the first batch uses a step of its own batch and stores nothing") {
  Fixture f(quantize_layer("lsq", dtypes::int4));
  const Tensor x = spread(3, 2);
  const Tensor y = f.evaluate(x);
  CHECK(std::fabs(y.quant()->scale->item() - first_step(x, 7)) < 1e-6);
  CHECK(f.learned() == std::vector<double>{0});
  CHECK(std::fabs(f.evaluate(spread(4, 7)).quant()->scale->item() - first_step(spread(4, 7), 7)) < 1e-5);
  f.run(spread(1));
  CHECK(std::fabs(f.learned()[0] - first_step(spread(1), 7)) < 1e-6);
}

TEST_CASE("steps per channel are set per channel, an offset with its step") {
  Fixture f(quantize_layer("lsq", dtypes::int4, Granularity::channel(1)));
  Tensor x = spread(5);
  for (int64_t r = 0; r < 8; ++r) x.as<float>()[r * 6 + 2] *= 100;
  f.run(x);
  for (int64_t c = 0; c < 6; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < 8; ++r) sum += std::fabs(static_cast<double>(x.as<float>()[r * 6 + c]));
    const double want = 2 * sum / 8 / std::sqrt(7.0);
    CHECK(std::fabs(f.learned()[static_cast<size_t>(c)] - want) < 1e-5 * want);
  }
  Fixture plus(quantize_layer("lsq_plus", dtypes::uint4));
  plus.run(x);
  CHECK(plus.learned(0)[0] > 0);
  const Tensor y = plus.run(spread(6));
  CHECK(y.quant()->scale->item() == plus.learned(0)[0]);
  CHECK(y.quant()->offset->item() == plus.learned(1)[0]);
}

TEST_CASE("PACT's clip is first_clip from the start") {
  LayerSpec spec = quantize_layer("pact", dtypes::uint4);
  spec.activation->spec.first_clip = 3;
  Fixture f(spec);
  CHECK(f.learned() == std::vector<double>{3});
  f.run(spread(1, 50));
  CHECK(f.learned() == std::vector<double>{3});
  CHECK(f.run(spread(1, 50)).quant()->scale->item() == static_cast<double>(3.0f / 15.0f));
}

TEST_CASE("a first batch that is empty or not finite sets no step") {
  Fixture f(quantize_layer("lsq", dtypes::int4));
  f.run(Tensor::zeros({0, 6}, dtypes::fp32));
  CHECK(f.learned() == std::vector<double>{0});
  CHECK(f.state.flags.raised().empty());
  Tensor x = spread(1);
  x.as<float>()[7] = std::numeric_limits<float>::quiet_NaN();
  f.run(x);
  CHECK(f.learned() == std::vector<double>{0});
  poll_errors();
  CHECK(f.state.flags.raised() == std::vector<std::string>{"q"});
  f.state.flags.clear();
  f.run(spread(2));
  CHECK(f.learned()[0] > 0);
  poll_errors();
  CHECK(f.state.flags.raised().empty());
}

TEST_CASE("a step that is saved and resumed goes on with the same bits, set or not") {
  for (const int before : {0, 1, 3}) {
    Fixture a(quantize_layer("lsq", dtypes::int4)), b(quantize_layer("lsq", dtypes::int4));
    for (int i = 0; i < before; ++i) a.run(spread(static_cast<uint64_t>(i + 1)));
    b.layer->parameters()[0]->restore({a.layer->parameters()[0]->master(), {}});
    const Tensor ya = a.run(spread(9, 3)), yb = b.run(spread(9, 3));
    CHECK(ya.values() == yb.values());
    CHECK(a.learned() == b.learned());
  }
}

TEST_CASE("an observer fixes the scales: dynamic before the first batch, the same in training and evaluation after") {
  Fixture f(observed_layer("min_max"));
  const Tensor x = spread(1, 2), wide = spread(2, 8);
  CHECK(f.evaluate(wide).values() == quantize_dynamic(observed_layer("min_max").activation->spec, wide).values());
  CHECK(f.layer->buffers()[2].tensor.item() == 0);
  f.run(x);
  double lo = 0, hi = 0;
  for (const double v : x.elements()) {
    lo = std::min(lo, v);
    hi = std::max(hi, v);
  }
  const float s = (static_cast<float>(hi) - static_cast<float>(lo)) / 255.0f;
  CHECK(f.evaluate(wide).quant()->scale->item() == static_cast<double>(s));
  CHECK(f.evaluate(x).quant()->scale->item() == static_cast<double>(s));
  CHECK(f.run(wide).quant()->scale->item() > static_cast<double>(s) * 2);  // observed first, then used
}

TEST_CASE("a moving average resumes from its buffers with the same bits, and NaN moves nothing") {
  for (const char* observer : {"min_max", "moving_average", "percentile", "mse"}) {
    INFO(observer);
    Fixture a(observed_layer(observer)), b(observed_layer(observer));
    for (uint64_t i = 1; i < 4; ++i) a.run(spread(i, static_cast<double>(i)));
    Tensor bad = spread(5);
    bad.as<float>()[0] = std::numeric_limits<float>::infinity();
    std::vector<std::vector<double>> before, after;
    for (const auto& buffer : a.layer->buffers()) before.push_back(buffer.tensor.elements());
    a.run(bad);
    for (const auto& buffer : a.layer->buffers()) after.push_back(buffer.tensor.elements());
    CHECK(before == after);
    poll_errors();
    CHECK(a.state.flags.raised() == std::vector<std::string>{"q"});
    const auto from = a.layer->buffers(), to = b.layer->buffers();
    REQUIRE(from.size() == to.size());
    for (size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_from(from[i].tensor);
    CHECK(a.run(spread(7, 2)).values() == b.run(spread(7, 2)).values());
    CHECK(a.evaluate(spread(8)).values() == b.evaluate(spread(8)).values());
  }
}

TEST_CASE("rule tanh sharpens with the progress of the run") {
  LayerSpec spec = quantize_layer("binary", dtypes::bint1);
  spec.activation->spec.ste = SteRule::kTanh;
  Fixture f(spec);
  const Tensor x = spread(1, 0.5);
  for (const double progress : {0.0, 0.5, 1.0}) {
    f.state.progress = progress;
    AccumulateSink sink;
    Tape tape;
    const Var y = f.layer->forward(tape.leaf(x, &sink, dtypes::fp32));
    tape.backward({y}, {Tensor::full(x.shape(), dtypes::fp32, 1)});
    const double t = 0.1 * std::pow(100.0, progress), k = std::max(1 / t, 1.0);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double th = std::tanh(t * static_cast<double>(x.as<float>()[i]));
      const double want = k * t * (1 - th * th);
      CHECK(std::fabs(static_cast<double>(sink.grad().as<float>()[i]) - want) < 1e-4 * std::max(1.0, want));
    }
  }
}

TEST_CASE("plans report dtype, granularity, zero and offset of learned and observed codes") {
  struct Row {
    LayerSpec spec;
    std::string granularity;
    bool zero, offset;
  };
  const Row rows[] = {{quantize_layer("lsq", dtypes::int4), "tensor", false, false},
                      {quantize_layer("lsq", dtypes::int4, Granularity::channel(1)), "channel(1)", false, false},
                      {quantize_layer("lsq_plus", dtypes::uint4), "tensor", false, true},
                      {quantize_layer("pact", dtypes::uint4), "tensor", false, false},
                      {observed_layer("min_max"), "tensor", true, false},
                      {quantize_layer("affine", dtypes::int8, Granularity::token()), "token", true, false},
                      {quantize_layer("binary", dtypes::bint1), "none", false, false}};
  for (const Row& row : rows) {
    INFO(row.spec.activation->spec.scheme << ' ' << row.spec.activation->spec.granularity);
    Fixture f(row.spec);
    Form in;
    in.samples = 4;
    in.sample = {6};
    const Form out = f.layer->plan(in);
    CHECK(out.dtype == row.spec.activation->spec.dtype);
    CHECK((out.scales ? concat(out.scales->granularity) : std::string("none")) == row.granularity);
    CHECK((out.scales && out.scales->zero_point) == row.zero);
    CHECK((out.scales && out.scales->offset) == row.offset);
    const Tensor y = f.run(spread(1));
    CHECK(bool(y.quant() && y.quant()->scale) == out.scales.has_value());
    CHECK(bool(y.quant() && y.quant()->offset) == row.offset);
  }
}

TEST_CASE("learned and observed layers refuse what does not fit") {
  LayerSpec both = quantize_layer("lsq", dtypes::int4);
  both.activation->observer.emplace();
  CHECK(contains(error_of([&] { make_layer(both, 6); }),
                 "scheme lsq learns its scale: got also observer moving_average"));
  CHECK(contains(error_of([&] { make_layer(quantize_layer("lsq", dtypes::int4, Granularity::token()), 6); }),
                 "granularity of learned values: got token"));
  CHECK(contains(error_of([&] { make_layer(quantize_layer("lsq", dtypes::int4, Granularity::channel(0)), 6); }),
                 "scheme lsq learns values per tensor or per channel(1): got channel(0)"));
  LayerSpec wrong = observed_layer("nothing");
  CHECK(contains(error_of([&] { make_layer(wrong, 6); }), "unknown observer 'nothing'"));
  wrong = quantize_layer("binary", dtypes::bint1);
  wrong.activation->observer.emplace();
  CHECK_FALSE(error_of([&] { make_layer(wrong, 6); }).empty());
  wrong = quantize_layer("symmetric", dtypes::int8);
  wrong.activation->grad = dtypes::fp16;
  CHECK(contains(error_of([&] { make_layer(wrong, 6); }), "gradients can be fp32 or bf16, got fp16"));
}

namespace {

// Two steps of training of a quantizer between two linear layers, by plain descent. Gives all numbers that moved.
std::vector<double> train_two_steps(const LayerSpec& spec) {
  auto model = make_sequential({linear_layer(12), spec, linear_layer(3)}, 6);
  StepState state;
  model->initialize("layers", state);
  const std::vector<int32_t> labels{0, 1, 2, 0, 1, 2, 0, 1};
  for (int step = 0; step < 2; ++step) {
    {
      Tape tape;
      tape.backward(label_loss(model->forward(Var(spread(static_cast<uint64_t>(step) + 1))), labels));
    }
    ++state.microbatch;
    ++state.step;
    state.progress = 0.5;
    for (Parameter* p : model->parameters()) {
      const std::vector<double> g = p->grad().elements();
      for (int64_t i = 0; i < p->master().numel(); ++i)
        p->master().as<float>()[i] -= 0.01f * static_cast<float>(g[static_cast<size_t>(i)]);
      p->grad_sink().clear();
      p->requantize(state.seed, state.step);
    }
  }
  CHECK(state.flags.raised().empty());
  std::vector<double> out;
  for (Parameter* p : model->parameters())
    for (const double v : p->master().elements()) out.push_back(v);
  for (const auto& b : model->buffers())
    for (const double v : b.tensor.elements()) out.push_back(v);
  return out;
}

}  // namespace

TEST_CASE("every scheme trains with every dtype that suits it, with equal bits for one and two threads") {
  const int before = num_threads();
  std::vector<std::string> trained;
  for (const std::string_view scheme : quantizer_names())
    for (const DType d : code_dtypes()) {
      const LayerSpec spec = quantize_layer(std::string(scheme), d);
      if (!error_of([&] { find_quantizer(scheme).check(spec.activation->spec, false); }).empty()) continue;
      INFO(scheme << ' ' << d);
      set_num_threads(1);
      const std::vector<double> one = train_two_steps(spec);
      set_num_threads(2);
      CHECK(train_two_steps(spec) == one);
      CHECK(std::all_of(one.begin(), one.end(), [](double v) { return std::isfinite(v); }));
      if (trained.empty() || trained.back() != scheme) trained.emplace_back(scheme);
    }
  set_num_threads(before);
  for (const char* scheme : {"fixed", "affine", "symmetric", "absmax", "minmax_offset", "step", "binary", "ternary",
                             "ternary_threshold", "dorefa_activation", "pact", "lsq", "lsq_plus", "codebook"}) {
    INFO(scheme);
    CHECK(std::find(trained.begin(), trained.end(), scheme) != trained.end());
  }
}
