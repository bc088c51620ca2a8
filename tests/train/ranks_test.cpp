// Trees of sums in a learner, and ranks that share the microbatches of a window.
#include <thread>

#include "bitgrad/base/memory.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_learner.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kWindow = 8;

// int4 -> tanh -> ternary: every sum over microbatches is a gradient.
std::unique_ptr<Learner> learner(DType grad = dtypes::fp32, int64_t window = kWindow) {
  OptimizerSpec adam;
  adam.name = "adam";
  adam.clip_norm = 1;
  std::vector<LayerSpec> layers{linear_spec(6, dtypes::int4, "affine", Granularity::channel(0)), plain_spec("tanh"),
                                linear_spec(4, dtypes::int2, "lsq"), plain_spec("dropout"),
                                linear_spec(3, dtypes::bint1, "binary")};
  layers[3].attributes["p"] = 0.25;
  for (const int at : {0, 2, 4}) layers[static_cast<size_t>(at)].weight.grad = grad;
  const auto model = make_sequential(layers, kFeatures);
  return std::make_unique<Learner>(
      model, find_loss("softmax_cross_entropy"), adam, RequantPolicy{window, 2 * window}, [](int64_t) { return 0.05f; },
      3);
}

// Microbatch `i` of the run.
void train(Learner& learner, int64_t i) {
  const int64_t samples = 3 + i % 4;
  std::vector<int32_t> labels;
  for (int64_t s = 0; s < samples; ++s) labels.push_back(static_cast<int32_t>((i + s) % 3));
  learner.microbatch(random_tensor({samples, kFeatures}, dtypes::fp32, static_cast<uint64_t>(100 + i)), labels);
}

std::string state_of(Learner& learner) { return state_hash(learner, RunCounters{}); }

std::string alone(WindowSum sum, int64_t windows, DType grad = dtypes::fp32) {
  const auto l = learner(grad);
  l->set_window_sum(sum);
  for (int64_t i = 0; i < windows * kWindow; ++i) train(*l, i);
  return state_of(*l);
}

std::vector<std::string> together(int64_t size, int64_t windows, DType grad = dtypes::fp32) {
  const auto ranks = make_thread_ranks(size);
  std::vector<std::string> states(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (const auto& rank : ranks)
    threads.emplace_back([&, rank] {
      const auto l = learner(grad);
      l->set_communicator(rank);
      const int64_t own = kWindow / size;
      for (int64_t w = 0; w < windows; ++w)
        for (int64_t i = 0; i < own; ++i) train(*l, w * kWindow + rank->rank() * own + i);
      states[static_cast<size_t>(rank->rank())] = state_of(*l);
    });
  for (std::thread& t : threads) t.join();
  return states;
}

}  // namespace

TEST_CASE("one, two, four and eight ranks come to the same bits by a tree of sums") {
  for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
    const std::string one = alone(WindowSum::kTree, 3, grad);
    CHECK(one != alone(WindowSum::kRunning, 3, grad));
    for (const int64_t size : {1, 2, 4, 8})
      if (size == 1) {
        const auto l = learner(grad);
        l->set_window_sum(WindowSum::kTree);
        l->set_communicator(make_thread_ranks(1)[0]);
        for (int64_t i = 0; i < 3 * kWindow; ++i) train(*l, i);
        CHECK(state_of(*l) == one);
      } else {
        for (const std::string& state : together(size, 3, grad)) CHECK(state == one);
      }
  }
}

TEST_CASE("a tree of two microbatches has the bits of the running sum, one of eight keeps four gradients") {
  std::vector<std::string> states;
  for (const WindowSum sum : {WindowSum::kRunning, WindowSum::kTree}) {
    const auto l = learner(dtypes::fp32, 2);
    l->set_window_sum(sum);
    for (int64_t i = 0; i < 6; ++i) train(*l, i);
    states.push_back(state_of(*l));
  }
  CHECK(states[0] == states[1]);
  const auto grown = [](WindowSum sum) {
    const auto l = learner();
    l->set_window_sum(sum);
    const int64_t before = memory_now().bytes[static_cast<size_t>(MemoryKind::kGrad)];
    for (int64_t i = 0; i + 1 < kWindow; ++i) train(*l, i);
    return memory_now().bytes[static_cast<size_t>(MemoryKind::kGrad)] - before;
  };
  CHECK(grown(WindowSum::kTree) == 4 * grown(WindowSum::kRunning));  // 4 + 2 + 1 microbatches, and that of backward
}

TEST_CASE("a window of a tree that fails is forgotten, and a partial one is flushed") {
  const auto broken = learner(), uninterrupted = learner();
  for (Learner* l : {broken.get(), uninterrupted.get()}) l->set_window_sum(WindowSum::kTree);
  for (int64_t i = 0; i < 5; ++i) train(*broken, i + 70);
  const std::vector<int32_t> labels{0};
  Tensor bad = random_tensor({1, kFeatures}, dtypes::fp32, 1);
  bad.as<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 5; i < kWindow - 1; ++i) broken->microbatch(bad, labels);
  CHECK(contains(error_of([&] { broken->microbatch(bad, labels); }), "NaN"));
  detail::set_counters(broken->train_state(), 0, 0, 0);
  for (Learner* l : {broken.get(), uninterrupted.get()}) {
    for (int64_t i = 0; i < kWindow + 5; ++i) train(*l, i);
    l->flush();
  }
  CHECK(state_of(*broken) == state_of(*uninterrupted));
}

TEST_CASE("an Error of one rank ends the others, and ranks that do not fit are refused") {
  const auto ranks = make_thread_ranks(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (const auto& rank : ranks)
    threads.emplace_back([&, rank] {
      const auto l = learner();
      l->set_communicator(rank);
      errors[static_cast<size_t>(rank->rank())] = error_of([&] {
        for (int64_t i = 0; i < 2 * kWindow; ++i) {
          if (rank->rank() == 1 && i == 6)
            l->microbatch(Tensor::zeros({2, kFeatures}, dtypes::fp32), std::vector<int32_t>{1});
          train(*l, i);
        }
      });
    });
  for (std::thread& t : threads) t.join();
  CHECK(contains(errors[1], "labels: got 1, expected one for each of 2 samples"));
  CHECK(contains(errors[0], "[ranks] rank 1 ended: [microbatch] labels: got 1"));
  const auto one_of_two = learner();
  one_of_two->set_communicator(make_thread_ranks(2)[0]);
  CHECK(contains(error_of([&] { one_of_two->set_window_sum(WindowSum::kRunning); }),
                 "ranks add their gradients in a tree: got sums running"));
  const auto l = learner();
  CHECK(contains(error_of([&] { l->set_communicator(make_thread_ranks(3)[1]); }),
                 "a window of 8 microbatches cannot be shared by 3 ranks. Expected a multiple"));
  train(*l, 0);
  CHECK(
      contains(error_of([&] { l->set_communicator(make_thread_ranks(2)[1]); }), "before the first microbatch: got 1"));
  CHECK(contains(error_of([&] { l->set_window_sum(WindowSum::kTree); }), "inside a window"));
}
