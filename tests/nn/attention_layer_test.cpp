// attention and positions between other layers.
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/ops/attention.h"
#include "nn/bf16_layers.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Form sequences(const Shape& sample, DType dtype = dtypes::fp32) {
  Form in;
  in.samples = 2;
  in.sample = sample;
  in.dtype = dtype;
  return in;
}

std::string plan_error(const LayerSpec& spec, const Form& in) {
  return error_of([&] { make_layer(spec)->plan(in); });
}

}  // namespace

TEST_CASE("attention splits concatenated q, k and v, and rotates q and k where it has a base") {
  const Tensor x = random_tensor({2, 5, 32}, dtypes::fp32, 1, -2, 2);
  const AttentionOptions grouped{.heads = 4, .kv_heads = 2};
  const Result plain = run(layer("attention", {{"heads", 4}, {"kv_heads", 2}}), x, dtypes::fp32, true);
  CHECK(plain.y.shape() == Shape{2, 5, 16});
  CHECK(bits_of(plain.y) == bits_of(attention(Var(x), grouped).value()));
  CHECK(plain.gx.shape() == x.shape());
  for (const bool interleaved : {false, true}) {
    const RopeOptions options{.dim = 4, .base = 50, .interleaved = interleaved};
    const Var turned = rope(Var(x), rope_table(5, options), options, 0, 6);
    const Attributes keys{{"heads", 4}, {"kv_heads", 2}, {"rope", 50.0}, {"interleaved", interleaved}};
    CHECK(bits_of(run(layer("attention", keys), x, dtypes::fp32, false).y) ==
          bits_of(attention(turned, grouped).value()));
  }
  // A wave of 44 positions between 60 / 2 and 60 / 1.2: every key of Llama 3.1's frequencies changes its angle.
  const RopeOptions scaled{.dim = 4, .base = 50, .factor = 8, .low = 1.2, .high = 2, .original = 60};
  const Attributes keys{{"heads", 4},       {"kv_heads", 2},   {"rope", 50.0},     {"interleaved", false},
                        {"rope_factor", 8}, {"rope_low", 1.2}, {"rope_high", 2.0}, {"rope_original", 60}};
  const auto rotated = [&](const RopeOptions& o) {
    return bits_of(attention(rope(Var(x), rope_table(5, o), o, 0, 6), grouped).value());
  };
  CHECK(bits_of(run(layer("attention", keys), x, dtypes::fp32, false).y) == rotated(scaled));
  RopeOptions other = scaled;
  other.low = 1.3;
  CHECK(rotated(other) != rotated(scaled));
  other = scaled;
  other.high = 2.5;
  CHECK(rotated(other) != rotated(scaled));
  const Tensor all = random_tensor({1, 3, 12}, dtypes::fp32, 2);
  CHECK(bits_of(run(layer("attention", {{"heads", 2}}), all, dtypes::fp32, false).y) ==
        bits_of(attention(Var(all), {.heads = 2, .kv_heads = 2}).value()));
  const Result narrow = run(layer("attention", {{"heads", 2}}), rounded(all), dtypes::bf16, true);
  CHECK(bits_of(narrow.y) ==
        bits_of(rounded(run(layer("attention", {{"heads", 2}}), wide(rounded(all)), dtypes::fp32, true).y)));
}

TEST_CASE("attention normalizes q and k before it rotates them, with parameters of its own") {
  const Tensor x = random_tensor({2, 5, 32}, dtypes::fp32, 1, -2, 2);
  const AttentionOptions grouped{.heads = 4, .kv_heads = 2};
  const RopeOptions turn{.dim = 4, .base = 50};
  for (const auto& [kind, q, k] : {std::tuple<std::string, int64_t, int64_t>{"head", 4, 4}, {"row", 16, 8}}) {
    INFO(kind);
    const Attributes keys{{"heads", 4}, {"kv_heads", 2}, {"rope", 50.0}, {"qk_norm", kind}, {"qk_eps", 0.25}};
    const Result got = run(layer("attention", keys), x, dtypes::fp32, true);
    const auto ones = [](int64_t n) { return Var(Tensor::full({n}, dtypes::fp32, 1)); };
    const Var normed = qk_norm(Var(x), ones(q), ones(k), 4, 2, 0.25f);
    CHECK(bits_of(got.y) == bits_of(attention(rope(normed, rope_table(5, turn), turn, 0, 6), grouped).value()));
    REQUIRE(got.grads.size() == 2);
    CHECK((got.grads[0].shape() == Shape{q} && got.grads[1].shape() == Shape{k}));
    for (const Tensor& g : got.grads)
      for (const double value : g.elements()) CHECK(value != 0);
  }
  CHECK(run(layer("attention", {{"heads", 4}, {"kv_heads", 2}}), x, dtypes::fp32, true).grads.empty());
}

TEST_CASE("attention needs a gradient where its input or one of its norms trains") {
  const auto grad = [](const std::string& kind, bool of_input, bool q_trains, bool k_trains) {
    const auto module = make_layer(layer("attention", {{"heads", 4}, {"kv_heads", 2}, {"qk_norm", kind}}));
    const std::vector<Parameter*> norms = module->parameters();
    for (size_t i = 0; i < norms.size(); ++i)
      if (!(i == 0 ? q_trains : k_trains)) norms[i]->change([](ParameterSpec& spec) { spec.frozen = true; });
    Form in = sequences({5, 32});
    in.grad = of_input;
    return module->plan(in).grad;
  };
  CHECK_FALSE(grad("none", false, true, true));  // it has no norms
  CHECK(grad("none", true, true, true));
  for (const char* kind : {"head", "row"}) {
    CHECK(grad(kind, false, true, false));
    CHECK(grad(kind, false, false, true));
    CHECK_FALSE(grad(kind, false, false, false));
    CHECK(grad(kind, true, false, false));
  }
}

TEST_CASE("attention has a scale and a window, and counts the keys that its rows see") {
  const Tensor x = random_tensor({2, 9, 32}, dtypes::fp32, 1, -2, 2);
  const Attributes keys{{"heads", 4}, {"kv_heads", 2}, {"scale", 0.3}, {"window", 4}};
  const AttentionOptions options{.heads = 4, .kv_heads = 2, .scale = 0.3f, .window = 4};
  CHECK(bits_of(run(layer("attention", keys), x, dtypes::fp32, true).y) == bits_of(attention(Var(x), options).value()));
  const auto macs = [](int64_t window) {
    const auto module = make_layer(layer("attention", {{"heads", 4}, {"kv_heads", 2}, {"window", window}}));
    return module->macs(sequences({9, 32}), module->plan(sequences({9, 32})));
  };
  int64_t seen = 0;  // of 9 rows, in a window of 4
  for (int64_t row = 0; row < 9; ++row) seen += std::min<int64_t>(row + 1, 4);
  CHECK(macs(4) == 4 * 4 * 2 * seen);
  CHECK((macs(0) == macs(9) && macs(9) == macs(100)));
}

TEST_CASE("positions adds the rows of its table, of which shorter sequences use the first") {
  const Tensor x = random_tensor({3, 4, 6}, dtypes::fp32, 1);
  const Result got = run(layer("positions", {{"context", 7}, {"std", 0.5}}), x, dtypes::fp32, true);
  CHECK(got.y.shape() == x.shape());
  REQUIRE(got.grads.size() == 1);
  const std::vector<double> y = got.y.elements(), in = x.elements();
  double largest = 0;
  for (size_t i = 0; i < 24; ++i) {
    const double row = y[i] - in[i];  // of the first sample; the others have the same rows
    largest = std::max(largest, std::fabs(row));
    for (size_t n = 1; n < 3; ++n) CHECK(y[24 * n + i] - in[24 * n + i] == Approx(row).margin(1e-6));
  }
  CHECK((largest > 0.1 && largest < 3));
}

TEST_CASE("attention and positions report shapes that do not fit before anything runs") {
  const LayerSpec heads = layer("attention", {{"heads", 4}, {"kv_heads", 2}});
  CHECK(contains(plan_error(heads, sequences({5, 30})),
                 "expects q, k and v concatenated: got 30 features, expected a multiple of 8 (heads + 2 * kv_heads)"));
  CHECK(contains(plan_error(heads, sequences({32})), "needs sequences [n,t,features]"));
  CHECK(contains(plan_error(heads, sequences({5, 32}, dtypes::int8)), "needs fp32 input, got int8"));
  CHECK(contains(plan_error(layer("attention", {{"heads", 2}, {"rope", 10.0}}), sequences({5, 6})),
                 "rope turns pairs: got heads of 1 features, expected an even number"));
  CHECK(contains(error_of([] {
                   make_layer(layer("attention", {{"heads", 4}, {"kv_heads", 3}}));
                 }),
                 "kv_heads: got 3, expected a divisor of heads, 4"));
  CHECK(contains(plan_error(layer("positions", {{"context", 4}}), sequences({5, 8})),
                 "context: got 4, expected at least 5, the positions of a sample"));
  CHECK(make_layer(heads)->macs(sequences({5, 32}), sequences({5, 16})) >= 0);
}

TEST_CASE("weights before attention and gates know the matrices stacked in them, hidden ones are not the last") {
  const auto linear = [](int64_t out) { return layer("linear", {{"out", out}, {"bias", false}}); };
  std::vector<LayerSpec> specs = {linear(32),
                                  layer("dequantize"),
                                  layer("dropout", {{"p", 0.5}}),
                                  layer("attention", {{"heads", 4}, {"kv_heads", 2}}),
                                  linear(24),
                                  layer("swiglu"),
                                  linear(6),
                                  layer("relu"),
                                  linear(4)};
  const std::shared_ptr<Module> model = make_layers(specs);
  model->plan(sequences({5, 16}));
  StepState state;
  model->initialize(kModelRoot, state);
  mark_hidden_weights(*model);
  std::vector<std::vector<int64_t>> stacked;
  std::vector<bool> hidden;
  for (const Parameter* p : model->parameters()) {
    stacked.push_back(p->stacked());
    hidden.push_back(p->hidden());
  }
  CHECK(stacked == std::vector<std::vector<int64_t>>{{16, 8, 8}, {12, 12}, {}, {}});
  CHECK(hidden == std::vector<bool>{true, true, true, false});
}
