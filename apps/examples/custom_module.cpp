// A custom module that trains in low bits: a gated block with a forward pass that the library does not have. Its
// products go through slots (Quantizable), so prepare and convert quantize its weights and inputs as a recipe or rule
// says, without any code for it in the module.
//
//   build/release/bin/custom_module
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/unary.h"
#include "bitgrad/train/learner.h"

using namespace bitgrad;

namespace {

// y = down(relu(up(x)) * sigmoid(gate(x)))
class Gated final : public Module {
 public:
  Gated(int64_t in, int64_t hidden, int64_t out)
      : up_(add_quantizable("up", {hidden, in}, {})),
        gate_(add_quantizable("gate", {hidden, in}, {})),
        down_(add_quantizable("down", {out, hidden}, {})) {}

  Var forward(const Var& x) override { return down_.linear(mul(relu(up_.linear(x)), sigmoid(gate_.linear(x)))); }

  Form plan(const Form& in, PlanRequests& requests) override {
    const Form up = up_.plan_linear(in, requests), gate = gate_.plan_linear(in, requests);
    require(up.dtype == dtypes::fp32 && gate.dtype == dtypes::fp32, "gated", "up and gate are multiplied in fp32: got ",
            up.dtype, " and ", gate.dtype, ". Leave compute: integer_out away");
    PlanRequests unserved;  // for a value computed here: no preceding layer serves it
    return down_.plan_linear(up, unserved);
  }
  std::string_view kind() const override { return "gated"; }

 private:
  Quantizable &up_, &gate_, &down_;
};

// The logits of the whole test set.
std::vector<double> logits_of(Learner& learner, const Dataset& test) {
  Loader loader(test, {.micro = 250, .shuffle = false, .end_epoch = 1});
  std::vector<double> logits;
  Tensor x;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);
    const std::vector<double> numbers = learner.predict(x).elements();
    logits.insert(logits.end(), numbers.begin(), numbers.end());
  }
  return logits;
}

}  // namespace

int main() {
  const auto data = make_dataset({.format = "digits", .size = 2000, .affine = {2, -1}});
  const auto test = make_dataset({.format = "digits", .split = "test", .size = 500, .affine = {2, -1}});

  const auto model = std::make_shared<Gated>(data->features(), 64, data->classes());
  PrepareSpec spec;
  spec.all = find_recipe("8da4w");                 // int4 weights in groups of 32, int8 inputs
  spec.rules = {{"*.gate", find_recipe("w8a8")}};  // by name; the last rule that matches wins
  prepare(*model, spec);

  Learner learner(
      model, find_loss("softmax_cross_entropy"), {.name = "adam"}, {.accumulate = 1, .every = 1},
      [](int64_t) { return 3e-3f; }, /*seed=*/1);
  learner.plan(
      {.input = {.sample = {data->features()}}, .outputs = data->classes(), .train_samples = 50, .eval_samples = 250});
  Loader loader(*data, {.micro = 50, .seed = 1, .end_epoch = 6});
  Tensor x;
  for (Batch batch; loader.next(batch);) {
    copy_batch(batch, x);
    learner.microbatch(x, {batch.labels, static_cast<size_t>(batch.size)});
  }

  const std::vector<double> prepared = logits_of(learner, *test);
  const double before = evaluate(learner, *test, /*batch=*/250).accuracy;
  print_quantization(std::cout, *model);
  learner.convert();  // drops masters and gradients, keeps the codes
  const bool equal = logits_of(learner, *test) == prepared;
  std::printf("accuracy %.1f %% prepared, %.1f %% converted, logits %s\n", before,
              evaluate(learner, *test, /*batch=*/250).accuracy, equal ? "equal bit for bit" : "differ");
  return equal && before > 60 ? 0 : 1;
}
