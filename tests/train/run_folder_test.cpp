#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/base/json.h"

#include "bitgrad/base/memory.h"
#include "bitgrad/run/metrics_log.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("a run folder holds the resolved configuration and the one that was given") {
  TempDir temp;
  const RunConfig config = small_config({"optim.lr=0.5"});
  const std::string folder = create_run_folder(config, temp.file("a/b/run"));
  CHECK(folder == temp.file("a/b/run"));
  CHECK(run_folder_config(folder) == config);
  CHECK(text_of(folder + "/config.source.yaml") == kSmallTfc);
  CHECK(to_yaml(run_folder_config(folder)) == to_yaml(config));
}

TEST_CASE("a run folder is never overwritten") {
  TempDir temp;
  const RunConfig config = small_config();
  write_file_atomically(temp.file("note.txt"), "mine");
  CHECK(contains(error_of([&] { create_run_folder(config, temp.path()); }), "not empty"));
  CHECK(error_code_of([&] { create_run_folder(config, temp.path()); }) == 2);
  CHECK(contains(error_of([&] { create_run_folder(config, temp.file("note.txt")); }), "is a file"));
  CHECK(file_system().list(temp.path()) == std::vector<std::string>{"note.txt"});
  file_system().make_directories(temp.file("empty"));
  CHECK(create_run_folder(config, temp.file("empty")) == temp.file("empty"));
}

TEST_CASE("a new run folder is locked before anything is written into it, and stays so") {
  TempDir temp;
  const std::string path = temp.file("run");
  file_system().make_directories(path);
  const auto start = [&] { start_run_folder(small_config(), path); };
  {
    const auto other = lock_run_folder(path);  // of a start that has not written yet
    CHECK(contains(error_of(start), "another process trains in '" + path));
    CHECK(file_system().list(path).empty());
  }
  const RunConfig config = small_config({"optim.lr=0.5"});
  {
    const RunFolder first = start_run_folder(config, path);
    CHECK(first.path == path);
    CHECK(contains(error_of(start), "another process trains in '" + path));
  }
  CHECK(contains(error_of(start), "not empty"));
  CHECK(run_folder_config(path) == config);
}

TEST_CASE("without a name the folder gets the next free number") {
  TempDir temp;
  const RunConfig config = small_config({"run.dir=" + temp.file("runs")});
  CHECK(create_run_folder(config, "") == temp.file("runs/small/0001"));
  CHECK(create_run_folder(config, "") == temp.file("runs/small/0002"));
}

TEST_CASE("a folder without a run and a run without a checkpoint are distinguished") {
  TempDir temp;
  for (const bool checkpoint : {false, true}) {
    const auto look = [&] {
      checkpoint ? (void)run_folder_checkpoint(temp.path()) : (void)run_folder_config(temp.path());
    };
    CHECK(contains(error_of(look), "not a run folder"));
    CHECK(error_code_of(look) == 3);
  }
  const std::string folder = create_run_folder(small_config(), temp.file("run"));
  CHECK(contains(error_of([&] { run_folder_checkpoint(folder); }), "before its first checkpoint"));
  CHECK(error_code_of([&] { run_folder_checkpoint(folder); }) == 3);
}

TEST_CASE("a run folder is trained in by one process at a time") {
  TempDir temp;
  {
    const auto lock = lock_run_folder(temp.path());
    CHECK(contains(error_of([&] { lock_run_folder(temp.path()); }), "another process trains in '" + temp.path()));
  }
  CHECK(lock_run_folder(temp.path()) != nullptr);
}

TEST_CASE("files that a killed process had not finished go when the folder is locked again") {
  TempDir temp;
  for (const char* name :
       {"last.safetensors.tmp-123", "summary.json.tmp-9", "last.safetensors", "notes.tmp-", "a.tmp-1b", "77"})
    write_file_atomically(temp.file(name), "x");
  const auto lock = lock_run_folder(temp.path());
  CHECK(file_system().list(temp.path()) ==
        std::vector<std::string>{"77", "a.tmp-1b", "last.safetensors", "notes.tmp-"});
}

TEST_CASE("lines of the metrics after the checkpoint are dropped, and so is a half one") {
  TempDir temp;
  const std::string kept = "{\"event\":\"train\",\"step\":2}\n{\"event\":\"eval\",\"step\":4}\n";
  const std::string path = temp.file("metrics.jsonl");
  write_file_atomically(
      path,
      kept + "{\"event\":\"train\",\"step\":5}\nnot json\n{\"step\":\"3\"}\n[1]\n{\"event\":\"train\",\"step\":3");
  { MetricsLog log(temp.path(), 4); }
  CHECK(text_of(path) == kept);
  { MetricsLog log(temp.path(), 1); }
  CHECK(text_of(path).empty());
}

TEST_CASE("metrics are one JSON object a line with the agreed keys") {
  TempDir temp;
  {
    MetricsLog log(temp.path(), 0);
    TrainEvent train;
    train.step = 7;
    train.loss = std::numeric_limits<double>::quiet_NaN();
    train.lr = 0.02;
    log.write(train);
    EvalEvent eval;
    eval.split = "test";
    eval.accuracy = 100.0 * 1 / 3;
    log.write(eval);
  }
  std::istringstream in(text_of(temp.file("metrics.jsonl")));
  std::string line;
  std::getline(in, line);
  const auto keys = [](const std::string& text) {
    std::vector<std::string> names;
    const auto parsed = Json::parse(text);
    for (const auto& [key, value] : parsed.members()) names.push_back(key);
    return names;
  };
  CHECK(keys(line) == std::vector<std::string>{"event", "step", "epoch", "loss", "accuracy", "lr", "samples_per_s"});
  CHECK(Json::parse(line).at("loss").is_null());
  CHECK(Json::parse(line).at("lr") == 0.02);
  std::getline(in, line);
  CHECK(keys(line) == std::vector<std::string>{"event", "split", "epoch", "step", "loss", "accuracy"});
  CHECK(Json::parse(line).at("accuracy").get<double>() == 100.0 * 1 / 3);
  CHECK_FALSE(std::getline(in, line));
}

TEST_CASE("the summary states accuracies, epochs, the state and the memory by kind") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config();
  const std::string folder = create_run_folder(config, temp.file("run"));
  reset_memory_peaks();
  const TrainOutcome outcome = run_all(config, folder);
  const Json summary = Json::parse(text_of(folder + "/summary.json"));
  CHECK(summary.at("status") == "finished");
  CHECK(summary.at("best_accuracy").get<double>() == outcome.counters.best_accuracy);
  CHECK(summary.at("last_accuracy").get<double>() == outcome.counters.last_accuracy);
  CHECK(summary.at("epochs") == 3);
  CHECK(summary.at("steps") == 15);
  CHECK(summary.at("seconds").get<double>() > 0);
  CHECK(summary.at("state_hash") == outcome.state_hash);
  CHECK(outcome.state_hash.size() == 64);
  const Json memory = summary.at("memory");
  int64_t total = 0;
  for (int i = 0; i < kMemoryKinds; ++i)
    total += memory.at(std::string(memory_kind_name(static_cast<MemoryKind>(i)))).get<int64_t>();
  CHECK(memory.size() == static_cast<size_t>(kMemoryKinds) + 1);
  CHECK(memory.at("total_peak") == total);
  // Masters of 784 x 12 + 12 x 10 weights, two batch norm and two tensor norm parameters; two moments each.
  const int64_t parameters = 784 * 12 + 12 * 10 + 2 * 12 + 2;
  CHECK(memory.at("master") == 4 * parameters);
  CHECK(memory.at("optimizer") == 8 * parameters);
}
