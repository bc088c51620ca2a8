// A checkpoint knows the samples of its run: a resumed run on others is an error that names the set and both records.
#include "bitgrad/config/resume.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/samples.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/npy_bytes.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kRows = 45, kTestRows = 20, kColumns = 3;

// Values and classes of `rows` rows; the order may be reversed, and one class flipped.
struct Table {
  explicit Table(int64_t rows, uint64_t seed = 1) {
    const RandomStream stream{seed, Purpose::kInit, 0, 0};
    for (int64_t i = 0; i < rows; ++i) {
      std::vector<float> row;
      for (int64_t j = 0; j < kColumns; ++j) row.push_back(stream.normal(static_cast<uint64_t>(i * kColumns + j)));
      classes.push_back(row[0] + row[1] > 0 ? 1 : 0);
      values.push_back(std::move(row));
    }
  }
  std::string csv() const {
    std::string text = "a,b,c,y\n";
    for (size_t i = 0; i < values.size(); ++i)
      text += concat(values[i][0], ',', values[i][1], ',', values[i][2], ',', classes[i], '\n');
    return text;
  }
  std::vector<std::vector<float>> values;
  std::vector<int32_t> classes;
};

std::string csv_of(int64_t rows, uint64_t seed = 1) { return Table(rows, seed).csv(); }
std::string flipped() {
  Table table(kRows);
  table.classes[17] = 1 - table.classes[17];
  return table.csv();
}
std::string reversed() {
  Table table(kRows);
  std::reverse(table.values.begin(), table.values.end());
  std::reverse(table.classes.begin(), table.classes.end());
  return table.csv();
}

constexpr const char* kTableRun = R"yaml(version: 1
run: {name: table, seed: 3}
data:
  root: $ROOT
  train: {format: csv, file: train.csv, target: y}
  test: {format: csv, file: test.csv, target: y}
model: {layers: [linear: {out: 6}, relu: {}, linear: {out: 2}]}
quant: {recipe: int4wo_symmetric}
batch: {global: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.01}
train: {stop: 12 steps}
)yaml";

struct Run {
  explicit Run(const TempDir& temp, const std::string& name) : root(temp.file(name)), folder(root + "/run") {
    file_system().make_directories(root);
    put("train.csv", csv_of(kRows));
    put("test.csv", csv_of(kTestRows, 2));
    uninterrupted = run_all(config()).state_hash;
    create_run_folder(config(), folder);
    run_part(config(), folder, 7);
  }
  void put(const std::string& name, const std::string& text) const { write_file_atomically(root + '/' + name, text); }
  RunConfig config(const std::vector<std::string>& keys = {}) const {
    std::string text = kTableRun;
    return parse_config(text.replace(text.find("$ROOT"), 5, root), "table.yaml", keys);
  }
  std::string go_on(bool use_data = false, const std::vector<std::string>& keys = {}) const {
    Trainer trainer(config(keys));
    trainer.resume(run_folder_checkpoint(folder), use_data);
    return trainer.run(folder).state_hash;
  }
  std::string root, folder, uninterrupted;
};

std::string record_of(const std::string& csv_path, const Run& run) {
  return to_string(samples_record(*open_dataset(run.config(), run.config({"data.train.file=" + csv_path}).data.train)));
}

}  // namespace

TEST_CASE("a resumed run whose samples changed is an error that names the set and both records") {
  const KeepModes keep;
  const TempDir temp;
  struct Change {
    std::string name, section, file, text;
  };
  const std::vector<Change> changes{{"grown", "train", "train.csv", csv_of(kRows + 20)},
                                    {"shrunk", "train", "train.csv", csv_of(kRows - 1)},
                                    {"flipped", "train", "train.csv", flipped()},
                                    {"reversed", "train", "train.csv", reversed()},
                                    {"test", "test", "test.csv", csv_of(kTestRows, 3)}};
  for (const Change& change : changes) {
    INFO(change.name);
    const Run run(temp, change.name);
    run.put("before.csv", text_of(run.root + '/' + change.file));
    run.put(change.file, change.text);
    const std::string error = error_of([&] { run.go_on(); });
    CHECK(contains(error,
                   concat("was trained on other samples. data.", change.section, " (", run.root, '/', change.file)));
    CHECK(contains(error, concat("got ", record_of(change.file, run), ", the run has ", record_of("before.csv", run))));
    CHECK(contains(error, "pass --use-data to continue with these, not bit for bit"));
    CHECK(error_code_of([&] { run.go_on(); }) == 3);

    const LogLines log;
    CHECK(run.go_on(true) != "");
    REQUIRE(log.warnings.size() >= 1);
    CHECK(contains(log.warnings[0], "not bit for bit. data." + change.section));
    const bool selects = change.section == "test";
    CHECK((log.warnings.size() > 1 && contains(log.warnings[1], "the best model is chosen anew")) == selects);
  }
}

TEST_CASE("accepted samples are those of the next checkpoint, and a best model of others is forgotten") {
  const KeepModes keep;
  const TempDir temp;
  const Run run(temp, "run");
  run.put("test.csv", csv_of(kTestRows, 3));
  Trainer trainer(run.config());
  trainer.resume(run_folder_checkpoint(run.folder), true);
  CHECK(trainer.counters().best_accuracy == -1);
  CHECK(trainer.counters().best_step == 0);
  trainer.run(run.folder);
  const LogLines log;
  Trainer(run.config({"train.stop=20 steps"})).resume(run_folder_checkpoint(run.folder));
  CHECK(log.warnings.empty());
}

TEST_CASE("after a resume that failed, a run that begins is a new one") {
  const KeepModes keep;
  const TempDir temp;
  const Run run(temp, "run");
  // A model of other shapes, into which half of the checkpoint was read.
  const RunConfig narrow = run.config({"model.layers.2.linear.out=2", "model.layers.0.linear.out=5"});
  Trainer other(narrow);
  CHECK(contains(error_of([&] { other.resume(run_folder_checkpoint(run.folder)); }), "layers.0.weight"));
  CHECK(other.run("").state_hash == run_all(narrow).state_hash);
  // Other samples.
  run.put("test.csv", csv_of(kTestRows, 3));
  Trainer trainer(run.config());
  CHECK(contains(error_of([&] { trainer.resume(run_folder_checkpoint(run.folder)); }), "was trained on other samples"));
  CHECK(trainer.done_microbatches() == 0);
  CHECK(trainer.run("").state_hash == run_all(run.config()).state_hash);
}

TEST_CASE("a run in epochs goes on to its last epoch, however many samples an epoch has now") {
  const KeepModes keep;
  const TempDir temp;
  const std::vector<std::string> keys{"train.stop=4 epochs", "schedule={name: cosine}"};
  struct Case {
    int64_t rows, total;
  };
  // Stopped after 7 of 5 microbatches an epoch: in epoch 1, at position 20.
  for (const Case& c : {Case{65, 7 + 5 + 2 * 7}, {25, 7 + 1 + 2 * 3}, {20, 7 + 2 * 2}, {15, 7 + 2 * 2}}) {
    INFO(c.rows);
    const Run run(temp, std::to_string(c.rows));
    const std::string folder = run.root + "/epochs";
    create_run_folder(run.config(keys), folder);
    run_part(run.config(keys), folder, 7);
    run.put("train.csv", csv_of(c.rows));
    const LogLines log;
    for (const bool first : {true, false}) {  // stopped once more, it knows its length by itself
      Trainer trainer(run.config(keys));
      trainer.resume(run_folder_checkpoint(folder), first);
      CHECK(trainer.total_microbatches() == c.total);
      CHECK(trainer.learner().learning_rate(c.total - 1) > 0);
      CHECK(trainer.learner().learning_rate(c.total - 1) < 0.01f * 0.15f);
      TrainHooks hooks;
      if (first) hooks.stop_requested = [] { return StopRequest::kInterrupt; };
      const TrainOutcome outcome = trainer.run(folder, hooks);
      CHECK((outcome.stopped == StopRequest::kNone) == !first);
      if (!first) CHECK((outcome.counters.epoch == 4 && outcome.counters.position == 0));
    }
    const auto told = [&](const std::string& part) {
      return std::count_if(log.warnings.begin(), log.warnings.end(),
                           [&](const std::string& line) { return contains(line, part); });
    };
    CHECK(told(concat("train.stop (4 epochs) ends the run after ", c.total)) == 2);
    CHECK(told("position 20 of an epoch is past the 15 samples of data.train: the run goes on with the next epoch") ==
          (c.rows == 15 ? 1 : 0));
  }
}

// A resume with another path writes it into config.yaml before its first save; killed in between, the next finds it
// there.
TEST_CASE("a path of samples in config.yaml counts, and words that name no file are fixed") {
  const KeepModes keep;
  const TempDir temp;
  const Run run(temp, "run");
  const std::string checkpoint = run_folder_checkpoint(run.folder);
  const auto resumed = [&](const std::vector<std::string>& words = {}) {
    return resumed_config(checkpoint, read_checkpoint_header(checkpoint), words);
  };
  run.put("moved.csv", text_of(run.root + "/train.csv"));
  file_system().remove(run.root + "/train.csv");
  write_file_atomically(run.folder + "/config.yaml", to_yaml(resumed({"data.train.file=moved.csv"})));
  const LogLines log;
  CHECK(resumed().data.train.file == "moved.csv");
  CHECK(resumed({"data.train.file=again.csv"}).data.train.file == "again.csv");
  Trainer trainer(resumed());
  trainer.resume(checkpoint);
  CHECK(trainer.run(run.folder).state_hash == run.uninterrupted);
  CHECK(log.warnings.empty());

  RunConfig config = run.config();
  CHECK(resume_rule(config, "data.train.labels") == ResumeRule::kSamplePath);
  CHECK(resume_rule(config, "data.test.mask") == ResumeRule::kSamplePath);
  CHECK(resume_rule(config, "data.train.targets") == ResumeRule::kSamplePath);
  CHECK(resume_rule(config, "data.train.limit") == ResumeRule::kFixed);
  CHECK(resume_rule(config, "data.file") == ResumeRule::kFixed);
  CHECK(resume_rule(config, "device.threads") == ResumeRule::kOfCheckpoint);
  config.data.train.format = "cifar100";
  CHECK(resume_rule(config, "data.train.labels") == ResumeRule::kFixed);
  config.data.train.format = "text";
  CHECK(resume_rule(config, "data.train.targets") == ResumeRule::kFixed);
}

TEST_CASE("samples at another path are the same samples") {
  const KeepModes keep;
  const TempDir temp;
  const Run run(temp, "run");
  run.put("moved.csv", text_of(run.root + "/train.csv"));
  file_system().remove(run.root + "/train.csv");
  const LogLines log;
  CHECK(run.go_on(false, {"data.train.file=moved.csv"}) == run.uninterrupted);
  CHECK(log.warnings.empty());
}

TEST_CASE("a checkpoint without a record of its samples resumes, and reports what is unknown") {
  const KeepModes keep;
  const TempDir temp;
  const Run run(temp, "run");
  const std::string path = run.folder + "/last.safetensors";
  Trainer trainer(run.config());
  trainer.resume(path);
  RunCounters counters = trainer.counters();
  REQUIRE(counters.data.size() == 2);
  counters.data.clear();
  save_checkpoint(path, trainer.learner(), counters, to_portable_yaml(run.config()));
  const LogLines log;
  CHECK(run.go_on() == run.uninterrupted);
  CHECK(log.warnings.empty());
  CHECK(std::any_of(log.lines.begin(), log.lines.end(), [&](const std::string& line) {
    return line == path + " has no record of its samples: whether they changed is not known";
  }));
}

TEST_CASE("arrays of a program resume by their values, for any storage") {
  const KeepModes keep;
  const TempDir temp;
  const RunConfig config = parse_config(R"yaml(version: 1
data: {train: {format: memory}}
model: {layers: [linear: {out: 6}, relu: {}, linear: {out: 2}]}
batch: {global: 10}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.01}
train: {stop: 12 steps}
)yaml",
                                        "memory.yaml");
  Table table(kRows);
  std::vector<float> x;
  for (const auto& row : table.values) x.insert(x.end(), row.begin(), row.end());
  std::vector<uint8_t> narrow(table.classes.begin(), table.classes.end());
  const auto data = [&](StoredAs form) {
    MemoryDatasetSpec spec;
    spec.samples = {"x", StoredAs::kFloat, Shape{kColumns}, kRows, x.data()};
    const void* const classes =
        form == StoredAs::kUint8 ? static_cast<const void*>(narrow.data()) : table.classes.data();
    spec.targets = {"y", form, Shape{}, kRows, classes};
    spec.classes = 2;
    return make_memory_dataset(spec);
  };
  const auto trainer = [&](StoredAs form) { return std::make_unique<Trainer>(config, data(form), nullptr); };
  const std::string uninterrupted = trainer(StoredAs::kInt32)->run("").state_hash;
  const std::string folder = create_run_folder(config, temp.file("run"));
  TrainHooks hooks;
  int64_t polls = 0;
  hooks.stop_requested = [&] { return ++polls >= 7 ? StopRequest::kTerminate : StopRequest::kNone; };
  trainer(StoredAs::kInt32)->run(folder, hooks);
  const std::string path = folder + "/last.safetensors";
  const auto resumed = trainer(StoredAs::kUint8);
  resumed->resume(path);
  CHECK(resumed->run("").state_hash == uninterrupted);

  x[50] += 1e-6f;
  CHECK(contains(error_of([&] { trainer(StoredAs::kInt32)->resume(path); }),
                 concat("was trained on other samples. data.train (x): got ", kRows, " samples [", kColumns, ']')));
  CHECK_NOTHROW(trainer(StoredAs::kInt32)->resume(path, true));
}

TEST_CASE("a record covers every id of windows, in memory and in files") {
  const TempDir temp;
  std::vector<uint16_t> ids;
  for (int i = 0; i < 700; ++i) ids.push_back(static_cast<uint16_t>(i * i % 11));
  const auto record = [&](const std::vector<std::string>& keys) {
    std::string text(reinterpret_cast<const char*>(ids.data()), ids.size() * 2), letters;
    for (const uint16_t id : ids) letters += static_cast<char>('a' + id);
    write_file_atomically(temp.file("ids.bin"), text);
    write_file_atomically(temp.file("text.txt"), letters);
    const RunConfig config = parse_config(
        concat(R"yaml(version: 1
data: {root: )yaml",
               temp.path(), R"yaml(, train: {format: tokens, file: ids.bin, stored: uint16, vocabulary: 11, context: 8}}
model: {layers: [embedding: {num: 11, dim: 4, flat: false}, linear: {out: 11}]}
batch: {global: 4}
loss: softmax_cross_entropy
optim: {name: sgd, lr: 0.1}
train: {stop: 1 steps}
)yaml"),
        "ids.yaml", keys);
    return samples_record(*open_dataset(config, config.data.train));
  };
  const std::string text =
      "data={root: " + temp.path() + ", tokenizer: bytes, train: {format: tokens, file: text.txt, context: 8";
  for (const std::vector<std::string>& keys :
       std::vector<std::vector<std::string>>{{},
                                             {"data.train.order=random"},
                                             {"data.train.order=sequential"},
                                             {text + "}}"},
                                             {text + ", order: random}}"},
                                             {text + ", order: sequential, stride: 3}}"}}) {
    INFO((keys.empty() ? "" : keys[0]));
    const SamplesRecord before = record(keys);
    CHECK(before == record(keys));
    for (const size_t at : {0, 8, 9, 300, 555}) {
      INFO(at);
      const uint16_t was = ids[at];
      ids[at] = static_cast<uint16_t>((was + 1) % 11);
      CHECK(record(keys).crc32c != before.crc32c);
      ids[at] = was;
    }
  }
}
