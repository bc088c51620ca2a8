#include "bitgrad/train/learner.h"

#include <limits>

#include "bitgrad/autograd/op.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_learner.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<std::vector<uint32_t>> masters_of(Learner& learner) {
  std::vector<std::vector<uint32_t>> all;
  for (Parameter* p : learner.model().parameters()) all.push_back(bits_of(p->master()));
  return all;
}
std::vector<std::vector<double>> codes_of(Learner& learner) {
  std::vector<std::vector<double>> all;
  for (Parameter* p : learner.model().parameters()) all.push_back(p->value().elements());
  return all;
}

struct Break {
  static constexpr std::string_view kName = "break";
  struct Saved {};
  static Tensor forward(Saved&, std::span<const Tensor> in) { return in[0]; }
  static void backward(Saved&, std::span<const Tensor>, std::span<GradSlot>) { fail(kName, "broken"); }
};
// A linear layer; while it is broken, backward fails after the gradients of the layer were given.
class BreakingLayer final : public Module {
 public:
  BreakingLayer() { add_child("inner", inner_); }
  Var forward(const Var& x) override {
    return inner_->forward(broken ? apply<Break>({Tape::current()->leaf(x.value(), &sink_, dtypes::fp32)}) : x);
  }
  Form plan(const Form& in, PlanRequests& requests) override { return inner_->plan(in, requests); }
  PlanRequests serve(const PlanRequests& requests) override { return inner_->serve(requests); }

  bool broken = false;

 private:
  std::shared_ptr<Module> inner_ = make_sequential({linear_spec(3, dtypes::int4, "symmetric")}, kFeatures);
  AccumulateSink sink_;
};

// Gives what it takes, but for one number where `poison` is not 0: a model that makes NaN or Inf of finite samples.
class PoisonLayer final : public Module {
 public:
  Var forward(const Var& x) override {
    if (poison == 0) return x;
    const Tensor y = x.value().clone(MemoryKind::kActivation);
    y.as<float>()[1] = poison;
    return Var(y);
  }
  Form plan(const Form& in, PlanRequests&) override { return in; }

  float poison = 0;
};

// One linear layer of one int4 weight row set, whose gradient is easy to follow, behind a quantizer, behind `first`.
std::unique_ptr<Learner> quantized_input_learner(const std::shared_ptr<Module>& first) {
  LayerSpec quantize = plain_spec("quantize");
  quantize.activation.emplace();
  quantize.activation->spec.dtype = dtypes::int8;
  quantize.activation->spec.scheme = "absmax";
  OptimizerSpec sgd;
  return std::make_unique<Learner>(
      std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
          first, make_layer(quantize, kFeatures), make_layer(linear_spec(3, dtypes::int4, "symmetric"), kFeatures)}),
      find_loss("squared_hinge"), sgd, RequantPolicy{}, [](int64_t) { return 0.1f; }, 1);
}

}  // namespace

TEST_CASE("every named loss can be found, and an unknown one lists them") {
  for (const std::string& name : loss_names()) CHECK(find_loss(name));
  const std::string text = error_of([] { find_loss("squared_hing"); });
  CHECK(contains(text, "squared_hinge"));
}

TEST_CASE("masters move at every A microbatches and codes at every N") {
  const auto learner = small_learner(dtypes::bint1, "binary", 3, 2, 4);
  auto masters = masters_of(*learner);
  auto codes = codes_of(*learner);
  for (int i = 1; i <= 8; ++i) {
    INFO("microbatch " << i);
    train_some(*learner, 1);
    CHECK((learner->window_samples() == 0) == (i % 2 == 0));
    CHECK(learner->state().step == i / 2);
    CHECK((masters_of(*learner) != masters) == (i % 2 == 0));
    masters = masters_of(*learner);
    // Biases and norms are floats: their value is the master.
    const auto now = codes_of(*learner);
    for (size_t p = 0; p < now.size(); ++p) {
      if (!learner->model().parameters()[p]->low_bit()) continue;
      if (i % 4 != 0) CHECK(now[p] == codes[p]);
    }
    if (i % 4 == 0) CHECK(now != codes);
    codes = now;
  }
}

TEST_CASE(
    "codes and masters after N = A microbatches equal those of a learner that requantizes before every microbatch") {
  for (const int64_t a : {2, 4, 8}) {
    const auto learner = small_learner(dtypes::int4, "symmetric", 3, a, a),
               twin = small_learner(dtypes::int4, "symmetric", 3, a, a);
    for (int i = 0; i < 24; ++i) {
      for (Parameter* p : twin->model().parameters()) p->requantize(twin->state().seed, twin->state().step);
      train_some(*learner, 1);
      train_some(*twin, 1);
      REQUIRE(masters_of(*learner) == masters_of(*twin));
      REQUIRE(codes_of(*learner) == codes_of(*twin));
    }
  }
}

TEST_CASE("flush steps with what the window holds and requantizes") {
  const auto learner = small_learner(dtypes::int4, "symmetric", 3, 4, 4);
  train_some(*learner, 3);
  CHECK(learner->window_samples() == 18);
  const auto codes = codes_of(*learner);
  learner->flush();
  CHECK(learner->window_samples() == 0);
  CHECK(learner->state().step == 1);
  CHECK(codes_of(*learner) != codes);
  // Nothing in the window: the masters stay.
  const auto masters = masters_of(*learner);
  learner->flush();
  CHECK(learner->state().step == 1);
  CHECK(masters_of(*learner) == masters);
}

TEST_CASE("after a flush windows and requantizations are counted anew") {
  const auto learner = small_learner(dtypes::int4, "symmetric", 3, 2, 4);
  train_some(*learner, 3);
  learner->flush();
  const auto codes = codes_of(*learner);
  train_some(*learner, 1);
  CHECK(learner->window_samples() == 6);
  train_some(*learner, 2);
  CHECK(learner->state().step == 3);
  CHECK(codes_of(*learner)[0] == codes[0]);
  train_some(*learner, 1);
  CHECK(learner->state().step == 4);
  CHECK(codes_of(*learner)[0] != codes[0]);
}

TEST_CASE("a dropped window leaves no trace in the gradients") {
  const auto learner = small_learner(dtypes::int4, "symmetric", 3, 2, 2),
             clean = small_learner(dtypes::int4, "symmetric", 3, 2, 2);
  train_some(*learner, 1);
  CHECK(learner->window_samples() == 6);
  learner->drop_window();
  CHECK(learner->window_samples() == 0);
  for (Parameter* p : learner->model().parameters()) CHECK_FALSE(p->grad_sink().filled());
}

TEST_CASE("a number that is not finite ends the step, names the tensor and moves nothing") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float poison : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    const auto layer = std::make_shared<PoisonLayer>();
    const auto learner = quantized_input_learner(layer);
    learner->plan({.input = {.sample = {kFeatures}}, .outputs = 3, .train_samples = 2, .eval_samples = 2});
    const Tensor x = Tensor::full({2, kFeatures}, dtypes::fp32, 0.5);
    layer->poison = poison;
    const auto masters = masters_of(*learner);
    const std::vector<int32_t> labels{0, 1};
    const auto step = [&] { learner->microbatch(x, labels); };
    const std::string text = error_of(step);
    INFO(text);
    CHECK(contains(text, "layers.1"));
    CHECK(contains(text, "optimizer step 0"));
    CHECK(masters_of(*learner) == masters);
    CHECK(learner->state().step == 0);
    CHECK(error_code_of([&] { learner->predict(x); }) == 5);
    CHECK(learner->state().training);
    // The next clean batch works: no flag stays raised.
    layer->poison = 0;
    learner->microbatch(Tensor::full({2, kFeatures}, dtypes::fp32, 0.5), labels);
    CHECK(learner->state().step == 1);
  }
}

TEST_CASE("without a quantizer the gradient names the parameter that is not finite") {
  const auto layer = std::make_shared<PoisonLayer>();
  OptimizerSpec adam;
  adam.name = "adam";
  adam.fused = false;
  const auto learner = std::make_unique<Learner>(
      std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
          layer, make_layer(linear_spec(3, dtypes::int4, "affine", Granularity::channel(0)), kFeatures)}),
      find_loss("softmax_cross_entropy"), adam, RequantPolicy{}, [](int64_t) { return 0.05f; }, 3);
  const Tensor x = Tensor::full({2, kFeatures}, dtypes::fp32, 0.5);
  layer->poison = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> labels{0, 1};
  const auto masters = masters_of(*learner);
  const auto step = [&] { learner->microbatch(x, labels); };
  CHECK(contains(error_of(step), "'layers."));
  learner->drop_window();
  CHECK(error_code_of(step) == 5);
  CHECK(masters_of(*learner) == masters);
}

TEST_CASE("after an Error that moved nothing the next microbatch begins a window, as if the lost one had not been") {
  const Tensor good = Tensor::full({3, kFeatures}, dtypes::fp32, 0.5);
  Tensor bad = Tensor::full({3, kFeatures}, dtypes::fp32, 0.5);
  bad.as<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> labels{0, 1, 2}, wrong{0, 1, 77};
  for (const int64_t accumulate : {1, 2, 4}) {
    // Microbatch `last` is the one that fails: at the end of the window (a gradient), or at once (labels).
    for (const bool at_once : {false, true}) {
      const auto learner = small_learner(dtypes::int4, "symmetric", 3, accumulate, 2 * accumulate);
      const auto masters = masters_of(*learner);
      const auto codes = codes_of(*learner);
      for (int64_t i = 0; i + 1 < accumulate; ++i) learner->microbatch(i == 0 ? bad : good, labels);
      CHECK(error_of([&] { learner->microbatch(bad, at_once ? wrong : labels); }) != "");
      CHECK(learner->usable());
      CHECK(learner->window_samples() == 0);
      CHECK(learner->since_requantize() == 0);
      CHECK(masters_of(*learner) == masters);
      for (int window = 1; window <= 2; ++window) {
        for (int64_t i = 1; i <= accumulate; ++i) CHECK(learner->microbatch(good, labels).stepped == (i == accumulate));
        CHECK(learner->state().step == window);
        CHECK((codes_of(*learner)[0] != codes[0]) == (window == 2));
      }
    }
  }
}

TEST_CASE("a flush that fails drops its window") {
  const auto learner = small_learner(dtypes::int4, "symmetric", 3, 4, 4);
  Tensor bad = Tensor::full({3, kFeatures}, dtypes::fp32, 0.5);
  bad.as<float>()[1] = std::numeric_limits<float>::infinity();
  learner->microbatch(bad, std::vector<int32_t>{0, 1, 2});
  CHECK(error_code_of([&] { learner->flush(); }) == 5);
  CHECK(learner->window_samples() == 0);
  learner->flush();
  CHECK(learner->state().step == 0);
}

TEST_CASE("an Error out of backward leaves no part of a gradient") {
  OptimizerSpec adam;
  adam.name = "adam";
  adam.fused = false;
  for (const int64_t accumulate : {1, 2}) {
    const auto make = [&](const std::shared_ptr<BreakingLayer>& layer) {
      return std::make_unique<Learner>(
          layer, find_loss("softmax_cross_entropy"), adam, RequantPolicy{accumulate, accumulate},
          [](int64_t) { return 0.05f; }, 1);
    };
    const auto layer = std::make_shared<BreakingLayer>();
    const auto learner = make(layer), twin = make(std::make_shared<BreakingLayer>());
    train_some(*learner, 2 * accumulate - 1);
    layer->broken = true;
    CHECK(contains(error_of([&] { train_some(*learner, 1); }), "[break] broken"));
    layer->broken = false;
    CHECK(learner->usable());
    for (Parameter* p : learner->model().parameters()) CHECK_FALSE(p->grad_sink().filled());
    // The twin never began the window that broke.
    train_some(*twin, accumulate);
    detail::set_counters(twin->train_state(), 1, 2 * accumulate - 1, 0);
    train_some(*learner, accumulate);
    train_some(*twin, accumulate);
    CHECK(learner->state().step == 2);
    CHECK(masters_of(*learner) == masters_of(*twin));
  }
}

TEST_CASE("evaluation changes no state") {
  const auto learner = small_learner(), twin = small_learner();
  const std::vector<int32_t> labels{0, 1, 2, 0, 1, 2};
  for (int i = 0; i < 3; ++i) {
    train_some(*learner, 1);
    train_some(*twin, 1);
    const StepResult r = learner->evaluate(random_tensor({6, kFeatures}, dtypes::fp32, 7), labels);
    CHECK(r.samples == 6);
    CHECK_FALSE(r.stepped);
  }
  CHECK(masters_of(*learner) == masters_of(*twin));
  for (size_t i = 0; i < learner->model().buffers().size(); ++i)
    CHECK(bits_of(learner->model().buffers()[i].tensor) == bits_of(twin->model().buffers()[i].tensor));
}

TEST_CASE("plan refuses a model that does not give one number a class") {
  const auto learner = small_learner();
  CHECK_NOTHROW(learner->plan({.input = {.sample = {kFeatures}}, .outputs = 3, .train_samples = 6, .eval_samples = 6}));
  CHECK(contains(error_of([&] {
                   learner->plan(
                       {.input = {.sample = {kFeatures}}, .outputs = 4, .train_samples = 6, .eval_samples = 6});
                 }),
                 "4 classes"));
  CHECK(contains(error_of([&] {
                   learner->plan(
                       {.input = {.sample = {kFeatures + 1}}, .outputs = 3, .train_samples = 6, .eval_samples = 6});
                 }),
                 "expects 5"));
}

TEST_CASE("N must be a multiple of A") {
  CHECK(contains(error_of([] { small_learner(dtypes::bint1, "binary", 3, 4, 6); }), "4"));
  CHECK(contains(error_of([] { small_learner(dtypes::bint1, "binary", 3, 0, 0); }), "["));
}

TEST_CASE("a model without trainable parameters is refused before the first step") {
  LayerSpec frozen = linear_spec(3, dtypes::int4, "symmetric");
  frozen.attributes["bias"] = false;
  frozen.weight.frozen = true;
  const auto plan_of = [](const std::vector<LayerSpec>& layers) {
    Learner learner(
        make_sequential(layers, kFeatures), find_loss("softmax_cross_entropy"), OptimizerSpec{}, RequantPolicy{1, 1},
        [](int64_t) { return 0.05f; }, 1);
    learner.plan({.input = {.sample = {kFeatures}}, .train_samples = 6, .eval_samples = 6});
  };
  CHECK(contains(error_of([&] { plan_of({frozen}); }), "nothing trains: all parameters are frozen"));
  CHECK(contains(error_of([&] { plan_of({plain_spec("relu")}); }), "nothing trains: no layer has parameters"));
  frozen.attributes["bias"] = true;
  CHECK_NOTHROW(plan_of({frozen}));
}

TEST_CASE("a model that ends in codes is an error naming layers that return values") {
  LayerSpec last = plain_spec("quantize");
  last.activation.emplace();
  last.activation->spec.dtype = dtypes::int8;
  last.activation->spec.scheme = "absmax";
  Learner learner(
      make_sequential({linear_spec(3, dtypes::int4, "symmetric"), last}, kFeatures), find_loss("softmax_cross_entropy"),
      OptimizerSpec{}, RequantPolicy{}, [](int64_t) { return 0.05f; }, 1);
  CHECK(error_of([&] {
          learner.plan({.input = {.sample = {kFeatures}}, .outputs = 3, .train_samples = 6, .eval_samples = 6});
        }) == "[model] the last layer returns int8, the loss needs fp32. End with a linear, norm or dequantize layer");
}
