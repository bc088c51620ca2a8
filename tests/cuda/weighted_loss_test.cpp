// Weighted losses and windows without targets on the (emulated) device: the bits of the CPU.
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/train/learner.h"
#include "cuda/counted.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("weighted losses and their gradients are those of the CPU, on the device") {
  const Tensor y = host_numbers({70, 5}, 1), weights = host_numbers({5}, 2);
  std::vector<double> positive = weights.elements(), labels, soft, binary;
  for (double& w : positive) w = w * w + 0.5;
  for (int64_t i = 0; i < 70; ++i) {
    labels.push_back(i % 7 == 3 ? kIgnoreIndex : static_cast<double>(i % 5));
    for (int64_t c = 0; c < 5; ++c) {
      soft.push_back(c == i % 5 ? 0.5 : 0.125);
      binary.push_back(static_cast<double>((i + c) % 3 == 0));
    }
  }
  const Tensor factors = Tensor::from_elements({5}, dtypes::fp32, positive);
  const Tensor classes = Tensor::from_elements({70}, dtypes::int32, labels);
  const Tensor probabilities = Tensor::from_elements({70, 5}, dtypes::fp32, soft);
  const Tensor ones = Tensor::from_elements({70, 5}, dtypes::fp32, binary);
  const auto same = [&](auto loss) {
    CHECK(device_difference([&] {
            AccumulateSink sink;
            Tape tape;
            const Var l = loss(tape.leaf(here(y), &sink, dtypes::fp32));
            tape.backward(l);
            return Results{l.value(), sink.grad()};
          }) == "");
  };
  for (const double smoothing : {0.0, 0.1})
    for (const Tensor& target : {classes, probabilities})
      same([&](const Var& x) {
        return weighted_cross_entropy_sum(x, here(target), {.weights = here(factors), .smoothing = smoothing});
      });
  same([&](const Var& x) { return weighted_sigmoid_cross_entropy(x, here(ones), here(factors)); });
}

namespace {

// Windows of two microbatches, one of them empty in part, one in whole; class weights.
std::string trained(bool recorded) {
  ModelSpec spec;
  spec.input.sample = {2, 3};
  spec.layers = {{.kind = "linear", .attributes = {{"out", 6}}},
                 {.kind = "dropout", .attributes = {{"p", 0.3}}},
                 {.kind = "linear", .attributes = {{"out", 4}}}};
  Learner learner(
      make_model(spec),
      find_loss("softmax_cross_entropy",
                recorded ? Attributes{} : Attributes{{"weights", std::vector<double>{1, 2, 0.5, 3}}}),
      OptimizerSpec{.name = "adamw", .weight_decay = 0.1f}, RequantPolicy{2, 2}, [](int64_t) { return 0.1f; }, 3);
  learner.plan({.input = spec.input, .outputs = 4, .train_samples = 2, .eval_samples = 2});
  learner.set_recorded(recorded);
  for (int64_t m = 0; m < 14; ++m) {
    const bool counts = m != 3 && m != 6 && m != 7 && m != 8;
    std::vector<double> y(4, kIgnoreIndex);
    for (size_t p = 0; counts && p < 3; ++p) y[p] = static_cast<double>((static_cast<size_t>(m) + p) % 4);
    const StepResult r = learner.microbatch(here(host_numbers({2, 2, 3}, static_cast<uint64_t>(10 + m))),
                                            here(Tensor::from_elements({2, 2}, dtypes::int32, y)));
    CHECK(r.skipped == (m == 7));
  }
  return state_hash(learner, RunCounters{});
}

}  // namespace

TEST_CASE("windows without targets are skipped on the device, recorded or not, with the state of the CPU") {
  const StrictBits strict;
  for (const bool recorded : {false, true}) {
    const std::string cpu = trained(recorded);
    const DeviceGuard guard(gpu());
    CHECK(trained(recorded) == cpu);
  }
}
