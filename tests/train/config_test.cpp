// The reader of configurations: what it accepts, what it fills in, what it writes back.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bitgrad/quant/scheme.h"
#include "config/choices.h"
#include "config/fields.h"
#include "config/schema.h"
#include "config/texts.h"
#include "support/paths.h"
#include "train/config_support.h"

namespace bitgrad {

using namespace test;

TEST_CASE("every shipped configuration loads, and its resolved form reads back to an equal one") {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(test::source_path("configs"))) {
    INFO(file.path());
    const RunConfig config = load_config(file.path().string());
    CHECK(config.run.name == file.path().stem().string());
    const std::string resolved = to_yaml(config);
    const RunConfig again = parse_config(resolved, "/elsewhere/resolved.yaml");
    CHECK((again == config));
    CHECK(to_yaml(again) == resolved);
    CHECK(config.origin.text.size() == std::filesystem::file_size(file.path()));
    ++files;
  }
  CHECK(files >= 20);
}

TEST_CASE("the MNIST configurations hold the recipe of their papers") {
  const RunConfig w1a1 = load_config(test::source_path("configs/mnist_tfc_w1a1.yaml"));
  REQUIRE(w1a1.layers.size() == 16);
  CHECK(w1a1.layers[0].kind == "quantize");
  CHECK(w1a1.layers[1].attributes.number("p") == 0.2);
  CHECK(w1a1.layers[2].attributes.integer("out") == 64);
  CHECK_FALSE(w1a1.layers[2].attributes.flag("bias"));
  CHECK(w1a1.layers[3].attributes.number("eps") == 1e-5);
  CHECK(w1a1.layers[15].kind == "tensor_norm");
  CHECK(w1a1.layers[15].attributes.number("eps") == 1e-4);
  CHECK(w1a1.quant.weights.quant->dtype == dtypes::bint1);
  CHECK(w1a1.quant.weights.quant->ste == SteRule::kIdentity);
  CHECK(w1a1.quant.weights.init == Init{"uniform", -1, 1});
  CHECK(w1a1.quant.weights.latent_clamp == 1.0);
  CHECK(w1a1.train.stop == Quantity{1000, Quantity::Unit::kEpochs});
  CHECK(w1a1.schedule.every == Quantity{40, Quantity::Unit::kEpochs});
  const RunConfig w1a2 = load_config(test::source_path("configs/mnist_lfc_w1a2.yaml"));
  CHECK(w1a2.layers[2].attributes.integer("out") == 1024);
  CHECK(w1a2.layers[2].weight.quant->dtype == dtypes::bint1);
  CHECK(w1a2.layers[0].activation->spec.dtype == dtypes::ternary);
  CHECK(w1a2.layers[0].activation->spec.scheme == "fixed");
  CHECK(w1a2.layers[0].activation->spec.ste == SteRule::kClip);
  CHECK(w1a2.train.stop.value == 500);
}

TEST_CASE("commas inside parentheses are kept in flow maps") {
  const RunConfig c = parse_config(with_line("  weights:",
                                             "  weights:     {dtype: bint1, scheme: binary, alpha: none, granularity: "
                                             "tensor, rounding: nearest, ste: identity, init: uniform(-1, 1), "
                                             "latent_clamp: 1, grad: bf16}   # (a, b)"),
                                   "c.yaml");
  CHECK(c.quant.weights.init == Init{"uniform", -1, 1});
  CHECK(c.quant.weights.grad == dtypes::bf16);
  CHECK(c.layers[1].weight == c.quant.weights);
  CHECK(contains(text_error(with_line("  weights:", "  weights: {dtype: bint1, init: uniform(-1,1}")),
                 "c.yaml:8:44: error: unknown key '1'"));
}

TEST_CASE("defaults are those of the registry, and computed ones follow other keys") {
  const RunConfig c = small({});
  CHECK(c.run.name == "small");
  CHECK(c.run.dir == "runs");
  CHECK(c.run.bits == "fast");
  CHECK_FALSE(c.device.threads.has_value());
  CHECK(c.loss == "softmax_cross_entropy");
  CHECK(c.optim.spec.beta1 == 0.9);
  CHECK(c.optim.spec.beta2 == 0.999);
  CHECK(c.optim.spec.eps == 1e-8f);
  CHECK(c.schedule.name == "constant");
  CHECK(c.checkpoint.every == Quantity{1, Quantity::Unit::kEpochs});
  CHECK(c.data.root.empty());
  CHECK(c.data.train.split == "train");
  CHECK(c.data.test->split == "test");
  CHECK(c.quant.activations->spec.ste == SteRule::kClip);
  CHECK(small({"adapters={}"}).adapters->adapter == AdaptersConfig().adapter);  // those of a program too
  CHECK(AdaptersConfig().adapter.alpha == 16);
  CHECK(small({"batch.global=120", "batch.micro=40"}).quant.requantize_every == 3);
  CHECK(small({"batch.global=120", "batch.micro=40"}).train.eval.batch == 40);
  CHECK(small({"batch.global=120"}).batch.micro == 120);
  CHECK(parse_config(with_line("quant:", "quant: {}").substr(0, 0) + with_line("  weights:", ""), "c.yaml")
            .quant.weights.quant == std::nullopt);
  CHECK(parse_config(kSmall, "dir/my run!.yaml").run.name == "my_run_");
}

TEST_CASE("a layer's own keys override those of quant, and what does not fit the new dtype is dropped") {
  const RunConfig c =
      small({"quant.weights={dtype: bint1, scheme: binary, alpha: channel, ste: approx_sign, latent_clamp: 1, "
             "rounding: nearest}",
             "model.layers=[{linear: {out: 8, weights: {dtype: fp32}}}, {quantize: {ste: none}}, {linear: {out: 4, "
             "weights: {dtype: int4, rounding: stochastic}}}, "
             "{quantize: {dtype: int8, scheme: absmax}}, {linear: {out: 10}}]"});
  CHECK(c.layers[0].weight.quant == std::nullopt);
  CHECK(c.layers[0].weight.latent_clamp == 1.0);
  CHECK(c.layers[1].activation->spec.ste == SteRule::kNone);
  CHECK(c.layers[1].activation->spec.dtype == dtypes::bint1);
  CHECK(c.layers[2].weight.quant->scheme == "symmetric");
  CHECK_FALSE(c.layers[2].weight.quant->alpha);
  CHECK(c.layers[2].weight.quant->rounding == Rounding::kStochastic);
  CHECK(c.layers[3].activation->spec.scheme == "absmax");
  CHECK(c.layers[4].weight.quant->alpha);
  CHECK((c.layers[4].weight.quant->granularity == Granularity::channel(0)));
  CHECK((parse_config(to_yaml(c), "r.yaml") == c));
}

TEST_CASE("all kinds of findings are reported at once, sorted, with source lines and carets") {
  const std::string text = R"(vesion: 1
run: {name: a/b, seed: 0x10, bits: fats}
data:
  train: {format: idx, images: a}
  test: {format: digits, size: 10, images: b}
model:
  layers: [{quantize: {}}, {dropuot: {p: 0.2}}, {linear: {out: 6.4, bias: no}}, relu]
quant:
  weights: {dtype: int1, scheme: symmetric, latent_clamp: 1, latent_clamp: 2}
  activations: {dtype: bint1, scheme: binary, granularity: group(8)}
batch: {global: 100, micro: 30}
optim: {name: adam, lr: -0.1, momentum: 0.9}
train: {stop: 1000}
)";
  CHECK(places(text) == "1:1 2:13 2:24 2:36 4:3 5:36 7:29 7:64 7:75 7:81 9:34 9:62 10:60 11:17 12:25 12:31 13:15");
  const std::string report = text_error(text);
  CHECK(contains(report, "c.yaml:1:1: error: unknown key 'vesion'. Did you mean 'version'?"));
  CHECK(contains(report,
                 "  2 | run: {name: a/b, seed: 0x10, bits: fats}\n    |                                    ^~~~\n"));
  CHECK(contains(report, "'fats', did you mean 'fast'? Expected one of fast, strict"));
  CHECK(contains(report, "missing required key 'data.train.labels'"));
  CHECK(contains(report, "use scheme step or minmax_offset, or dtype bint1 with scheme binary"));
  CHECK(contains(report, "got 'group(8)', expected one of tensor, token, channel(1)"));
  CHECK(contains(report, "it is already set at 9:45"));
  CHECK(contains(report, "batch.global (100) is not a multiple of batch.micro (30); nearest: 90 or 120"));
  CHECK(contains(report, "optim.momentum requires optim.name sgd or muon or normuon, not adam"));
  CHECK(contains(report, "a unit (steps or epochs)"));
  CHECK(report.ends_with("17 errors. Nothing was started."));
}

TEST_CASE("contradictions are findings at the keys that cause them") {
  struct Case {
    Strings overrides;
    std::string part;
  };
  const std::vector<Case> cases{
      {{"batch.global=100", "batch.micro=50", "quant.requantize_every=3"},
       "argument 3: error: quant.requantize_every (3) is not a multiple of A = batch.global / batch.micro = 2; "
       "nearest: 2 or 4"},
      {{"schedule={name: cosine, every: 4 epochs}"},
       "schedule.every requires schedule.name step or exponential, not cosine"},
      {{"schedule={name: step, factor: 0.5}"}, "missing required key 'schedule.every'"},
      {{"schedule.warmup=3 epochs"},
       "schedule.warmup (3 epochs) is not shorter than train.stop (3 epochs): a shorter run needs schedule.warmup of "
       "less, such as schedule.warmup=0 epochs"},
      {{"optim={name: sgd, lr: 1, nesterov: true}"}, "optim.nesterov needs optim.momentum above 0"},
      {{"quant.weights.dtype=int4"}, "scheme binary needs dtype bint1, got int4"},
      {{"quant.weights={dtype: bint1, scheme: absmax}"}, "scheme absmax needs dtype int2 or"},
      {{"quant.weights={dtype: int4, scheme: ternary}"}, "scheme ternary needs dtype ternary, got int4"},
      {{"quant.weights={dtype: bint1, scheme: step}"}, "scheme step needs dtype int1, got bint1"},
      {{"quant.weights={dtype: int4, scheme: codebook}"}, "scheme codebook needs dtype nf4 or fp4_e2m1"},
      {{"quant.weights={dtype: int1, scheme: affine}"},
       "use scheme step or minmax_offset, or dtype bint1 with scheme binary"},
      {{"quant.weights={dtype: fp32, scheme: absmax}"}, "scheme is for low-bit dtypes, dtype is fp32"},
      {{"quant.weights={scheme: absmax}"}, "no dtype is set"},
      {{"quant.weights={dtype: ternary, scheme: fixed}"}, "scheme fixed needs a scale"},
      {{"quant.weights={dtype: int4, scheme: absmax, scale: 2}"}, "scale requires scheme fixed, the scheme is absmax"},
      {{"quant.weights={dtype: int4, scheme: absmax, alpha: tensor}"}, "alpha is the scale of scheme binary"},
      {{"quant.weights={dtype: bint1, alpha: channel, granularity: tensor}"},
       "alpha channel and granularity tensor contradict"},
      {{"quant.weights={dtype: int4, ste: approx_sign}"},
       "ste approx_sign requires scheme binary or standardized_binary or step"},
      {{"quant.activations.alpha=channel"}, "got 'channel', expected one of none, tensor, token"},
      {{"quant.weights.granularity=group:32"}, "got 'group:32', expected one of tensor, channel, channel(1), token"},
      {{"quant.activations.granularity=channel"}, "got 'channel', expected one of tensor, token, channel(1)"},
      {{"quant.activations.dtype=fp32"}, "got 'fp32', expected one of int1"},
      {{"~quant.activations"},
       "c.yaml:5:7: error: model.layers.0.quantize needs a dtype, its own or that of quant.activations"},
      {{"model.layers=[{relu: {}}]"}, "missing a linear layer"},
      {{"model.layers=[{linear: {out: 3}}, {relu: {}}]"}, "nothing but norms or dequantize after it; got relu"},
      {{"data.test={format: digits, size: 5, labels: x}"},
       "data.test.labels requires data.test.format idx or cifar100 or npy or npz or tokens, not digits"},
      {{"~data.test", "train.eval.every=2 epochs"}, "train.eval needs data.test"},
      {{"data.affine=[0, 1]"}, "a factor of 0 makes all pixels equal"},
      {{"model.layers.0={relu: {}, tanh: {}}"}, "a layer has one kind, got relu and tanh"},
      {{"model.layers.0.quantize.scheme=ternary"},
       "argument 1: error: model.layers.0.quantize: scheme ternary needs dtype ternary, got bint1"},
  };
  for (const Case& c : cases) {
    INFO(c.overrides.back());
    const std::string report = error_of([&] { parse_config(kSmall, "c.yaml", c.overrides); });
    INFO(report);
    CHECK(contains(report, c.part));
    CHECK(report.ends_with("1 error. Nothing was started."));
  }
}

TEST_CASE("overrides set, add, replace and reset, and the last one for a key wins") {
  CHECK(small({"optim.lr=0.5", "optim.lr=0.25"}).optim.spec.base_lr == 0.25);
  CHECK(small({"data.affine=[2,-1]"}).data.affine == std::array<float, 2>{2, -1});
  CHECK(small({"model.layers.1.linear.out=12"}).layers[1].attributes.integer("out") == 12);
  CHECK(small({"train.stop=7 steps"}).train.stop == Quantity{7, Quantity::Unit::kSteps});
  CHECK(small({"quant.weights.init=normal(0, 0.5)"}).quant.weights.init == Init{"normal", 0, 0.5});
  CHECK(small({"optim.clip_norm=1", "~optim.clip_norm"}).optim.spec.clip_norm == 0);
  CHECK(small({"optim={name: sgd, lr: 1, momentum: 0.9}"}).optim.spec.momentum == 0.9f);
  CHECK(small({"quant.weights.init=constant(-0.5)"}).quant.weights.init == Init{"constant", -0.5, 0});
  CHECK(contains(to_yaml(small({"quant.weights.init=constant(-0.5)"})), "init: \"constant(-0.5)\""));
  CHECK(small({"run.name=\"007\""}).run.name == "007");
}

TEST_CASE("a bad override names the argument and shows it") {
  CHECK(contains(small_error({"run.seed=2", "optim.lr=-1"}),
                 "command line, argument 2: error: optim.lr: -1 is out of range [1e-30, 1000]\n   | optim.lr=-1\n   |  "
                 "        ^~\n"));
  for (const char* bad : {"foo",
                          "=3",
                          "a..b=3",
                          ".a=3",
                          "a.=3",
                          "optim.lr=",
                          "optim.lr.x=1",
                          "optim.xl=1",
                          "x.y=1",
                          "model.layers.9.linear.out=3",
                          "model.layers.-1.linear.out=3",
                          "model.layers.x=3",
                          "~optim.lr",
                          "~optim.betas",
                          "~x.y",
                          "optim={",
                          "optim=[1",
                          "optim={name: *a}",
                          "optim.lr=&a 1",
                          "optim.lr=!!float 1",
                          "run.name=a\nb",
                          "run.name=a\tb",
                          "run.name=\xff",
                          "data=3",
                          "model=3",
                          "~",
                          "optim.lr=1 2",
                          "optim.lr: 3"}) {
    INFO(bad);
    CHECK(small_error({bad}).starts_with("command line, argument 1: error: "));
  }
  CHECK(small_error({"run.seed=2", std::string(40, 'a') + '.' + std::string(1000000, '.') + "=1"})
            .starts_with("command line, argument 2: error: expected key=value"));
  // Findings of the file come first.
  CHECK(places(with_line("optim:", "optim: {name: adam, lr: 0}"), {"run.bits=x"}) == "10:25 arg1");
}

TEST_CASE("numbers are decimal and typed by the schema") {
  for (const char* text : {"1e-4", "1E-4", ".0001", "0.0001", "+1e-4", "1.e-4"})
    CHECK(small({std::string("optim.lr=") + text}).optim.spec.base_lr == 1e-4);
  for (const char* text : {"0x1p-3", "inf", ".inf", "nan", ".nan", "1_0", "01", "1e", "1,0", "--1", "\"1\"", "1e-", ".",
                           "e5", "1 0", "true", "[1]", "{}", "~"}) {
    INFO(text);
    CHECK(small_error({std::string("optim.lr=") + text}).starts_with("command line, argument 1: error: "));
  }
  CHECK(contains(small_error({"optim.lr=1e-999"}), "out of range"));
  CHECK(small({"run.seed=9223372036854775807"}).run.seed == INT64_MAX);
  for (const char* text : {"9223372036854775808", "-1", "1.0", "1e3", "010", "0x1", "0o7"})
    CHECK(small_error({std::string("run.seed=") + text}).starts_with("command line"));
  for (const char* text : {"yes", "no", "True", "on", "1", "\"true\""})
    CHECK(small_error({std::string("model.layers.1.linear.bias=") + text}).starts_with("command line"));
  for (double x : {0.1, 1e-30, 1.0 / 3.0, 1e22, 123456789.125}) {
    double back = 0;
    CHECK(parse_decimal(number_text(x), back) == NumberResult::kOk);
    CHECK(back == x);
  }
}

TEST_CASE("quantities need a unit that the key knows") {
  CHECK(small({"train.stop=1 epoch"}).train.stop == Quantity{1, Quantity::Unit::kEpochs});
  for (const char* text :
       {"5", "5 samples", "epochs", "5epochs", "5  epochs", "1.5 epochs", "5 epochs 3", "0 epochs", "-1 steps"}) {
    INFO(text);
    CHECK(small_error({std::string("train.stop=") + text}).starts_with("command line"));
  }
  CHECK(contains(small_error({"log.every=2 epochs"}), "a unit (steps)"));
}

TEST_CASE("later stages can report at a place of the configuration") {
  const RunConfig c = small({"model.layers.1.linear.out=12"});
  CHECK(std::string(config_error_at(c, origin_of(c.layers[0]).mark, "does not fit").what()) ==
        "small.yaml:5:7: error: does not fit\n  5 |     - quantize: {}\n    |       ^\n1 error. Nothing was started.");
}

TEST_CASE("what reads maps by hand and the registry name the same keys") {
  Strings keys;
  const auto collect = [&](std::string_view key, const auto&) { keys.emplace_back(key); };
  const auto same = [&](std::string_view group) {
    Strings wanted = config::keys_of(group);
    std::sort(wanted.begin(), wanted.end());
    std::sort(keys.begin(), keys.end());
    INFO(group);
    CHECK(keys == wanted);
    keys.clear();
  };
  const QuantSpec codes;
  const auto all_codes = [&] {
    visit_quant(collect, codes);
    keys.insert(keys.end(), {"alpha", "ste_t", "learned"});
  };
  const ParameterSpec weights;
  all_codes(), config::visit(collect, weights), same("weights");
  all_codes(), keys.insert(keys.end(), {"observer", "grad"}), same("activations");
  keys = {"dtype", "scheme", "granularity", "rounding"}, same("quantize_gradient");
  for (const std::string& name : config::keys_of("layer")) {
    const LayerKind& kind = *find_layer_kind(name);
    for (const Key& key : kind.keys) keys.push_back(key.name);
    if (kind.weights) keys.emplace_back("weights");
    if (kind.product) keys.insert(keys.end(), {"compute", "backward"});
    if (kind.lists.kind == LayerLists::Kind::kNamed)
      for (const Key& key : kind.lists.keys) keys.push_back(key.name);
    else if (kind.lists.kind != LayerLists::Kind::kNone)
      keys.emplace_back("layers");
    if (kind.quantizer == LayerKind::Quantizer::kNone) same(config::group_of_kind(name));
  }
}

TEST_CASE("every line of the registry is complete and reads its own default") {
  for (const config::KeySpec* key : config::all_keys()) {
    const config::KeySpec& spec = *key;
    INFO(spec.group << '.' << spec.name);
    CHECK_FALSE(spec.doc.empty());
    CHECK_FALSE(expects(spec).empty());
    if (config::use_of(spec.type).read && spec.has_default())
      CHECK_FALSE(std::holds_alternative<std::monostate>(config::default_value(spec)));
    if (spec.type == Key::Type::kMap)
      CHECK((spec.group == "layer" || spec.group == "metrics" || !config::keys_of(spec.inner()).empty()));
    CHECK(config::find_key(spec.group, spec.name) == &spec);
  }
}

TEST_CASE("every allowed value of every list is accepted somewhere") {
  for (const std::string& dtype : config::choices::weight_dtypes()) {
    const DType d = parse_dtype(dtype);
    for (const std::string& scheme : config::choices::schemes_for(d, config::Role::kWeights)) {
      INFO(dtype << ' ' << scheme);
      const RunConfig c = small(
          {concat("quant.weights={dtype: ", dtype, ", scheme: ", scheme, scheme == "fixed" ? ", scale: 0.5}" : "}")});
      CHECK((d.is_float() ? c.layers[1].weight.quant == std::nullopt : c.layers[1].weight.quant->scheme == scheme));
      CHECK((parse_config(to_yaml(c), "r.yaml") == c));
    }
    const std::optional<QuantSpec> codes = small({concat("quant.weights={dtype: ", dtype, "}")}).quant.weights.quant;
    CHECK((codes ? codes->dtype : dtypes::fp32) == d);
  }
  for (const Strings& overrides :
       {Strings{
            "optim={name: sgd, lr: 1, momentum: 0.9, nesterov: true, weight_decay: 0.1, clip_norm: 1, clip_value: 2}"},
        Strings{"optim={name: adamw, lr: 1, betas: [0, 0.5], eps: 1, weight_decay: 0.1}"},
        Strings{"schedule={name: exponential, every: 2 epochs, gamma: 0.5}"},
        Strings{"schedule={name: cosine, final: 0.5, warmup: 2 steps}"},
        Strings{"loss=squared_hinge", "run.bits=strict", "device.threads=3"},
        Strings{"device={kind: cuda, index: 1, graph: false, resident_data: true}"},
        Strings{"device.kind=cuda", "device.resident_data=false"},
        Strings{"model.layers=[{linear: {out: 2}}, {hardtanh: {}}, {linear: {out: 2}}, {tanh: }, {linear: {out: 3}}, "
                "{tensor_norm: {eps: 1}}]"}}) {
    const RunConfig c = small(overrides);
    CHECK((parse_config(to_yaml(c), "r.yaml") == c));
    CHECK_FALSE((small({}) == c));
  }
}

TEST_CASE("the page of the configuration holds the registry's tables") {
  std::ifstream in(test::source_path("docs/configuration.md"));
  std::stringstream page;
  page << in.rdbuf();
  CHECK(contains(page.str(), config_reference()));
}

}  // namespace bitgrad
