// Networks of integers in a learner: training with fixed ranges and statistics, evaluation and the graph that files
// hold have the same codes.
#include <map>

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/train/learner.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_learner.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;
using inference::Value;

namespace {

constexpr int64_t kSamples = 24;

std::shared_ptr<Sequential> network() {
  const auto linear = [](int64_t out) { return linear_spec(out, dtypes::fp32, ""); };
  LayerSpec block = plain_spec("residual");
  block.lists = {LayerList(
      "body", {linear(12), plain_spec("batch_norm"), plain_spec("relu"), linear(12), plain_spec("batch_norm")})};
  return make_sequential(
      {linear(12), plain_spec("batch_norm"), plain_spec("relu"), block, plain_spec("relu"), linear(3)}, kFeatures);
}

std::unique_ptr<Learner> learner_of(const std::string& recipe) {
  OptimizerSpec adam;
  adam.name = "adam";
  auto learner = std::make_unique<Learner>(
      network(), find_loss("softmax_cross_entropy"), adam, RequantPolicy{1, 1}, [](int64_t) { return 0.02f; }, 5);
  QuantPhase follow, fixed;
  follow.spec.emplace();
  follow.spec->all = find_recipe(recipe);
  fixed.from = 6;
  fixed.mode = {QuantSwitch::kOn, /*observers=*/false, /*norm_statistics=*/false};
  learner->set_phases({follow, fixed});
  PlanSpec plan;
  plan.input.sample = {kFeatures};
  plan.train_samples = plan.eval_samples = kSamples;
  plan.outputs = 3;
  learner->plan(plan);
  return learner;
}

Tensor batch(int64_t i) {
  return random_tensor({kSamples, kFeatures}, dtypes::fp32, static_cast<uint64_t>(200 + i), -1, 2);
}
std::vector<int32_t> labels() {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < kSamples; ++i) out.push_back(i % 3);
  return out;
}

// Codes of every quantizer, by its path: of the graph, and of a microbatch of training.
using CodesOf = std::map<std::string, std::vector<double>>;
CodesOf of_graph(Learner& learner, const Tensor& x) {
  std::map<std::string, Value> quantizers;
  const auto rule = inference::integer_rule(learner.model());
  REQUIRE(rule.has_value());
  const inference::IntegerNetwork network(
      inference::integer_graph(inference::lowered(learner.model(), *learner.input()), *rule, &quantizers));
  std::vector<Tensor> values;
  network.run(x, &values);
  CodesOf codes;
  for (const auto& [path, value] : quantizers)
    codes[path] = values[static_cast<size_t>(value)].without_quant().elements();
  return codes;
}
CodesOf of_training(Learner& learner, const Tensor& x, double* loss) {
  CodesOf codes;
  learner.state().on_forward = [&](const std::string& path, const Tensor&, const Tensor& out) {
    if (out.dtype() == dtypes::int8) codes[path] = out.without_quant().elements();
  };
  *loss = learner.microbatch(x, labels()).loss;
  learner.state().on_forward = {};
  return codes;
}

int64_t different(const CodesOf& a, const CodesOf& b) {
  int64_t count = 0;
  REQUIRE(a.size() == b.size());
  for (const auto& [path, codes] : a)
    for (size_t i = 0; i < codes.size(); ++i) count += codes[i] != b.at(path)[i] ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("training with fixed ranges and statistics has the codes and the loss of evaluation") {
  for (const char* recipe : {"int8", "w4a8_int"}) {
    INFO(recipe);
    const auto learner = learner_of(recipe);
    for (int64_t i = 0; i < 7; ++i) learner->microbatch(batch(i), labels());
    CHECK(learner->phase() == 1);
    for (int64_t i = 7; i < 12; ++i) {
      const Tensor x = batch(i);
      const double evaluated = learner->evaluate(x, labels()).loss;
      const CodesOf graph = of_graph(*learner, x);
      CHECK(graph.size() == 7);  // four inputs of products, two of the sum, the output
      double trained = 0;
      CHECK(different(graph, of_training(*learner, x, &trained)) == 0);
      CHECK(trained == evaluated);
    }
    CHECK(learner->state().step == 12);
  }
}

TEST_CASE("training that follows the batch has codes of its own") {
  const auto learner = learner_of("int8");
  for (int64_t i = 0; i < 5; ++i) learner->microbatch(batch(i), labels());
  const Tensor x = batch(5);
  const CodesOf graph = of_graph(*learner, x);
  double loss = 0;
  CHECK(different(graph, of_training(*learner, x, &loss)) > 0);
}

TEST_CASE("evaluation keeps its network of integers until something that it is made from changes") {
  const auto learner = learner_of("int8");
  double loss = 0;
  for (int64_t i = 0; i < 3; ++i) of_training(*learner, batch(i), &loss);
  const Tensor x = batch(9);
  const auto now = [&] {
    learner->predict(x);
    return learner->train_state().integer;
  };
  auto kept = now();
  REQUIRE(kept != nullptr);
  CHECK(now() == kept);
  const auto changes = [&](const std::string& what, auto&& change) {
    INFO(what);
    change();
    const auto made = now();
    CHECK(made != kept);
    CHECK(now() == made);
    kept = made;
  };
  for (Parameter* p : learner->model().parameters())
    changes(p->path(), [&] { p->assign(random_tensor(p->shape(), dtypes::fp32, 5, 0.1, 0.7), 0); });
  for (const Module::Buffer& b : learner->model().buffers()) {
    if (b.tensor.dtype() != dtypes::fp32 || b.path.ends_with(".updates")) continue;
    changes(b.path, [&] { b.tensor.copy_from(random_tensor(b.tensor.shape(), dtypes::fp32, 6, 0.3, 0.9)); });
  }
  changes("a step", [&] { of_training(*learner, batch(3), &loss); });
}

TEST_CASE("a converted network of integers predicts what it predicted before") {
  const auto learner = learner_of("int8");
  for (int64_t i = 0; i < 8; ++i) learner->microbatch(batch(i), labels());
  const Tensor x = batch(20);
  const std::vector<double> before = learner->predict(x).elements();
  const Tensor by_graph = inference::IntegerNetwork(inference::deployed(learner->model(), *learner->input())).run(x);
  CHECK(before == by_graph.elements());
  learner->convert();
  CHECK(learner->predict(x).elements() == before);
  CHECK(learner->predict(batch(21)).elements() != before);
}

TEST_CASE("a network of integers with another layer is refused when it is planned") {
  const auto learner = learner_of("int8");
  PrepareSpec spec;
  spec.rules = {{"layers.0", find_recipe("int8wo")}};
  prepare(learner->model(), spec);
  CHECK(contains(error_of([&] { learner->plan_again(); }),
                 "layer layers.0: [compute: integer] a network of integers has no other layers"));
}

TEST_CASE("the record of a network of integers has its rounding and the quantizers of its operands") {
  const auto learner = learner_of("int8");
  PrepareSpec spec;
  spec.all = find_recipe("int8");
  spec.all->output_rounding = OutputRounding::kFloat;
  prepare(learner->model(), spec);
  const auto record = model_record(*learner);
  REQUIRE(record.has_value());
  const auto again = recorded_model(parse_model_record(to_text(*record)));
  CHECK(inference::integer_rule(*again) == OutputRounding::kFloat);
  for (const char* operand : {"output_codes", "3.body_codes", "3.shortcut_codes"})
    CHECK(again->find(operand) != nullptr);
}
