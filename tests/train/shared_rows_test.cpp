// Learners on several ranks whose large weights are updated by rows: the bits of one rank, and the bytes that travel.
#include <thread>

#include "bitgrad/base/memory.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "optim/shards.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "train/small_learner.h"
#include "train/train_state.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kIn = 129, kHidden = 300, kWindow = 4;

struct Case {
  std::string name;
  OptimizerSpec optim;
  LayerSpec first, second;
  int64_t every = kWindow;
  int64_t in = kIn;
};

LayerSpec layer(int64_t out, DType dtype, const std::string& scheme, const Granularity& granularity,
                DType grad = dtypes::fp32, MasterKind master = MasterKind::kFp32) {
  LayerSpec spec = linear_spec(out, dtype, scheme, granularity);
  spec.weight.grad = grad;
  if (!dtype.is_float()) spec.weight.master = master;
  return spec;
}

// Rules, moments, masters, gradients, schemes and clips, each with rows that do not divide evenly.
std::vector<Case> cases() {
  const Granularity rows = Granularity::channel(0);
  std::vector<Case> all;
  for (const char* name : {"sgd", "adam", "adamw", "lion", "adafactor", "muon", "normuon"})
    for (const MomentKind moments : {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4}) {
      OptimizerSpec spec;
      spec.name = name;
      spec.moments = moments;
      if (spec.name == "sgd") spec.momentum = 0.9f;
      all.push_back({concat(name, ", moments ", enum_name(moments)), spec, layer(kHidden, dtypes::int4, "affine", rows),
                     layer(70, dtypes::fp32, "", {}), moments == MomentKind::kBf16 ? 2 * kWindow : kWindow});
    }
  OptimizerSpec adam;
  adam.name = "adam";
  const auto add = [&](const std::string& what, const LayerSpec& first, float clip = 0, int64_t in = kIn) {
    adam.clip_norm = clip;
    all.push_back({what, adam, first, layer(70, dtypes::bint1, "binary", rows, dtypes::bf16), kWindow, in});
  };
  add("groups along rows", layer(kHidden, dtypes::int4, "symmetric", Granularity::groups(32)));
  add("groups of rows", layer(kHidden, dtypes::int8, "absmax", Granularity::groups(30, 0)));
  for (const auto& [scheme, dtype] : {std::pair<std::string, DType>{"absmax", dtypes::int4},
                                      {"symmetric", dtypes::int8},
                                      {"affine", dtypes::int3},
                                      {"minmax_offset", dtypes::int4},
                                      {"ternary", dtypes::ternary},
                                      {"binary", dtypes::bint1},
                                      {"ternary_threshold", dtypes::ternary},
                                      {"dorefa_weight", dtypes::uint4}})
    for (const float clip : {0.0f, 1.0f}) {
      LayerSpec first = layer(kHidden, dtype, scheme, {});
      first.weight.quant->alpha = scheme == "binary";
      add(concat("a scale of all rows, ", scheme), first, clip, 128);
    }
  add("a scale of all rows, bf16 master",
      layer(kHidden, dtypes::ternary, "ternary", {}, dtypes::bf16, MasterKind::kBf16), 0, 128);
  add("a scale of all rows, one chunk of sums", layer(kHidden, dtypes::ternary, "ternary", {}));
  add("a scale of each column", layer(kHidden, dtypes::int8, "absmax", Granularity::channel(1)), 1);
  for (const float clip : {0.0f, 1.0f}) {
    add("learned steps", layer(kHidden, dtypes::int4, "lsq", rows), clip);
    add("a learned step and offset", layer(kHidden, dtypes::uint4, "lsq_plus", {}, dtypes::bf16), clip);
  }
  add("bf16 gradients, norm", layer(kHidden, dtypes::int3, "symmetric", rows, dtypes::bf16), 0.01f);
  add("fp32 gradients, norm", layer(kHidden, dtypes::int8, "symmetric", rows), 0.01f);
  add("bf16 masters", layer(kHidden, dtypes::int4, "affine", rows, dtypes::bf16, MasterKind::kBf16), 1);
  add("no masters", layer(kHidden, dtypes::int8, "absmax", rows, dtypes::fp32, MasterKind::kNone));
  add("constant scales", layer(kHidden, dtypes::bint1, "binary", {}), 1);
  add("a statistic of each row", layer(kHidden, dtypes::ternary, "ternary_threshold", rows));
  return all;
}

std::unique_ptr<Learner> learner(const Case& c) {
  const auto model = make_sequential({c.first, plain_spec("tanh"), c.second}, c.in);
  return std::make_unique<Learner>(
      model, find_loss("softmax_cross_entropy"), c.optim, RequantPolicy{kWindow, c.every},
      [](int64_t) { return 0.02f; }, 3);
}

void train(Learner& learner, int64_t i, int64_t in = kIn) {
  const int64_t samples = 2 + i % 3;
  std::vector<int32_t> labels;
  for (int64_t s = 0; s < samples; ++s) labels.push_back(static_cast<int32_t>((i + s) % 3));
  learner.microbatch(random_tensor({samples, in}, dtypes::fp32, static_cast<uint64_t>(100 + i)), labels);
}

constexpr int64_t kSteps = 3;

std::string alone(const Case& c) {
  const auto l = learner(c);
  l->set_window_sum(WindowSum::kTree);
  for (int64_t i = 0; i < kSteps * kWindow; ++i) train(*l, i, c.in);
  return state_hash(*l, RunCounters{});
}

struct Together {
  std::vector<std::string> states = {};
  int64_t shared = 0;  // weights
  int64_t bytes = 0;   // that rank 0 sent
  RankTraffic predicted = {};
};
Together together(const Case& c, int64_t size, WireFormat wire = WireFormat::kExact) {
  const auto ranks = make_thread_ranks(size);
  Together out;
  out.states.resize(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (const auto& rank : ranks)
    threads.emplace_back([&, rank] {
      std::string& state = out.states[static_cast<size_t>(rank->rank())];
      const std::string error = error_of([&] {
        const auto l = learner(c);
        l->set_communicator(rank, wire);
        const int64_t own = kWindow / size;
        for (int64_t i = 0; i < kSteps * kWindow; ++i)
          if (i % kWindow / own == rank->rank()) train(*l, i, c.in);
        if (rank->rank() == 0) {
          out.bytes = rank->bytes_sent();
          out.predicted = l->optimizer().traffic(size, wire);
          for (const Parameter* p : l->model().parameters())
            out.shared += p->shape().rank() > 1 && l->optimizer().shares(*p) != nullptr ? 1 : 0;
        }
        l->gather_state();
        state = state_hash(*l, RunCounters{});
      });
      if (!error.empty()) state = error;
    });
  for (std::thread& t : threads) t.join();
  return out;
}

struct PoisonOthers {
  PoisonOthers() {
    detail::poison_foreign_rows = true;
    detail::most_of_one_owner = 1000;
  }
  PoisonOthers(const PoisonOthers&) = delete;
  PoisonOthers& operator=(const PoisonOthers&) = delete;
  ~PoisonOthers() {
    detail::poison_foreign_rows = false;
    detail::most_of_one_owner = 2;
  }
};

}  // namespace

TEST_CASE("ranks that update rows of a weight give the bits of one rank, for all rules, moments, masters and schemes") {
  const PoisonOthers poison;
  for (const Case& c : cases()) {
    const std::string one = alone(c);
    for (const int64_t size : {2, 4}) {
      const Together all = together(c, size);
      INFO(c.name << ", " << size << " ranks");
      for (const std::string& state : all.states) CHECK(state == one);
      CHECK(all.shared == 2);
    }
  }
}

TEST_CASE("a weight that needs one owner has none where it would load that rank more than a sum loads all") {
  OptimizerSpec adam;
  adam.name = "adam";
  const LayerSpec learned = layer(kHidden, dtypes::int4, "lsq", Granularity::channel(0));
  for (const auto& [second, size, shared] :
       {std::tuple<int64_t, int64_t, int64_t>{300, 2, 2}, {300, 4, 1}, {129, 4, 2}}) {
    const Case c{"", adam, learned, layer(second, dtypes::int4, "lsq", Granularity::channel(0))};
    const Together all = together(c, size);
    INFO(second << " outputs, " << size << " ranks");
    CHECK(all.shared == shared);
    for (const std::string& state : all.states) CHECK(state == alone(c));
  }
}

TEST_CASE("learned steps at their floor are fitted again by the owner of the weight, and every rank says so") {
  const PoisonOthers poison;
  OptimizerSpec adam;
  adam.name = "adam";
  Case c{"", adam, layer(kHidden, dtypes::int4, "lsq", Granularity::channel(0)), layer(70, dtypes::fp32, "", {})};
  c.first.weight.learned.lr_factor = 30;  // steps fall to the floor at once
  const auto warnings = [&](const std::function<void()>& run) {
    const LogLines log;
    run();
    return std::count_if(log.warnings.begin(), log.warnings.end(),
                         [](const std::string& line) { return contains(line, "carried no signal"); });
  };
  std::string one;
  CHECK(warnings([&] { one = alone(c); }) == 1);
  for (const int64_t size : {2, 4}) {
    Together all;
    CHECK(warnings([&] { all = together(c, size); }) == size);
    for (const std::string& state : all.states) CHECK(state == one);
  }
}

TEST_CASE("the packed codes travel: bytes a weight and step") {
  const auto bytes = [](DType dtype, const std::string& scheme, WireFormat wire, DType grad = dtypes::fp32) {
    OptimizerSpec adam;
    adam.name = "adam";
    const Case c{"", adam, layer(2048, dtype, scheme, Granularity::channel(0), grad), layer(3, dtypes::fp32, "", {})};
    // 2048 x 129: a row of bint1 is 17 bytes, and 4 of its scale
    const Together all = together(c, 2, wire);
    CHECK(all.states[0].size() == 64);
    CHECK(all.states[0] == all.states[1]);
    const double sent = static_cast<double>(all.bytes) / kSteps;
    // Results of microbatches, and which gradients there are, are not predicted.
    const auto predicted = static_cast<double>(all.predicted.gradients + all.predicted.values);
    CHECK(sent > 0.999 * predicted);
    CHECK(sent < 1.01 * predicted + 2000);
    return sent / (2048 * 129);
  };
  // (W - 1) / W of gradients and codes, and what small parameters and results of microbatches need.
  CHECK(bytes(dtypes::fp32, "", WireFormat::kExact) < 4.15);
  CHECK(bytes(dtypes::int4, "symmetric", WireFormat::kExact) < 2.40);
  CHECK(bytes(dtypes::bint1, "binary", WireFormat::kExact) < 2.20);
  CHECK(bytes(dtypes::bint1, "binary", WireFormat::kBf16) < 1.20);
  CHECK(bytes(dtypes::bint1, "binary", WireFormat::kExact, dtypes::bf16) < 1.20);
  CHECK(bytes(dtypes::bint1, "binary", WireFormat::kInt8) < 0.70);
}

TEST_CASE("a rank holds masters and moments of its own rows, until they are brought together") {
  OptimizerSpec adam;
  adam.name = "adam";
  const Case c{"", adam, layer(4096, dtypes::int4, "symmetric", Granularity::channel(0)),
               layer(70, dtypes::int8, "symmetric", Granularity::channel(0))};
  const auto held = [] {
    const MemoryAccount now = memory_now();
    return now[MemoryKind::kMaster] + now[MemoryKind::kOptimizer];
  };
  const int64_t before = held();
  int64_t one = 0;
  {
    const auto l = learner(c);
    one = held() - before;
  }
  CHECK(held() == before);
  for (const int64_t size : {2, 4}) {
    const auto ranks = make_thread_ranks(size);
    int64_t apart = 0, first = 0, all = 0;
    std::vector<char> whole(ranks.size());  // whether a rank has the state of all rows
    std::vector<std::thread> threads;
    threads.reserve(ranks.size());
    for (const auto& rank : ranks)
      threads.emplace_back([&, rank] {
        const auto meet = [&] { gather_values(*rank, std::span<const int64_t>(&size, 1)); };
        const auto measure = [&](int64_t& to) {
          meet();
          if (rank->rank() == 0) to = held() - before;
          meet();
        };
        const auto l = learner(c);
        l->set_communicator(rank);
        const int64_t own = kWindow / size;
        for (int64_t i = 0; i < own; ++i) train(*l, rank->rank() * own + i);
        for (int64_t step = 1; step < 3; ++step) {  // an account that drifts shows
          l->gather_state(Optimizer::Place::kFirstRank);
          for (int64_t i = 0; i < own; ++i) train(*l, step * kWindow + rank->rank() * own + i);
        }
        measure(apart);
        l->gather_state(Optimizer::Place::kFirstRank);
        whole[static_cast<size_t>(rank->rank())] = l->optimizer().whole() ? 1 : 0;
        measure(first);
        l->gather_state();
        measure(all);
      });
    for (std::thread& t : threads) t.join();
    for (size_t r = 0; r < whole.size(); ++r) CHECK(whole[r] == (r == 0 ? 1 : 0));
    CHECK(static_cast<double>(apart) < 1.04 * static_cast<double>(one));  // of all ranks together
    CHECK(apart > one - one / 50);
    CHECK(first > apart + one / 4);
    CHECK(first < apart + one);
    CHECK(all == size * one);
    CHECK(held() == before);
  }
}

TEST_CASE("a wire that rounds gives other bits, the same on every rank and in every run") {
  OptimizerSpec adam;
  adam.name = "adam";
  const Case c{"", adam, layer(kHidden, dtypes::int4, "symmetric", Granularity::channel(0)),
               layer(70, dtypes::fp32, "", {})};
  const std::string exact = together(c, 2).states[0];
  for (const WireFormat wire : {WireFormat::kBf16, WireFormat::kInt8}) {
    const Together first = together(c, 2, wire), second = together(c, 2, wire);
    CHECK(first.states[0] == first.states[1]);
    CHECK(first.states == second.states);
    CHECK(first.states[0].size() == exact.size());
    CHECK(first.states[0] != exact);
  }
}

TEST_CASE("a state is hashed or saved only when the rows of all ranks are here") {
  OptimizerSpec adam;
  adam.name = "adam";
  const Case c{"", adam, layer(kHidden, dtypes::int4, "symmetric", Granularity::channel(0)),
               layer(70, dtypes::fp32, "", {})};
  const auto ranks = make_thread_ranks(2);
  std::vector<std::string> errors(2), of_save(2), hashes(2);
  std::vector<char> before(2), after(2);  // whether the state is whole
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      const auto l = learner(c);
      l->set_communicator(ranks[r]);
      for (int64_t i = 0; i < kWindow / 2; ++i) train(*l, static_cast<int64_t>(r) * kWindow / 2 + i);
      before[r] = l->optimizer().whole() ? 1 : 0;
      errors[r] = error_of([&] { state_hash(*l, RunCounters{}); });
      of_save[r] = error_of([&] { save_checkpoint("/nowhere/x", *l, {}, "", "", ""); });
      l->gather_state();
      after[r] = l->optimizer().whole() ? 1 : 0;
      hashes[r] = state_hash(*l, RunCounters{});
    });
  for (std::thread& t : threads) t.join();
  CHECK(before == std::vector<char>{0, 0});
  CHECK(after == std::vector<char>{1, 1});
  for (const std::string& hash : hashes) CHECK(hash.size() == 64);
  for (const std::string& error : of_save) CHECK(contains(error, "call Learner::gather_state"));
  for (const std::string& error : errors)
    CHECK(error ==
          "[state_hash] rows of masters and moments are on other ranks: call Learner::gather_state on all ranks "
          "first");
}
