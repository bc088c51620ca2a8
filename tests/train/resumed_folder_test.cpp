// A run folder whose config.yaml or metrics.jsonl is not what the run wrote; the checkpoint that a run resumes from.
#include <algorithm>
#include <atomic>
#include <filesystem>

#include "bitgrad/base/file.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/run/metrics_log.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? "not there: " + from : text.replace(at, from.size(), to);
}

// A run that was stopped after 7 of 15 steps.
struct Stopped {
  explicit Stopped(const std::string& folder_name, const std::vector<std::string>& keys = {})
      : folder(create_run_folder(small_config(keys), folder_name)),
        uninterrupted(run_all(small_config(keys)).state_hash) {
    run_part(small_config(keys), folder, 7);
    config = text_of(folder + "/config.yaml");
    metrics = text_of(folder + "/metrics.jsonl");
  }
  void put(const std::string& name, const std::string& text) const { write_file_atomically(folder + '/' + name, text); }
  RunConfig resumed(const std::vector<std::string>& overrides = {}) const {
    const std::string checkpoint = run_folder_checkpoint(folder);
    return resumed_config(checkpoint, read_checkpoint_header(checkpoint), overrides);
  }
  // Goes on; gives the hash of the state at the end.
  std::string go_on() const {
    Trainer trainer(resumed());
    trainer.resume(run_folder_checkpoint(folder));
    return trainer.run(folder).state_hash;
  }
  std::string folder, uninterrupted, config, metrics;
};

}  // namespace

TEST_CASE("differences of configurations are listed by key with both values") {
  const auto list = [](const RunConfig& a, const RunConfig& b) {
    std::vector<std::string> out;
    for (const ConfigDifference& d : config_differences(a, b))
      out.push_back(concat(d.key, '|', d.a.value_or("-"), '|', d.b.value_or("-")));
    return out;
  };
  const RunConfig base = small_config();
  CHECK(list(base, base).empty());
  CHECK(list(base, parse_config(to_yaml(base), "again.yaml")).empty());
  using Lines = std::vector<std::string>;
  CHECK(list(small_config({"optim.lr=0.5", "model.layers.2.linear.out=13"}), base) ==
        Lines{"model.layers.2.linear.out|13|12", "optim.lr|0.5|0.02"});
  CHECK(list(small_config({"data.affine=[3,-1]"}), base) == Lines{"data.affine|[3, -1]|[2, -1]"});
  CHECK(list(small_config({"quant.weights.init=uniform(-2,1)"}), base) ==
        Lines{"quant.weights.init|uniform(-2,1)|uniform(-1,1)"});
  CHECK(list(small_config({"optim.clip_norm=1"}), base) == Lines{"optim.clip_norm|1|none"});
  CHECK(list(small_config({"optim={name: sgd, lr: 0.02}"}), base) ==
        Lines{"optim.name|sgd|adam", "optim.momentum|0|-", "optim.nesterov|false|-",
              "optim.momentum_schedule.name|constant|-", "optim.momentum_schedule.warmup|0 steps|-",
              "optim.momentum_schedule.warmup_from|0|-", "optim.betas|-|[0.9, 0.999]", "optim.eps|-|1e-08"});
  // A name here is a map there, with keys of its own.
  const RunConfig hinge = small_config({"loss=squared_hinge"}),
                  smooth = small_config({"loss={softmax_cross_entropy: {smoothing: 0.1}}"});
  CHECK(list(hinge, smooth) == Lines{"loss|squared_hinge|{softmax_cross_entropy: {smoothing: 0.1}}"});
  CHECK(list(smooth, hinge) == Lines{"loss|{softmax_cross_entropy: {smoothing: 0.1}}|squared_hinge"});
}

TEST_CASE("a run goes on with the configuration in its checkpoint, and a changed config.yaml is an error") {
  const KeepModes keep;
  const TempDir temp;
  const Stopped run(temp.file("run"));
  const LogLines lines;
  CHECK(to_yaml(run.resumed()) == run.config);
  run.put("config.yaml", "# a remark\n" + run.config);
  CHECK(to_yaml(run.resumed()) == run.config);
  CHECK(lines.warnings.empty());

  run.put("config.yaml", replaced(replaced(run.config, "lr: 0.02", "lr: 0.03"), "stop: 3 epochs", "stop: 2 epochs"));
  CHECK(error_of([&] { run.resumed(); }) ==
        concat("[resume] ", run.folder,
               "/config.yaml is not the configuration that the run was saved with. optim.lr: got 0.03, expected 0.02; "
               "train.stop: got 2 epochs, expected 3 epochs. Restore it, or pass --use-config to use it"));
  CHECK(error_code_of([&] { run.resumed(); }) == 2);
  CHECK(run_folder_config(run.folder).optim.spec.base_lr == 0.03);
  CHECK(lines.warnings.empty());

  run.put("config.yaml", run.config);
  CHECK(run.go_on() == run.uninterrupted);
  CHECK(lines.warnings.empty());
}

TEST_CASE("a config.yaml that cannot be read, or is gone, is a warning, and the run ends as it would have") {
  const KeepModes keep;
  const TempDir temp;
  const std::vector<std::pair<std::string, std::string>> damages{{"cut", "version: 1\nrun: {name: sm"},
                                                                 {"unknown key", "version: 1\nrun: {nmae: small}\n"},
                                                                 {"empty", ""},
                                                                 {"bytes", std::string("\0\xff\x01", 3)}};
  int64_t runs = 0;
  for (const auto& [name, text] : damages) {
    INFO(name);
    const Stopped run(temp.file(std::to_string(runs++)));
    run.put("config.yaml", text);
    const LogLines lines;
    CHECK(run.go_on() == run.uninterrupted);
    REQUIRE(lines.warnings.size() == 1);
    CHECK(contains(lines.warnings[0], run.folder +
                                          "/config.yaml cannot be read: the run continues with the configuration "
                                          "in its checkpoint ("));
    CHECK(!contains(lines.warnings[0], "\n"));
    CHECK(text_of(run.folder + "/config.yaml") == text);
  }
  const Stopped run(temp.file("gone"));
  file_system().remove(run.folder + "/config.yaml");
  const LogLines lines;
  CHECK(run.go_on() == run.uninterrupted);
  REQUIRE(lines.warnings.size() == 1);
  CHECK(contains(lines.warnings[0], "/config.yaml cannot be read"));
}

TEST_CASE("the device of a resumed run is that of its checkpoint or of an override, never that of config.yaml") {
  const KeepModes keep;
  const TempDir temp;
  const Stopped run(temp.file("run"), {"device.threads=2"});
  const LogLines lines;
  CHECK(run.resumed({"device.threads=1"}).device.threads == 1);
  CHECK(lines.warnings.empty());
  run.put("config.yaml", replaced(run.config, "threads: 2", "threads: 3"));
  CHECK(run.resumed().device.threads == 2);
  REQUIRE(lines.warnings.size() == 1);
  CHECK(contains(lines.warnings[0], "the checkpoint counts: device.threads: got 3, expected 2"));
}

TEST_CASE("lines of the metrics that cannot be read are named, and the damaged file is kept beside the new one") {
  const KeepModes keep;
  const TempDir temp;
  const Stopped run(temp.file("run"));
  const std::string path = run.folder + "/metrics.jsonl";
  std::vector<std::string> lines;
  for (size_t at = 0; at < run.metrics.size();) {
    const size_t end = run.metrics.find('\n', at) + 1;
    lines.push_back(run.metrics.substr(at, end - at));
    at = end;
  }
  REQUIRE(lines.size() > 6);
  std::string damaged, kept;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 1 && i != 4) kept += lines[i];
    damaged += i == 1 ? replaced(lines[i], "{", "[") : i == 4 ? replaced(lines[i], "\"step\"", "\"stop\"") : lines[i];
  }
  write_file_atomically(path, damaged);
  write_file_atomically(path + ".damaged", "an older one");
  const LogLines log;
  CHECK(run.go_on() == run.uninterrupted);
  REQUIRE(log.warnings.size() == 1);
  CHECK(log.warnings[0] ==
        concat(path, ": lines 2, 5 cannot be read and were dropped. The original file: ", path, ".damaged.2"));
  CHECK(text_of(path + ".damaged") == "an older one");
  CHECK(text_of(path + ".damaged.2") == damaged);
  CHECK(text_of(path).starts_with(kept));
  CHECK(text_of(path).size() > kept.size());
}

TEST_CASE("every flipped bit of the metrics is reported, and no file of an uninterrupted run is") {
  const KeepModes keep;
  const TempDir temp;
  const Stopped run(temp.file("run"));
  const std::string path = run.folder + "/metrics.jsonl";
  const RunCounters c = read_checkpoint_header(run.folder + "/last.safetensors").counters;
  const WrittenSum saved{c.metrics_bytes, c.metrics_crc};
  REQUIRE(saved.bytes == static_cast<int64_t>(run.metrics.size()));
  struct Told {
    std::vector<std::string> lines, warnings;
  };
  const auto opened = [&](const std::string& text) {
    write_file_atomically(path, text);
    const LogLines log;
    { MetricsLog metrics(run.folder, 7, saved); }
    return Told{log.lines, log.warnings};
  };
  CHECK(opened(run.metrics).lines.empty());
  // Written after the save: dropped as ever; cut off by a kill: told, but no alarm.
  CHECK(opened(run.metrics + "{\"event\":\"train\",\"step\":8}\n").lines.empty());
  CHECK(text_of(path) == run.metrics);
  {
    const Told log = opened(run.metrics + "{\"event\":\"tr");
    CHECK(log.warnings.empty());
    REQUIRE(log.lines.size() == 1);
    CHECK(contains(log.lines[0], "the last line is incomplete and is dropped"));
    CHECK(text_of(path) == run.metrics);
  }
  CHECK(opened(run.metrics.substr(0, run.metrics.find('\n') + 1)).warnings.size() == 1);
  file_system().remove(path + ".damaged");
  file_system().remove(path);
  {
    const LogLines log;
    { MetricsLog metrics(run.folder, 7, saved); }
    REQUIRE(log.warnings.size() == 1);
    CHECK(contains(log.warnings[0], "metrics.jsonl is missing: a new one begins after step 7"));
  }
  for (size_t i = 0; i < run.metrics.size(); i += 7) {
    std::string flipped = run.metrics;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
    if (opened(flipped).warnings.size() != 1) FAIL("byte " << i);
    for (const std::string& name : file_system().list(run.folder)) {
      if (!contains(name, ".damaged")) continue;
      CHECK(text_of(run.folder + '/' + name) == flipped);
      file_system().remove(run.folder + '/' + name);
    }
  }
}

namespace {

bool said(const LogLines& log, const std::string& text) {
  return std::any_of(log.lines.begin(), log.lines.end(), [&](const std::string& line) { return contains(line, text); });
}

}  // namespace

TEST_CASE("a run that was killed before its first last.safetensors goes on from best.safetensors, bit for bit") {
  const std::vector<std::string> keys{"train.eval.every=1 steps", "checkpoint.every=100 steps"};
  const std::string uninterrupted = run_all(small_config(keys)).state_hash;
  TempDir temp;
  const std::string folder = create_run_folder(small_config(keys), temp.file("run"));
  run_and_die(small_config(keys), folder, 6);
  REQUIRE_FALSE(file_system().exists(folder + "/last.safetensors"));
  const LogLines lines;
  const std::string best = run_folder_checkpoint(folder);
  CHECK(best == folder + "/best.safetensors");
  CHECK(said(lines, folder + " has no last.safetensors: best.safetensors is used"));
  CHECK(newest_checkpoint(folder) == best);
  const CheckpointHeader header = read_checkpoint_header(best);
  CHECK(header.step > 0);
  CHECK(header.counters.best_step == header.step);
  Trainer trainer(resumed_config(best, header));
  trainer.resume(best);
  CHECK(trainer.run(folder).state_hash == uninterrupted);
}

TEST_CASE("a run goes on from the later one of its two checkpoints, and never replaces a better best.safetensors") {
  const std::vector<std::string> keys{"train.eval.every=1 steps", "checkpoint.every=3 steps", "train.best=loss"};
  TempDir temp;
  const std::string whole = create_run_folder(small_config(keys), temp.file("whole"));
  const std::string uninterrupted = Trainer(small_config(keys)).run(whole).state_hash;
  bool newer = false;
  for (int64_t microbatches = 3; microbatches < 12; ++microbatches) {
    const std::string folder = create_run_folder(small_config(keys), temp.file(std::to_string(microbatches)));
    run_and_die(small_config(keys), folder, microbatches);
    const std::string from = newest_checkpoint(folder);
    const int64_t last = read_checkpoint_header(folder + "/last.safetensors").step;
    const int64_t best = read_checkpoint_header(folder + "/best.safetensors").step;
    INFO(microbatches << ": last " << last << ", best " << best);
    CHECK(from == folder + (best > last ? "/best.safetensors" : "/last.safetensors"));
    newer = newer || best > last;
    Trainer trainer(resumed_config(from, read_checkpoint_header(from)));
    trainer.resume(from);
    const CheckpointHeader before = read_checkpoint_header(folder + "/best.safetensors");
    CHECK(trainer.run(folder).state_hash == uninterrupted);
    const CheckpointHeader after = read_checkpoint_header(folder + "/best.safetensors");
    CHECK(*after.counters.best_value <= *before.counters.best_value);
    CHECK(after.step == read_checkpoint_header(whole + "/best.safetensors").step);
    CHECK(after.counters.best_value == read_checkpoint_header(whole + "/best.safetensors").counters.best_value);
  }
  CHECK(newer);
  // A damaged best.safetensors is not the one that counts.
  const std::string folder = temp.file("3");
  write_file_atomically(folder + "/best.safetensors", "damaged");
  CHECK(newest_checkpoint(folder) == folder + "/last.safetensors");
}

namespace {

// Samples that can be read until `left` of them were.
class Vanishing final : public Dataset {
 public:
  Vanishing(std::unique_ptr<Dataset> data, int64_t left) : data_(std::move(data)), left_(left) {}
  std::string name() const override { return data_->name(); }
  int64_t size() const override { return data_->size(); }
  std::vector<int64_t> sample_shape() const override { return data_->sample_shape(); }
  int64_t classes() const override { return data_->classes(); }
  void sample(int64_t index, float* x, int32_t* label) const override {
    if (left_.fetch_sub(1) <= 0) fail_with(ErrorCode::kData, "data", "the disk is gone");
    data_->sample(index, x, label);
  }

 private:
  std::unique_ptr<Dataset> data_;
  mutable std::atomic<int64_t> left_;
};

}  // namespace

TEST_CASE("a run whose data vanish, in training or in an evaluation, saves what it trained") {
  const std::vector<std::string> keys{"train.eval.every=1 epochs", "checkpoint.every=100 steps"};
  const RunConfig config = small_config(keys);
  const std::string uninterrupted = run_all(config).state_hash;
  const auto data = [&](const DatasetConfig& section, int64_t left) {
    return std::make_unique<Vanishing>(open_dataset(config, section), left);
  };
  constexpr int64_t kAll = 1000000;
  const int64_t trained = open_dataset(config, config.data.train)->size(),
                evaluated = open_dataset(config, *config.data.test)->size();
  TempDir temp;
  int number = 0;
  for (const auto& [train, test] :
       {std::pair{trained + trained / 2, kAll}, std::pair{kAll, evaluated / 2}, std::pair{kAll, evaluated + 1}}) {
    const std::string folder = create_run_folder(config, temp.file(std::to_string(number++)));
    INFO(train << " samples of training, " << test << " of evaluations can be read");
    const LogLines lines;
    const auto run = [&, &train_at = train, &test_at = test] {
      // Before it trains, a run reads each sample once for its record.
      Trainer(config, data(config.data.train, trained + train_at), data(*config.data.test, evaluated + test_at))
          .run(folder);
    };
    CHECK(contains(error_of(run), "the disk is gone"));
    for (const std::string& line : lines.lines) UNSCOPED_INFO(line);
    const int64_t step = read_checkpoint_header(newest_checkpoint(folder)).step;
    CHECK(step > 0);
    CHECK(said(lines, concat("saved at step ", step)));
    CHECK(resume_run(folder).state_hash == uninterrupted);
  }
}

TEST_CASE(
    "A run that was cut between best and last of its last step writes last when it is resumed, and is warned of") {
  const TempDir temp;
  const std::string uninterrupted = create_run_folder(small_config(), temp.file("uninterrupted"));
  const TrainOutcome whole = run_all(small_config(), uninterrupted);
  const std::string best = temp.file("run") + "/best.safetensors", last = temp.file("run") + "/last.safetensors";
  // As the cut leaves it: best of the last step, last of an earlier one, or none.
  for (const bool none : {false, true}) {
    std::filesystem::remove_all(temp.file("run"));
    const std::string run = create_run_folder(small_config(), temp.file("run"));
    run_part(small_config(), run, 7);
    std::filesystem::copy_file(uninterrupted + "/last.safetensors", best,
                               std::filesystem::copy_options::overwrite_existing);
    if (none) std::filesystem::remove(last);
    if (!none) {
      CHECK(contains(stale_last(run), "best.safetensors is of step 15, last.safetensors of step 7"));
      const LogLines log;
      checkpoint_of(run);
      REQUIRE(log.warnings.size() == 1);
      CHECK(contains(log.warnings[0], "last.safetensors of step 7: the run was cut between the two"));
    }
    const std::string from = newest_checkpoint(run);
    CHECK(from == best);
    Trainer trainer(resumed_config(from, read_checkpoint_header(from)));
    trainer.resume(from);
    CHECK(trainer.ended());
    CHECK(trainer.run(run).state_hash == whole.state_hash);
    CHECK(stale_last(run).empty());
    REQUIRE(file_system().exists(last));
    const CheckpointHeader there = read_checkpoint_header(last),
                           expected = read_checkpoint_header(uninterrupted + "/last.safetensors");
    CHECK(there.step == expected.step);
    CHECK(there.microbatch == expected.microbatch);
    const NamedTensors a = load_tensors(last), b = load_tensors(uninterrupted + "/last.safetensors");
    REQUIRE(a.size() == b.size());
    for (const auto& [name, tensor] : a) CHECK(tensor.values() == b.at(name).values());
  }
}
