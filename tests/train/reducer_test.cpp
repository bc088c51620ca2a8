// Gradients that leave for other ranks while backward computes the rest, and what may go wrong with them then.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "bitgrad/autograd/op.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "optim/shards.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_learner.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kIn = 64, kWide = 1024, kWindow = 4, kSteps = 4;

// y = x; calls `when` in its forward pass, and in backward once the gradient is there.
struct Passes {
  static constexpr std::string_view kName = "passes";
  using Saved = std::function<void(bool backward)>;
  static Tensor forward(Saved& s, std::span<const Tensor> in, const Saved& when) {
    s = when;
    s(false);
    return in[0].clone(MemoryKind::kActivation);
  }
  static void backward(const Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    s(true);
    g[0].set(gy[0]);
  }
};
class Watch final : public Module {
 public:
  explicit Watch(Passes::Saved when) : when_(std::move(when)) {}
  Var forward(const Var& x) override { return apply<Passes>({x}, when_); }
  Form plan(const Form& in, PlanRequests&) override { return in; }

 private:
  Passes::Saved when_;
};

// Uses its second layer for batches of more than two samples only.
class Sometimes final : public Sequential {
 public:
  using Sequential::Sequential;
  Var forward(const Var& x) override { return x.shape()[0] > 2 ? Sequential::forward(x) : x; }
};

LayerSpec wide(int64_t out) {
  LayerSpec spec = linear_spec(out, dtypes::int4, "symmetric", Granularity::channel(0));
  spec.attributes["bias"] = true;
  return spec;
}

std::unique_ptr<Learner> learner(Passes::Saved when, bool sometimes) {
  std::shared_ptr<Module> middle = make_layer(wide(kWide));
  if (sometimes) middle = std::make_shared<Sometimes>(std::vector{middle});
  const auto model = std::make_shared<Sequential>(
      std::vector<std::shared_ptr<Module>>{make_layer(wide(kWide)), std::make_shared<Watch>(std::move(when)), middle,
                                           make_layer(wide(kWide)), make_layer(wide(8))});
  PlanRequests requests;
  static_cast<Module&>(*model).plan({.samples = 3, .sample = {kIn}}, requests);
  OptimizerSpec adam;
  adam.name = "adam";
  auto l = std::make_unique<Learner>(
      model, find_loss("softmax_cross_entropy"), adam, RequantPolicy{kWindow, kWindow}, [](int64_t) { return 0.01f; },
      7);
  l->plan({.input = {.sample = {kIn}}, .outputs = 8, .train_samples = 3});
  return l;
}

// Microbatches of 2 and 3 samples, in an order that gives each rank of two another use of the second layer, and none
// any in the third window.
void train(Learner& l, int64_t i) {
  const int64_t samples = i / kWindow == 2 || (i / 2 + i / 3) % 2 == 0 ? 2 : 3;
  std::vector<int32_t> labels;
  for (int64_t s = 0; s < samples; ++s) labels.push_back(static_cast<int32_t>((i + s) % 8));
  l.microbatch(random_tensor({samples, kIn}, dtypes::fp32, static_cast<uint64_t>(100 + i)), labels);
}

// Each rank trains its microbatches of every window. What went wrong on each.
struct Ranks {
  std::vector<std::string> errors = {}, states = {};
  std::vector<std::shared_ptr<Communicator>> ranks;
};
Ranks train_on(
    int64_t size, bool sometimes,
    const std::function<Passes::Saved(Communicator&)>& watch = [](Communicator&) { return [](bool) {}; }) {
  Ranks all{.ranks = make_thread_ranks(size)};
  all.errors.resize(all.ranks.size());
  all.states.resize(all.ranks.size());
  std::vector<std::thread> threads;
  threads.reserve(all.ranks.size());
  for (size_t r = 0; r < all.ranks.size(); ++r)
    threads.emplace_back([&, r] {
      all.errors[r] = error_of([&] {
        const auto l = learner(watch(*all.ranks[r]), sometimes);
        l->set_communicator(all.ranks[r]);
        const int64_t own = kWindow / size;
        for (int64_t i = 0; i < kSteps * kWindow; ++i)
          if (std::cmp_equal(i % kWindow / own, r)) train(*l, i);
        l->gather_state();
        all.states[r] = state_hash(*l, RunCounters{});
      });
    });
  for (std::thread& t : threads) t.join();
  return all;
}

}  // namespace

TEST_CASE("gradients of the last layers leave before backward comes to the first, from the second step on") {
  std::vector<std::vector<int64_t>> sent(2);  // by rank, in each microbatch: from its forward pass to its backward pass
  const Ranks all = train_on(2, false, [&](Communicator& ranks) {
    auto& of = sent[static_cast<size_t>(ranks.rank())];
    return [&ranks, &of](bool backward) {
      if (backward)
        of.back() = ranks.bytes_sent() - of.back();
      else
        of.push_back(ranks.bytes_sent());
    };
  });
  CHECK(all.errors == std::vector<std::string>(2));
  // Two layers of 1024 x 1024 are behind the watch; half of each goes to the other rank.
  const int64_t bytes = 2 * kWide * kWide / 2 * 4;
  for (const auto& of : sent) CHECK(of == std::vector<int64_t>{0, 0, 0, bytes, 0, bytes, 0, bytes});
}

TEST_CASE("a layer that some microbatches do not reach has the bits of one rank, on two and four") {
  const auto one = learner([](bool) {}, true);
  one->set_window_sum(WindowSum::kTree);
  for (int64_t i = 0; i < kSteps * kWindow; ++i) train(*one, i);
  const std::string want = state_hash(*one, RunCounters{});
  for (const int64_t size : {2, 4}) {
    const Ranks all = train_on(size, true);
    CHECK(all.errors == std::vector<std::string>(all.ranks.size()));
    CHECK(all.states == std::vector<std::string>(all.ranks.size(), want));
  }
}

TEST_CASE("ranks make the same calls when one is late and little memory is for gradients under way") {
  struct Limits {
    Limits() { detail::gradient_bytes_in_flight = 0, detail::gradient_buckets_in_flight = 1; }
    Limits(const Limits&) = delete;
    Limits& operator=(const Limits&) = delete;
    ~Limits() { detail::gradient_bytes_in_flight = bytes, detail::gradient_buckets_in_flight = buckets; }
    const int64_t bytes = detail::gradient_bytes_in_flight;
    const size_t buckets = detail::gradient_buckets_in_flight;
  } const limits;
  // Rank 1 waits in its backward pass until rank 0 has nothing more to do but wait for it.
  std::atomic<int> waiting = 0;
  const Ranks all = train_on(2, false, [&](Communicator& ranks) {
    return [&ranks, &waiting](bool backward) {
      if (!backward) return;
      if (ranks.rank() == 0) {
        ++waiting;
        return;
      }
      while (waiting == 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      --waiting;
    };
  });
  CHECK(all.errors == std::vector<std::string>(2));
  CHECK(all.states[0] == all.states[1]);
  CHECK(all.states == train_on(2, false).states);
}

TEST_CASE("an Error of one rank inside backward ends the others with its text, while gradients are under way") {
  int calls = 0;  // of backward, on rank 1
  const Ranks all = train_on(2, false, [&](Communicator& ranks) {
    return [&ranks, &calls](bool backward) {
      if (ranks.rank() == 1 && backward && ++calls == 4) throw Error("[test] no more", ErrorCode::kNonFinite);
    };
  });
  CHECK(all.errors == std::vector<std::string>{"[ranks] rank 1 ended: [test] no more", "[test] no more"});
}
