// Networks of integers: the graph that a model becomes, and what it computes, against plain loops over 64-bit integers.
#include "bitgrad/nn/integer_graph.h"

#include <cmath>
#include <map>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/prepare.h"
#include "nn/integer_product.h"
#include "nn/integer_reference.h"
#include "nn/integer_wanted.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/integer_layers.h"

using namespace bitgrad;
using namespace bitgrad::test;
namespace {

using Net = integer_layers::IntegerLayers;
using integer_layers::conv, integer_layers::layer, integer_layers::shared_values, integer_layers::with_lists;

constexpr OutputRounding kRules[] = {OutputRounding::kDouble, OutputRounding::kSingle, OutputRounding::kFloat};

// Operations of a device call the functions of the CPU, so one rule is enough of its minutes.
std::vector<OutputRounding> rules_here() {
  if (current_device().is_cpu()) return {std::begin(kRules), std::end(kRules)};
  return {OutputRounding::kDouble};
}

std::vector<LayerSpec> residual_net() {
  const LayerSpec norm = layer("batch_norm");
  const LayerSpec block =
      with_lists(layer("residual"), {LayerList("body", {conv(5), norm, layer("relu"), conv(5), norm})});
  const LayerSpec down = with_lists(
      layer("residual"), {LayerList("body", {conv(9, {{"stride", int64_t{2}}}), norm}),
                          LayerList("shortcut", {conv(9, {{"stride", int64_t{2}}, {"kernel", int64_t{1}}})})});
  return {conv(5),
          norm,
          layer("relu"),
          block,
          layer("relu"),
          down,
          layer("relu"),
          layer("global_avg_pool"),
          layer("linear", {{"out", int64_t{4}}})};
}

}  // namespace

TEST_CASE("A residual network computes the codes of plain 64-bit loops by every rule") {
  for (const OutputRounding rule : kRules)
    for (const char* recipe : {"int8", "w4a8_int"}) {
      INFO(enum_name(rule) << ' ' << recipe);
      Net net(residual_net(), {7, 6, 3}, recipe, rule);
      net.calibrate();
      CHECK(check_codes(net.graph(), net.batch(19, 5)) > 10000);
    }
}

TEST_CASE("Layers at the edges of blocks compute the codes of plain 64-bit loops by every rule") {
  const LayerSpec norm = layer("batch_norm");
  const LayerSpec concat =
      with_lists(layer("branches", {{"join", std::string("concat")}}),
                 {LayerList("0", {conv(3)}), LayerList("1", {}), LayerList("2", {conv(2, {{"kernel", int64_t{1}}})})});
  const auto joined = [&](const char* how) {
    return with_lists(layer("branches", {{"join", std::string(how)}}),
                      {LayerList("0", {conv(4), norm}), LayerList("1", {conv(4), layer("hardtanh")})});
  };
  const LayerSpec end = layer("linear", {{"out", int64_t{3}}, {"bias", false}});
  const std::vector<std::vector<LayerSpec>> nets = {
      {conv(8, {{"groups", int64_t{4}}, {"bias", true}}), layer("relu"),
       layer("avg_pool", {{"size", int64_t{3}}, {"stride", int64_t{2}}, {"padding", int64_t{1}}}), layer("flatten"),
       end},
      {conv(4, {{"groups", int64_t{4}}, {"padding", int64_t{1}}}), norm, layer("relu"),
       conv(4, {{"groups", int64_t{4}}, {"stride", int64_t{2}}, {"padding", int64_t{2}}}), layer("flatten"), end},
      {conv(33, {{"dilation", int64_t{2}}, {"padding", int64_t{2}}}), layer("max_pool", {{"size", int64_t{2}}}),
       layer("relu"), layer("flatten"), layer("linear", {{"out", int64_t{17}}}), layer("tanh"), end},
      {conv(1, {{"kernel", int64_t{1}}}), concat, layer("relu"), conv(3), layer("global_avg_pool"), end},
      {joined("add"), layer("relu"), conv(2), layer("flatten"), end},
      {joined("multiply"), conv(2), layer("hardtanh"), layer("flatten"), end},
  };
  for (const std::vector<LayerSpec>& layers : nets)
    for (const OutputRounding rule : rules_here()) {
      INFO(layers[0].kind << ' ' << &layers - nets.data() << ' ' << enum_name(rule));
      Net net(layers, {9, 7, 4}, "int8", rule);
      net.calibrate();
      CHECK(check_codes(net.graph(), net.batch(17, 6)) > 1000);
    }
  Net rows({layer("linear", {{"out", int64_t{65}}}), layer("batch_norm"), layer("relu"),
            layer("linear", {{"out", int64_t{1}}})},
           {131});
  rows.calibrate();
  CHECK(check_codes(rows.graph(), rows.batch(33, 7)) > 1000);
  Net grey({conv(2), layer("relu"), layer("flatten"), end}, {9, 7});  // pixels become rows of one channel
  grey.calibrate();
  CHECK(check_codes(grey.graph(), grey.batch(5, 8)) > 1000);
}

// Files leave the quantizer of the input to their caller, whose codes are any.
TEST_CASE("Bounds of a first layer are a node behind the quantizer of the input") {
  for (const OutputRounding rule : kRules) {
    INFO(enum_name(rule));
    Net net({layer("hardtanh"), layer("linear", {{"out", int64_t{3}}})}, {5}, "int8", rule);
    net.calibrate();
    const inference::Graph graph = net.graph();
    const auto& input = std::get<inference::Quantize>(graph[1].operation);
    CHECK((input.lo == -128 && input.hi == 127));
    const auto& bounds = std::get<inference::Requantize>(graph[2].operation);
    CHECK(bounds.hi - bounds.lo < 255);
    CHECK(graph.readers(1) == 1);
    CHECK(check_codes(graph, net.batch(40, 8)) >= 120);
  }
}

namespace {

int64_t products_of(const std::vector<LayerSpec>& layers) {
  int64_t count = 0;
  for (const LayerSpec& each : layers) {
    count += each.kind == "conv2d" || each.kind == "linear" ? 1 : 0;
    for (const LayerList& list : each.lists) count += products_of(list.layers);
  }
  return count;
}

template <typename Op>
int64_t nodes_of(const Graph& graph) {
  int64_t count = 0;
  for (const inference::Node& node : graph.nodes()) count += std::holds_alternative<Op>(node.operation) ? 1 : 0;
  return count;
}

// The largest difference between layers run in floats and the network, in codes of the result.
double worst_difference(Net& net, const Graph& graph, const Tensor& x) {
  net.state.training = false;
  const NoGrad off;
  const std::vector<double> layers = net.model->forward(Var(x)).value().elements();
  const std::vector<double> integers = inference::IntegerNetwork(graph).run(x).elements();
  const double step = inference::code_scale(graph[graph.output() - 1]).scale;
  double worst = 0;
  for (size_t i = 0; i < layers.size(); ++i) worst = std::max(worst, std::abs(layers[i] - integers[i]) / step);
  return worst;
}

}  // namespace

TEST_CASE("A value with several readers is computed once") {
  for (const auto& [name, layers] : shared_values())
    for (const OutputRounding rule : rules_here()) {
      INFO(name << ' ' << enum_name(rule));
      Net net(layers, {6, 5, 3}, "int8", rule);
      net.calibrate();
      const Graph graph = net.graph();
      CHECK(nodes_of<inference::Product>(graph) == products_of(layers));
      CHECK(nodes_of<inference::Quantize>(graph) == 1);
      CHECK(check_codes(graph, net.batch(5, 12)) > 500);
      CHECK(worst_difference(net, graph, net.batch(24, 13)) <= 8);
    }
}

// Layers run in floats on the same codes (fake quantization); a fold that is wrong is off by far more than a code.
TEST_CASE("A value has the codes of its own quantizer unless another has a wider range") {
  Net net(shared_values().at("max_pool"), {6, 5, 3}, "int8", OutputRounding::kDouble);
  net.calibrate();
  const Graph graph = inference::lowered(*net.model, net.form());
  inference::Value v = 0;
  while (graph.readers(v) < 2) ++v;
  for (const float wider : {0.5f, 1.0f, 1.003f, 4.0f}) {
    INFO(wider);
    const auto wanted_by = [&](const inference::Node& node, const inference::Quantize&) {
      inference::integer::Wanted w;
      w.scale = {node.inputs[0] == v ? 0.1f : 0.1f * wider, 0};
      return w;
    };
    const auto shared = inference::integer::wanted_by_all(graph, v, {}, wanted_by);
    CHECK(shared.scale == inference::CodeScale{wider < 2 ? 0.1f : 0.1f * wider, 0});
  }
}

TEST_CASE("The network is that of the layers up to roundings") {
  for (const char* recipe : {"int8", "w4a8_int"}) {
    Net net(residual_net(), {7, 6, 3}, recipe);
    net.calibrate();
    net.state.training = false;
    const Tensor x = net.batch(32, 9);
    const NoGrad off;
    const std::vector<double> layers = net.model->forward(Var(x)).value().elements();
    const Graph graph = net.graph();
    const std::vector<double> integers = inference::IntegerNetwork(graph).run(x).elements();
    const double step = inference::code_scale(graph[graph.output() - 1]).scale;
    double worst = 0, sum = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      worst = std::max(worst, std::abs(layers[i] - integers[i]) / step);
      sum += std::abs(layers[i] - integers[i]) / step;
    }
    CHECK(worst <= 8);
    CHECK(sum / static_cast<double>(layers.size()) < 2);
  }
}

namespace {

const inference::Product& first_product(const Graph& graph) {
  for (const inference::Node& node : graph.nodes())
    if (const auto* const p = std::get_if<inference::Product>(&node.operation)) return *p;
  throw Error("no product");
}
void set_values(Net& net, const std::string& end, const std::vector<float>& values) {
  for (Parameter* p : net.model->parameters())
    if (p->path().ends_with(end)) p->assign(Tensor::from(values, p->shape()), 0);
}

}  // namespace

TEST_CASE("Norms change scales and signs of codes only") {
  Net net({layer("linear", {{"out", int64_t{4}}}), layer("batch_norm"), layer("relu"),
           layer("linear", {{"out", int64_t{2}}})},
          {6});
  set_values(net, "gamma", {1.25f, -0.5f, 0.0f, 1e-12f});
  set_values(net, "beta", {0.25f, -0.5f, 0.75f, 0.5f});
  net.calibrate();
  const Tensor trained = net.model->quantizables()[0]->weight().value();
  const Graph graph = net.graph();
  const inference::Product& folded = first_product(graph);
  const std::vector<double> before = trained.elements(), after = folded.weight.elements();
  const std::vector<double> s = trained.quant()->scale->elements(), t = folded.weight.quant()->scale->elements();
  for (size_t k = 0; k < 6; ++k) {
    CHECK(after[k] == before[k]);
    CHECK(after[6 + k] == -before[6 + k]);
    CHECK(after[12 + k] == 0);
    CHECK(after[18 + k] == 0);  // the bias of this channel would pass 2^30: its codes have lost all their bits
  }
  const double s_x = inference::code_scale(graph[1]).scale;
  CHECK(folded.bias.elements()[2] == std::rint(0.75 / (s_x * t[2])));
  CHECK(std::abs(folded.bias.elements()[3]) <= 0x1p30);
  CHECK(std::abs(folded.bias.elements()[3]) > 0x1p28);
  CHECK(t[3] > 1e3 * s[3] * 1e-12);
}

TEST_CASE("A model without an integer form is refused with its layer and the reason") {
  const auto refusal = [](std::vector<LayerSpec> layers, const Shape& sample, bool calibrated = true) {
    return error_of([&] {
      Net net(std::move(layers), sample);
      if (calibrated) net.calibrate();
      net.graph();
    });
  };
  const LayerSpec end = layer("linear", {{"out", int64_t{2}}});
  CHECK(contains(refusal({conv(4), layer("relu"), layer("flatten"), end}, {6, 6, 2}, false), "give it an observer"));
  CHECK(contains(refusal({conv(4), layer("prelu"), layer("flatten"), end}, {6, 6, 2}),
                 "layer layers.1: [compute: integer]"));
  CHECK(contains(refusal({layer("batch_norm"), end}, {6}), "folded into a product alone"));
  CHECK(contains(refusal({layer("linear", {{"out", int64_t{4}}}), layer("relu"), layer("batch_norm"), end}, {6}),
                 "folded into a product alone"));
  CHECK(contains(refusal({layer("linear", {{"out", int64_t{4}}}), layer("layer_norm"), end}, {6}),
                 "has no integer form"));
}

TEST_CASE("Scales that no multiplier connects are refused with their layer") {
  using namespace inference::integer;
  const inference::Node node{.layer = "layers.7"};
  const inference::CodeScale large{1e20f, 0}, small{1e-20f, 0};
  constexpr auto kDouble = OutputRounding::kDouble, kFloat = OutputRounding::kFloat;
  const std::string layer = "layer layers.7: [compute: integer] ";
  const std::string requantized = error_of([&] { requantize_op(node, 1e10f, {1.0f, 1e10f}, 1e-3f, kDouble); });
  CHECK(contains(requantized, layer));
  CHECK(contains(requantized, "become codes of scale 0.001, expected a ratio below 2^30"));
  CHECK(contains(error_of([&] { multiply_op(node, large, large, 1.0f, kDouble); }), layer));
  CHECK(contains(error_of([&] { add_op(node, large, small, 1e-15f, kDouble); }), layer));
  const std::string sum = error_of([&] { add_op(node, large, small, 1.0f, kFloat); });
  CHECK(contains(sum, layer));
  CHECK(contains(sum, "expected ratios of 2^-40 to 2^19"));
  CHECK(requantize_op(node, 1e-30f, {1e-30f}, 1.0f, kDouble).multiplier[0] == FixedPoint{});  // 0 is a multiplier
}

TEST_CASE("compute: integer is of all layers of a model") {
  Net net({layer("linear", {{"out", int64_t{4}}}), layer("relu"), layer("linear", {{"out", int64_t{2}}})}, {6});
  CHECK(inference::integer_rule(*net.model) == OutputRounding::kDouble);
  CHECK(net.model->find("output_codes") != nullptr);
  PrepareSpec one;
  one.rules = {{"layers.2", find_recipe("w8a8_static")}};
  prepare(*net.model, one);
  const std::string mixed = error_of([&] { inference::integer_rule(*net.model); });
  CHECK(contains(
      mixed, "layer layers.2: [compute: integer] a network of integers has no other layers: got recipe w8a8_static"));
  one.rules[0].quant = find_recipe("int8");
  one.rules[0].quant.output_rounding = OutputRounding::kFloat;
  prepare(*net.model, one);
  CHECK(contains(error_of([&] { inference::integer_rule(*net.model); }),
                 "got output_rounding float, while 'layers.0' has double"));
  one = {};
  one.all = find_recipe("int8wo");
  prepare(*net.model, one);
  CHECK(!inference::integer_rule(*net.model));
  CHECK(net.model->find("output_codes") == nullptr);
}

TEST_CASE("What compute: integer needs of a layer is checked when it is chosen") {
  Net net({layer("linear", {{"out", int64_t{4}}})}, {6});
  const auto refusal = [&](auto&& change) {
    PrepareSpec spec;
    spec.all = find_recipe("int8");
    change(*spec.all);
    return error_of([&] { prepare(*net.model, spec); });
  };
  CHECK(contains(refusal([](LayerQuant& q) { q.input.reset(), q.observer.reset(); }),
                 "needs int8 inputs with one scale per tensor: got fp32"));
  CHECK(contains(refusal([](LayerQuant& q) { q.input->dtype = dtypes::uint8; }), "got uint8 tensor"));
  CHECK(contains(refusal([](LayerQuant& q) { q.observer.reset(); }), "without an observer"));
  CHECK(contains(refusal([](LayerQuant& q) { q.weight->granularity = Granularity::groups(2); }),
                 "scales per tensor or channel(0)"));
  CHECK(contains(refusal([](LayerQuant& q) { q.weight.reset(); }), "needs quantized weights: got fp32"));
  LayerSpec own = layer("linear", {{"out", int64_t{4}}});
  own.product.compute = Compute::kInteger;
  CHECK(contains(error_of([&] { make_sequential({own}, 6); }), "compute: integer is of the whole model"));
}

// [cpu]: functions of the host.
TEST_CASE("The sum and the product of every pair of codes are those of the definition", "[cpu]") {
  const inference::CodeScale scales[] = {{0.0234f, -128}, {0.00731f, 17}, {1.5f, 127}, {0.0234f, 3}};
  for (const OutputRounding rule : kRules)
    for (const inference::CodeScale& a : scales)
      for (const inference::CodeScale& b : scales) {
        const float s_y = 1.1f * std::max(a.scale, b.scale), s_z = 100 * a.scale * b.scale;
        inference::IntegerAdd add = inference::integer::add_op({}, a, b, s_y, rule);
        inference::IntegerMultiply times = inference::integer::multiply_op({}, a, b, s_z, rule);
        add.lo = times.lo = -100000;
        add.hi = times.hi = 100000;
        const Codes x{a.scale, a.zero}, y{b.scale, b.zero}, sum{s_y, 0};
        int64_t wrong = 0;
        for (int32_t p = -128; p < 128; ++p)
          for (int32_t q = -128; q < 128; ++q) {
            wrong += inference::code_of(add, p, q) != added(add, x, y, sum, p, q) ? 1 : 0;
            const int64_t product = scaled((p - x.z) * (q - y.z), x.s * y.s, s_z, rule, a.scale * b.scale / s_z);
            wrong += inference::code_of(times, p, q) != product ? 1 : 0;
          }
        CHECK(wrong == 0);
      }
}
