// Keys of quantization: what each says to the library, how layers inherit it, and what contradicts.
#include <algorithm>

#include "config/choices.h"
#include "config/specs.h"
#include "support/paths.h"
#include "train/config_support.h"

namespace bitgrad {

using namespace test;

namespace {

bool round_trips(const RunConfig& c) { return parse_config(to_yaml(c), "r.yaml") == c; }

// The one finding of a text or of overrides: "line:col: message" or "arg N: message".
std::string finding(const Strings& overrides, const std::string& text = kSmall) {
  try {
    parse_config(text, "c.yaml", overrides);
  } catch (const ConfigError& error) {
    if (error.diagnostics().size() != 1) return error.what();
    const ConfigDiagnostic& d = error.diagnostics()[0];
    return concat(d.mark.argument ? concat("arg ", d.mark.argument) : concat(d.mark.line, ':', d.mark.col), ": ",
                  d.message);
  }
  return "";
}

// "" when `found` starts with `wanted`, else `found`.
std::string other_than(const std::string& wanted, const std::string& found) {
  return found.starts_with(wanted) ? "" : "found: " + found;
}

ParameterSpec weights(const std::string& keys) {
  const RunConfig c = small({"quant.weights={" + keys + "}"});
  CHECK(round_trips(c));
  return c.layers[1].weight;
}
ActivationQuant activations(const std::string& keys) {
  const RunConfig c = small({"quant.activations={" + keys + "}"});
  CHECK(round_trips(c));
  return c.layers[0].activation.value();
}

}  // namespace

TEST_CASE("keys of weights reach the library, and read back") {
  const ParameterSpec p = weights(
      "dtype: int8, scheme: symmetric, granularity: group(32), rounding: stochastic, reduce_range: true, eps: 1e-6, "
      "pow2: "
      "true, div: true, scale_dtype: fp16, init: zeros, master: bf16, moments: int8, lr_factor: 0.5, weight_decay: "
      "0.25, frozen: true");
  CHECK((p.quant->granularity == Granularity::groups(32)));
  CHECK(p.quant->rounding == Rounding::kStochastic);
  CHECK(p.quant->reduce_range);
  CHECK(p.quant->eps == 1e-6f);
  CHECK(p.quant->pow2);
  CHECK(p.quant->div);
  CHECK(p.quant->scale_dtype == dtypes::fp16);
  CHECK(p.master == MasterKind::kBf16);
  CHECK(p.moments == MomentKind::kInt8);
  CHECK(p.optimizer.empty());
  CHECK(p.lr_factor == 0.5f);
  CHECK(p.weight_decay == 0.25f);
  CHECK(p.frozen);
  const ParameterSpec plain = weights("dtype: int8");
  CHECK_FALSE(plain.quant->eps.has_value());
  CHECK_FALSE(plain.weight_decay.has_value());
  CHECK(plain.master == MasterKind::kFp32);
  CHECK(plain.quant->scheme == "symmetric");
}

TEST_CASE("keys of learned, clipped and sign schemes reach the library") {
  const ParameterSpec lsq =
      weights("dtype: int4, scheme: lsq, granularity: channel, learned: {lr_factor: 0.1, weight_decay: 0.5}");
  CHECK(lsq.learned.lr_factor == 0.1f);
  CHECK(lsq.learned.weight_decay == 0.5f);
  const ParameterSpec alpha = weights("dtype: bint1, alpha: channel, alpha_grad: true");
  CHECK(alpha.quant->alpha);
  CHECK(alpha.quant->alpha_grad);
  CHECK((alpha.quant->granularity == Granularity::channel(0)));
  const ParameterSpec tanh = weights("dtype: bint1, ste: tanh, ste_t: [0.5, 20]");
  CHECK(tanh.quant->ste == SteRule::kTanh);
  CHECK(tanh.quant->ste_t_first == 0.5f);
  CHECK(tanh.quant->ste_t_last == 20.0f);
  const ParameterSpec standardized = weights("dtype: bint1, scheme: standardized_binary");
  CHECK((standardized.quant->granularity == Granularity::channel(0)));
  CHECK(standardized.quant->ste == SteRule::kTanh);
  const ParameterSpec bop = weights("dtype: bint1, scheme: binary, master: none, optimizer: bop");
  CHECK(bop.master == MasterKind::kNone);
  CHECK(bop.optimizer == "bop");
  const LayerSpec pact =
      small({"quant.activations={dtype: uint4, scheme: pact, first_clip: 6, learned: {weight_decay: 0.1}}"}).layers[0];
  CHECK(pact.activation->spec.first_clip == 6.0f);
  CHECK(pact.activation->learned.weight_decay == 0.1f);
  CHECK(pact.activation->learned.lr_factor == 1.0f);
  CHECK_FALSE(pact.activation->observer.has_value());
  const ActivationQuant token = activations("dtype: bint1, alpha: token");
  CHECK((token.spec.granularity == Granularity::token()));
}

TEST_CASE("observers, products of the backward and gradients reach the library") {
  const ActivationQuant c =
      activations("dtype: int8, scheme: absmax, observer: {name: percentile, percentile: 99.5}, grad: bf16");
  CHECK(c.observer == ObserverSpec{"percentile", 0.99f, 99.5f});
  const RunConfig run =
      small({"quant.weights={dtype: int8, granularity: group(64)}", "quant.activations={dtype: int8}",
             "quant.backward={gx: int8, gw: bf16, rounding: nearest, per_group: true}",
             "model.layers=[{linear: {out: 64}}, {quantize: {observer: {name: moving_average, momentum: "
             "0.5}}}, {quantize_gradient: {dtype: uint8}}, {linear: {out: 4, backward: {gw: int8}}}]"});
  CHECK(round_trips(run));
  const ProductSpec first = run.layers[0].product, last = run.layers[3].product;
  CHECK(first.gx == ProductMode::kInt8);
  CHECK(first.gw == ProductMode::kBf16);
  CHECK(first.rounding == Rounding::kNearest);
  CHECK(first.per_group);
  CHECK(last.gx == ProductMode::kInt8);
  CHECK(last.gw == ProductMode::kInt8);
  CHECK(run.layers[1].activation->observer->momentum == 0.5f);
  const LayerSpec gradient = run.layers[2];
  CHECK(gradient.activation->spec.scheme == "dorefa_gradient");
  CHECK((gradient.activation->spec.granularity == Granularity::token()));
  CHECK(gradient.activation->spec.rounding == Rounding::kStochastic);
  const RunConfig signed_codes =
      small({"model.layers.0={quantize_gradient: {dtype: int8, granularity: tensor, rounding: nearest}}"});
  CHECK(round_trips(signed_codes));
  CHECK(signed_codes.layers[0].activation->spec.scheme == "absmax");
  CHECK((signed_codes.layers[0].activation->spec.granularity == Granularity::tensor()));
  CHECK(signed_codes.layers[0].activation->spec.rounding == Rounding::kNearest);
}

TEST_CASE("the optimizer's keys reach the library, and weights use its moments unless they set their own") {
  const RunConfig c = small({"optim={name: adam, lr: 0.5, moments: bf16, bop: {gamma: 0.25, threshold: 0.125}}",
                             "model.layers=[{linear: {out: 4, weights: {moments: int8}}}, {linear: {out: 4, weights: "
                             "{dtype: fp32}}}, {linear: {out: 2, weights: {moments: int4}}}, {linear: {out: 2, "
                             "weights: {master: none, optimizer: bop}}}]"});
  CHECK(round_trips(c));
  const OptimizerSpec o = c.optim.spec;
  CHECK(o.moments == MomentKind::kBf16);
  CHECK(o.base_lr == 0.5);
  CHECK(o.bop.gamma == 0.25f);
  CHECK(o.bop.threshold == 0.125f);
  CHECK(c.layers[0].weight.moments == MomentKind::kInt8);
  CHECK_FALSE(c.layers[1].weight.moments.has_value());  // those of the rule that updates it
  CHECK(c.layers[2].weight.moments == MomentKind::kInt4);
  CHECK_FALSE(c.layers[3].weight.moments.has_value());
}

TEST_CASE("granularities have one form each") {
  using Form = std::pair<const char*, Granularity>;
  for (const auto& [text, wanted] :
       {Form{"tensor", Granularity::tensor()}, Form{"channel", Granularity::channel(0)},
        Form{"channel(0)", Granularity::channel(0)}, Form{"channel(1)", Granularity::channel(1)},
        Form{"token", Granularity::token()}, Form{"group(32)", Granularity::groups(32)},
        Form{"group(1,32)", Granularity::groups(32)}, Form{"group( 0, 7 )", Granularity::groups(7, 0)}}) {
    INFO(text);
    CHECK((weights(concat("dtype: int8, granularity: ", text)).quant->granularity == wanted));
  }
  for (const char* text : {"group(1048577)", "group(9223372036854775808)", "group()", "group(,)", "channel()",
                           "token(0)", "group(-1,32)", "Channel", "group(32) "}) {
    INFO(text);
    const std::string report = small_error({concat("quant.weights={dtype: int8, granularity: ", text, "}")});
    CHECK((std::string(text) == "group(32) " ? report.empty() : contains(report, "quant.weights.granularity: got")));
  }
}

TEST_CASE("keys of quant that do not fit a layer's own dtype or scheme are skipped") {
  const RunConfig c = small(
      {"quant.weights={dtype: bint1, scheme: binary, master: none, optimizer: bop}",
       "quant.activations={dtype: int8, scheme: absmax, observer: {name: mse}, reduce_range: true}",
       "quant.backward={gx: int8, gw: int8}",
       "model.layers=[{quantize: {}}, {linear: {out: 8, bias: false}}, {quantize: {dtype: int4}}, {linear: {out: 8, "
       "weights: {dtype: int4, scheme: absmax, granularity: channel}}}, {quantize: {scheme: lsq}}, {linear: {out: 8, "
       "weights: {dtype: fp32}}}, "
       "{quantize: {observer: {name: none}}}, {linear: {out: 4, weights: {dtype: int8, master: fp32}}}]"});
  CHECK(round_trips(c));
  CHECK(c.layers[1].weight.optimizer == "bop");
  CHECK(c.layers[1].product.gw == ProductMode::kInt8);
  CHECK(c.layers[2].activation->observer->name == "mse");
  CHECK_FALSE(c.layers[2].activation->spec.reduce_range);
  CHECK(c.layers[3].weight.optimizer.empty());
  CHECK(c.layers[3].weight.master == MasterKind::kNone);
  CHECK(c.layers[3].weight.quant->ste == SteRule::kClip);
  CHECK(c.layers[4].activation->observer == std::nullopt);
  CHECK(c.layers[5].product.gx == ProductMode::kFp32);
  CHECK(c.layers[5].weight.master == MasterKind::kFp32);
  CHECK(c.layers[6].activation->observer == std::nullopt);
  CHECK(c.layers[6].activation->spec.reduce_range);
  CHECK(c.layers[7].weight.master == MasterKind::kFp32);
}

TEST_CASE("contradictions between keys of quantization are found at the key that causes them") {
  struct Case {
    Strings overrides;
    std::string part;
  };
  const std::vector<Case> cases{
      {{"quant.weights.optimizer=bop"},
       "arg 1: quant.weights: bop updates no master, got master fp32. Set master to none"},
      {{"quant.weights={dtype: int8, granularity: channel, master: none, optimizer: bop}"},
       "quant.weights: bop flips weights that are -1 and +1, got"},
      {{"quant.weights.master=none"},
       "arg 1: quant.weights: updates are rounded into codes of kind int or uint, got bint1. Use optimizer bop"},
      {{"quant.weights={dtype: int8, scheme: absmax, master: none}"},
       "without a master scales are fitted row by row, got granularity tensor"},
      {{"quant.weights={dtype: int8, scheme: absmax, master: none, granularity: channel(1)}"},
       "got granularity channel(1)"},
      {{"quant.weights={dtype: int8, scheme: absmax, master: none, granularity: group(0,32)}"},
       "got granularity group"},
      {{"quant.weights={dtype: int4, scheme: lsq, master: none, granularity: channel}"},
       "scheme lsq learns from the position of the master between the codes"},
      {{"quant.weights={dtype: bint1, master: none, optimizer: bop, latent_clamp: 1}"},
       "bop has no values to clamp or decay"},
      {{"quant.weights={dtype: bint1, master: none, optimizer: bop, ste: tanh}"},
       "its straight-through rule must be identity or clip"},
      {{"quant.weights={dtype: fp32, master: bf16}"}, "master is for low-bit dtypes, dtype is fp32"},
      {{"batch.global=100", "batch.micro=50", "quant.requantize_every=4",
        "quant.weights={dtype: int8, scheme: absmax, master: none, granularity: channel}"},
       "arg 3: quant.requantize_every (4) must be A = batch.global / batch.micro = 2: model.layers.1.linear.weights "
       "has master none"},
      {{"optim={name: sgd, lr: 1, moments: bf16}"},
       "arg 1: optim.moments: optim.name sgd without momentum keeps no moments, got bf16"},
      {{"optim={name: sgd, lr: 1}", "quant.weights.moments=int8"},
       "arg 2: model.layers.1.linear.weights.moments: optim.name sgd without momentum"},
      {{"optim={name: sgd, lr: 1}", "model.layers.1.linear.weights.moments=int8"},
       "arg 2: model.layers.1.linear.weights.moments: optim.name sgd"},
      {{"quant.weights={dtype: bint1, master: none, optimizer: bop, frozen: true}"},
       "frozen weights never change, optimizer bop has nothing to do"},
      {{"quant.weights={dtype: bint1, master: none, optimizer: bop, weight_decay: 0.1}"},
       "bop has no values to clamp or decay"},
      {{"quant.weights={dtype: int4, scheme: lsq, frozen: true, learned: {lr_factor: 2}}"},
       "frozen weights never change, nor do learned parts"},
      {{"quant.weights.alpha_grad=true"},
       "arg 1: quant.weights: alpha_grad needs scheme binary with alpha, alpha is none"},
      {{"quant.weights={dtype: int8, alpha_grad: true}"}, "alpha_grad needs scheme binary with alpha"},
      {{"quant.weights={dtype: bint1, alpha: tensor, granularity: token}"},
       "alpha tensor and granularity token contradict each other"},
      {{"quant.weights.ste_t=[1, 2]"}, "arg 1: quant.weights: ste_t requires ste tanh, the rule is clip"},
      {{"quant.weights={dtype: int8, ste: tanh}"}, "Rule tanh follows the sign"},
      {{"quant.weights={dtype: int4, reduce_range: true}"}, "expected one of 8 bits"},
      {{"quant.weights={dtype: bint1, pow2: true}"}, "pow2 with dtype bint1: got true, expected false"},
      {{"quant.weights={dtype: bint1, scale_dtype: fp16}"}, "scale_dtype with dtype bint1: got fp16, expected fp32"},
      {{"quant.weights={dtype: int4, scale_dtype: bf16}"}, "expected one of fp32, fp16"},
      {{"quant.weights={dtype: bint1, rounding: stochastic}"}, "Only schemes that round to integers can be stochastic"},
      {{"quant.weights={dtype: int8, first_clip: 3}"}, "first_clip requires scheme pact, the scheme is symmetric"},
      {{"quant.weights={dtype: int8, learned: {lr_factor: 2}}"}, "learned requires a scheme with learned parts ("},
      {{"quant.weights={dtype: int8, scheme: dorefa_gradient}"}, "scheme dorefa_gradient is not for weights"},
      {{"quant.activations.scheme=dorefa_gradient"},
       "arg 1: quant.activations: scheme dorefa_gradient is not for activations"},
      {{"quant.activations={dtype: bint1, observer: {name: mse}}"}, "scheme binary uses none; observers require"},
      {{"quant.activations={dtype: int8, observer: {name: mse, momentum: 0.5}}"},
       "momentum requires observer moving_average, the observer is mse"},
      {{"quant.activations={dtype: int8, observer: {percentile: 50}}"},
       "percentile requires observer percentile, the observer is moving_average"},
      {{"quant.activations={dtype: int8, granularity: channel(1), observer: {name: mse}}"},
       "quant.activations.observer: "},
      {{"quant.activations={dtype: int8, observer: mse}"},
       "quant.activations.observer: got 'mse', expected a map with keys name"},
      {{"quant.weights={dtype: int8, observer: {name: mse}}"},
       "unknown key 'observer' in 'quant.weights'. 'observer' is a key of 'activations'"},
      {{"optim.bop.gamma=0.5"}, "arg 1: optim.bop requires weights with optimizer bop, there are none"},
      {{"quant.weights={dtype: bint1, master: none, optimizr: bop}", "optim.bop.gamma=0.5",
        "quant.weights.master=fp32"},
       "arg 1: unknown key 'optimizr' in 'quant.weights'. Did you mean 'optimizer'?"},
      {{"quant.backward.rounding=nearest"}, "arg 1: quant.backward: rounding requires gx or gw int8"},
      {{"quant.backward={gx: bf16, per_group: true}"}, "arg 1: quant.backward: per_group requires gx int8"},
      {{"model.layers.1.linear.backward={rounding: nearest}"},
       "arg 1: model.layers.1.linear.backward: rounding requires gx or gw int8"},
      {{"model.layers.1.linear.backward={gw: int8, per_group: true}"},
       "arg 1: model.layers.1.linear.backward: per_group requires gx int8"},
      {{"quant.weights={dtype:bint1}"},
       "arg 1: unknown key 'dtype:bint1' in 'quant.weights'. A blank is missing after ':' of 'dtype:'"},
      {{"optim={name: adam, lr:0.1}"}, "arg 1: unknown key 'lr:0.1' in 'optim'. A blank is missing after ':' of 'lr:'"},
      {{"quant.backward.gx=int4"}, "got 'int4', did you mean 'int8'? Expected one of fp32, bf16, int8"},
      {{"model.layers.0={quantize_gradient: {}}"}, "missing required key 'model.layers.0.quantize_gradient.dtype'"},
      {{"model.layers.0={quantize_gradient: {dtype: int8, scheme: lsq}}"}, "scheme lsq is not for gradients"},
  };
  for (const Case& c : cases) {
    INFO(c.overrides.back());
    const std::string found = finding(c.overrides);
    INFO(found);
    CHECK(contains(found, c.part));
    CHECK(found.starts_with("arg "));
  }
}

TEST_CASE("keys of the backward and of bop are accepted where something uses them, and are read back") {
  const RunConfig c =
      small({"model.layers=[{quantize: {}}, {linear: {out: 8, backward: {gw: int8}}}, {linear: {out: 10}}]",
             "quant.backward.rounding=nearest"});
  CHECK(round_trips(c));
  CHECK(c.layers[1].product.rounding == Rounding::kNearest);
  CHECK(c.layers[2].product.rounding == Rounding::kStochastic);  // without int8 there is nothing to round
  const RunConfig first =
      small({"model.layers=[{linear: {out: 8, weights: {dtype: fp32}, backward: {gx: fp32}}}, "
             "{quantize: {}}, {linear: {out: 10}}]",
             "quant.backward={gx: int8, gw: int8, rounding: nearest, per_group: true}"});
  CHECK(round_trips(first));
  CHECK(first.layers[2].product.gw == ProductMode::kInt8);
  CHECK(round_trips(small({"quant.weights={dtype: bint1, master: none, optimizer: bop}", "optim.bop.gamma=0.5"})));
  CHECK(round_trips(small({"quant.backward.rounding=stochastic", "optim.bop={}"})));
  CHECK(small({"optim={name: adam, lr: 1, weight_decay: 0.25}"}).optim.spec.weight_decay == 0.25f);
}

TEST_CASE("the reference lists the schemes that a role supports") {
  const std::string page = config_reference();
  const auto row = [&](const std::string& group) {
    const size_t begin = page.find("| `scheme` |", page.find("### `" + group + "`\n"));
    return page.substr(begin, page.find('\n', begin) - begin);
  };
  CHECK(contains(row("weights"), "dorefa_weight"));
  CHECK_FALSE(contains(row("weights"), "dorefa_gradient"));
  CHECK_FALSE(contains(row("weights"), "dorefa_activation"));
  CHECK_FALSE(contains(row("weights"), "pact"));
  CHECK(contains(row("activations"), "pact"));
  CHECK_FALSE(contains(row("activations"), "dorefa_gradient"));
  CHECK(contains(row("quantize_gradient"), "one of "));
  CHECK(contains(row("quantize_gradient"), "dorefa_gradient"));
  CHECK_FALSE(contains(row("quantize_gradient"), "lsq"));
}

TEST_CASE("layers that do not fit together are found at the key that does not fit") {
  const std::string text = R"(version: 1
data: {train: {format: digits, size: 100}}
model:
  layers:
    - linear: {out: 16, backward: {gx: fp32}}
    - relu: {}
    - quantize: {dtype: int8}
    - linear: {out: 10, weights: {granularity: channel}}
quant:
  weights: {dtype: int8}
optim: {name: adam, lr: 0.01}
train: {stop: 3 epochs}
)";
  CHECK(finding({}, text) == "");
  CHECK(finding({"quant.backward.gx=int8"}, text) == "");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    return changed.replace(changed.find(from), from.size(), to);
  };
  // The first layer's input is no code.
  CHECK(other_than("5:40: model.layers.0.linear.backward.gw: ", finding({}, with("{gx: fp32}", "{gw: int8}"))) == "");
  CHECK(other_than("arg 1: model.layers.0.linear.backward.gw: ",
                   finding({"quant.backward={gx: int8, gw: int8}"}, text)) == "");
  CHECK(finding({}, with("granularity: channel}", "granularity: channel}, backward: {gw: int8}")) == "");
  // Groups of weights.
  const std::string groups = "granularity: group(1)}, backward: {gw: bf16, gx: int8}";
  CHECK(other_than("8:84: model.layers.3.linear.backward.gx: linear: gx int8 needs per-channel scales",
                   finding({}, with("granularity: channel}", groups))) == "");
  // Longer groups depend on the number of features, which the data decide: those are found when the run is built.
  CHECK(finding({}, with("granularity: channel}", "granularity: group(64)}, backward: {gx: int8}")) == "");
  CHECK(finding({}, with("granularity: channel}", "granularity: group(64)}, backward: {gx: int8, per_group: true}")) ==
        "");
  // Other ways to compute.
  CHECK(other_than("8:7: model.layers: the scores must be fp32, got int32; put dequantize",
                   finding({}, with("granularity: channel}", "granularity: channel}, compute: integer_out"))) == "");
  CHECK(other_than("5:56: model.layers.0.linear.compute: linear: compute: integer_out needs quantized input",
                   finding({}, with("{gx: fp32}", "{gx: fp32}, compute: integer_out"))) == "");
  CHECK(other_than("8:93: model.layers.3.linear.backward.gw: linear: compute: simulated has backward products in fp32",
                   finding({}, with("granularity: channel}",
                                    "granularity: channel}, compute: simulated, backward: {gw: int8}"))) == "");
  CHECK(finding({}, with("quantize: {dtype: int8}", "quantize: {dtype: uint8}")) == "");
  CHECK(other_than("arg 1: model.layers.3.linear.compute: linear: compute: integer_out needs input without zero points",
                   finding({"model.layers.3.linear.compute=integer_out"},
                           with("quantize: {dtype: int8}", "quantize: {dtype: uint8}"))) == "");
  CHECK(other_than("7:7: model.layers.2.quantize: quantize: needs fp32 input, got int8",
                   finding({}, with("    - relu: {}\n", "    - quantize: {dtype: int8}\n"))) == "");
}

TEST_CASE("a new scheme is never a dtype's default") {
  for (const DType dtype : all_dtypes()) {
    if (!dtype.is_code()) continue;
    const DTypeKind kind = dtype.kind();
    const bool ternary = dtype == dtypes::ternary, int1 = kind == DTypeKind::kUint && dtype.bits() == 1;
    const std::string wanted = kind == DTypeKind::kSign       ? "binary"
                               : kind == DTypeKind::kCodebook ? "codebook"
                               : ternary                      ? "ternary"
                               : int1                         ? "step"
                               : kind == DTypeKind::kUint     ? "affine"
                                                              : "symmetric";
    INFO(dtype.name());
    CHECK(config::choices::schemes_for(dtype, config::Role::kWeights).front() == wanted);
    CHECK(config::choices::schemes_for(dtype, config::Role::kActivations).front() == wanted);
  }
}

TEST_CASE("Bop keeps a moment under any rule of the run") {
  const RunConfig c =
      small({"optim={name: sgd, lr: 1, moments: int8}", "quant.weights={dtype: bint1, master: none, optimizer: bop}"});
  CHECK_FALSE(c.layers[1].weight.moments.has_value());
  CHECK(c.optim.spec.moments == MomentKind::kInt8);
}

TEST_CASE("quotes round a granularity change nothing, as other YAML readers want them") {
  CHECK((weights("dtype: int4, granularity: \"group(0,3)\"").quant->granularity == Granularity::groups(3, 0)));
  CHECK((weights("dtype: int4, granularity: 'group(16)'").quant->granularity == Granularity::groups(16)));
}

TEST_CASE("the variants of the MNIST perceptrons differ only in what they name") {
  const auto load = [](const std::string& name) {
    return load_config(test::source_path("configs/mnist_mlp_") + name + ".yaml");
  };
  RunConfig twin = load("int8_int");
  for (LayerSpec& layer : twin.layers)
    if (layer.kind == "linear") layer.product.compute = Compute::kSimulated;
  twin.quant.product.compute = Compute::kSimulated;
  twin.run.name = "mnist_mlp_int8_fake";
  CHECK((twin == load("int8_fake")));
  const RunConfig fp32 = load("fp32");
  for (const char* name :
       {"int8_int", "int8_fake", "int8_backward", "int8_masterless", "lsq_w2a2", "lsq_w4a4", "bop_w1a8"}) {
    INFO(name);
    RunConfig same = load(name);
    same.run.name = fp32.run.name;
    same.layers = fp32.layers;
    same.quant = fp32.quant;
    same.optim.spec.bop = fp32.optim.spec.bop;
    CHECK((same == fp32));
  }
  const RunConfig masterless = load("int8_masterless");
  for (const LayerSpec& layer : masterless.layers)
    if (layer.kind == "linear") CHECK(layer.weight.master == MasterKind::kNone);
}

}  // namespace bitgrad
