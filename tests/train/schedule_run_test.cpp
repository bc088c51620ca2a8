// Rates of whole runs by their schedules, weight decay over time, and the norm of gradients, as metrics.jsonl has them.
#include <cmath>
#include <sstream>

#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Keys = std::vector<std::string>;

Keys with(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

const Keys kEachStep{"log.every=1 steps", "optim={name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 1e-4}"};

// `key` of each train line: 5 steps an epoch.
std::vector<double> logged(const RunConfig& config, const std::string& folder, const char* key) {
  run_all(config, create_run_folder(config, folder));
  std::vector<double> all;
  std::istringstream lines(text_of(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json j = Json::parse(line);
    if (j.at("event") == "train") all.push_back(j.at(key).get<double>());
  }
  return all;
}

}  // namespace

TEST_CASE("a run follows multistep, linear, wsd and one_cycle in epochs and in steps") {
  const KeepModes keep;
  const TempDir temp;
  const auto rates = [&](const char* schedule, const char* folder) {
    const RunConfig config =
        small_config(with(kEachStep, {"train.stop=3 epochs", std::string("schedule=") + schedule}), kSmallInt4);
    CHECK(parse_config(to_yaml(config), "again.yaml") == config);
    return logged(config, temp.file(folder), "lr");
  };
  const auto near = [](double a, double b) { return std::fabs(a - b) <= 1e-6 * b; };
  const std::vector<double> cut = rates("{name: multistep, at: [1 epochs, 12 steps], factor: 0.1}", "multistep");
  REQUIRE(cut.size() == 15);
  for (size_t i = 0; i < 15; ++i) CHECK(near(cut[i], i < 5 ? 0.1 : i < 12 ? 0.01 : 0.001));
  const std::vector<double> line = rates("{name: linear, warmup: 1 epochs}", "linear");
  for (size_t i = 0; i < 15; ++i) {
    const double t = static_cast<double>(i);
    CHECK(near(line[i], i < 5 ? 0.1 * (t + 1) / 5 : 0.1 * (1 - (t - 5) / 10)));
  }
  const std::vector<double> late = rates("{name: wsd, cooldown: 1 epochs, final: 0.5}", "wsd");
  for (size_t i = 0; i < 15; ++i) CHECK(near(late[i], i < 10 ? 0.1 : 0.1 * (1 - 0.1 * static_cast<double>(i - 10))));
  const std::vector<double> cycle = rates("{name: one_cycle, rise: 0.5, final_div: 100}", "one_cycle");
  CHECK(near(cycle[0], 0.004));
  CHECK(near(cycle[7], 0.1));
  CHECK(near(cycle[14], 0.1 * (1 - (1 - 1.0 / 2500) * (1 - std::cos(M_PI * 7 / 8)) / 2)));
}

TEST_CASE("schedule plateau cuts the rate after evaluations without improvement, and resumed it goes on as before") {
  const KeepModes keep;
  const TempDir temp;
  const Keys keys =
      with(kEachStep, {"train.stop=5 epochs", "checkpoint.every=3 steps", "train.eval.every=2 steps",
                       "schedule={name: plateau, factor: 0.5, patience: 2, min_delta: 1000, metric: loss}"});
  const RunConfig config = small_config(keys, kSmallInt4);
  CHECK(parse_config(to_yaml(config), "again.yaml") == config);
  // The first evaluation, after step 2, stays the best: cuts come after steps 6, 10, 14 ..
  const std::vector<double> rates = logged(config, temp.file("uninterrupted"), "lr");
  REQUIRE(rates.size() == 25);
  for (size_t i = 0; i < 25; ++i) {
    const double cuts = i < 6 ? 0 : std::floor((static_cast<double>(i) - 2) / 4);
    CHECK(std::fabs(rates[i] - 0.1 * std::exp2(-cuts)) < 1e-7);
  }
  const CheckpointHeader uninterrupted = read_checkpoint_header(temp.file("uninterrupted") + "/last.safetensors");
  CHECK(uninterrupted.counters.plateaus == std::vector<int64_t>{6, 10, 14, 18, 22, 25});
  for (const int64_t stop : {5, 6, 7, 11}) {
    const std::string folder = create_run_folder(config, temp.file(concat("part", stop)));
    run_part(config, folder, stop);
    resume_run(folder);
    CHECK(text_of(folder + "/last.safetensors").size() ==
          text_of(temp.file("uninterrupted") + "/last.safetensors").size());
    CHECK(read_checkpoint_header(folder + "/last.safetensors").counters.plateaus == uninterrupted.counters.plateaus);
  }
  const RunConfig least = small_config(with(keys, {"schedule.final=0.4"}), kSmallInt4);
  CHECK(std::fabs(logged(least, temp.file("least"), "lr").back() - 0.04) < 1e-7);
}

TEST_CASE("weight decay follows a schedule of its own") {
  const KeepModes keep;
  const TempDir temp;
  const auto hash = [&](const char* optim, const char* stop) {
    return run_all(small_config({concat("optim=", optim), concat("train.stop=", stop), "schedule={name: constant}"},
                                kSmallInt4))
        .state_hash;
  };
  const char* const plain = "{name: adamw, lr: 0.02, weight_decay: 0.5}";
  const char* const ends =
      "{name: adamw, lr: 0.02, weight_decay: 0.5, decay_schedule: {name: multistep, at: [1 epochs], factors: [0]}}";
  CHECK(hash(plain, "1 epochs") == hash(ends, "1 epochs"));
  CHECK(hash(plain, "6 steps") != hash(ends, "6 steps"));
  CHECK(hash("{name: adamw, lr: 0.02}", "6 steps") != hash(ends, "6 steps"));
  CHECK(hash("{name: adamw, lr: 0.02, weight_decay: 0.25}", "6 steps") ==
        hash("{name: adamw, lr: 0.02, weight_decay: 0.5, decay_schedule: {name: multistep, at: [0 steps], factors: "
             "[0.5]}}",
             "6 steps"));
}

TEST_CASE("metrics have the norm of all gradients before it is clipped, where it is measured") {
  const KeepModes keep;
  const TempDir temp;
  const Keys keys = with(kEachStep, {"train.stop=4 steps", "schedule={name: constant}"});
  const std::vector<double> norms =
      logged(small_config(with(keys, {"log.gradient_norm=true"}), kSmallInt4), temp.file("measured"), "gradient_norm");
  REQUIRE(norms.size() == 4);
  for (const double n : norms) CHECK(n > 0);
  // The first step's norm does not depend on the clip, which then changes the others.
  const std::vector<double> clipped =
      logged(small_config(with(keys, {"optim.clip_norm=1e-3"}), kSmallInt4), temp.file("clipped"), "gradient_norm");
  CHECK(clipped[0] == norms[0]);
  CHECK(clipped[0] > 1e-2);
  const RunConfig off = small_config(keys, kSmallInt4),
                  on = small_config(with(keys, {"log.gradient_norm=true"}), kSmallInt4);
  CHECK(run_all(off).state_hash == run_all(on).state_hash);
}

TEST_CASE("schedules that cannot mean anything are refused by name, value and what is possible") {
  const auto refused = [](const Keys& keys, const std::string& text) {
    const std::string got = error_of([&] { small_config(keys, kSmallInt4); });
    INFO(got);
    CHECK(contains(got, text));
  };
  refused({"schedule={name: multistep, at: [4 epochs, 4 epochs], factor: 0.1}"}, "got 4 epochs after 4 epochs");
  refused({"schedule={name: multistep, at: [], factor: 0.1}"}, "the list is empty");
  refused({"schedule={name: multistep, at: 4 epochs, factor: 0.1}"}, "expected a list");
  refused({"schedule={name: multistep, at: [4 epochs]}"}, "missing required key 'schedule.factor'");
  refused({"schedule={name: multistep, factor: 0.1}"}, "missing required key 'schedule.at'");
  refused({"schedule={name: multistep, at: [1 epochs], factor: 0.1, factors: [0.1]}"}, "got factor and factors");
  refused({"schedule={name: multistep, at: [1 epochs], factors: [0.1, 0.2]}"},
          "got 2 numbers, expected one for each of the 1");
  refused({"schedule={name: step, every: 1 epochs}"}, "missing required key 'schedule.factor'");
  refused({"schedule={name: wsd, cooldown: 4 epochs}"},
          "schedule.cooldown (4 epochs) is longer than train.stop (3 epochs)");
  refused({"schedule={name: one_cycle, warmup: 2 steps}"}, "one_cycle rises by itself");
  refused({"~data.test", "schedule={name: plateau, factor: 0.5, patience: 1}"},
          "schedule plateau needs data.test or data.valid");
  refused({"optim.decay_schedule={name: linear}"}, "optim.decay_schedule has no effect");
  refused({"optim.weight_decay=0.1", "optim.decay_schedule={name: plateau, factor: 0.5, patience: 1}"},
          "plateau follows evaluations");
  CHECK(contains(error_of([] {
                   Trainer(
                       small_config({"schedule={name: multistep, at: [1 epochs, 5 steps], factor: 0.1}"}, kSmallInt4));
                 }),
                 "must ascend, got 5 after 5"));
  CHECK(contains(error_of([] {
                   Trainer(small_config(
                       {"schedule={name: plateau, factor: 0.5, patience: 1, metric: mean_squared_error}"}, kSmallInt4));
                 }),
                 "schedule: mean_squared_error does not support loss softmax_cross_entropy"));
}
