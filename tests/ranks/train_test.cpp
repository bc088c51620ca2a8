// bitgrad train below mpirun: the run of one rank, resumed with other numbers of ranks, stopped, and failing.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "apps/digits_net.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "ranks/launch_line.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using namespace bitgrad::test;
using bitgrad::Json;

namespace {

using Words = std::vector<std::string>;

struct Folder {
  Folder() { std::ofstream(temp.file("net.yaml")) << kDigitsNet; }
  std::string file(const std::string& name) const { return temp.file(name); }
  TempDir temp;
};

Words joined(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The command line of `ranks` processes; 1: without mpirun.
Words train_on(int ranks, const Words& words) {
  Words line;
  if (ranks > 1) line = mpirun(ranks);
  return joined(joined(line, {build_path("bin/bitgrad"), "train"}), words);
}

ProcessResult train(const Folder& folder, int ranks, const Words& words) {
  return run_program(train_on(ranks, words), {}, folder.file(""));
}

ProcessResult evaluate(const Folder& folder, int ranks, const Words& words) {
  Words line = train_on(ranks, words);
  *std::find(line.begin(), line.end(), "train") = "eval";
  return run_program(line, {}, folder.file(""));
}

// The hash of the state at the end, and what metrics.jsonl tells, without what depends on the clock.
std::string result_of(const std::string& run) {
  const std::string log = slurp(run + "/train.log");
  const size_t at = log.rfind("ended at step ");
  std::string text = at == std::string::npos ? "no end" : log.substr(at, log.find('\n', at) - at) + '\n';
  std::istringstream lines(slurp(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json j = Json::parse(line);
    for (const char* key : {"samples_per_s", "tokens_per_s", "gmacs_per_s", "slowest_rank", "wait"}) j.erase(key);
    text += j.dump() + '\n';
  }
  return text;
}

// The ranks: MPICH's launcher has a process between.
std::vector<int> processes_below(int launcher) {
  std::vector<int> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(launcher) + "/task")) {
    std::istringstream children(slurp(task.path().string() + "/children"));
    for (int id = 0; children >> id;) {
      const bool rank = slurp("/proc/" + std::to_string(id) + "/comm") == "bitgrad\n";
      const std::vector<int> more = rank ? std::vector{id} : processes_below(id);
      found.insert(found.end(), more.begin(), more.end());
    }
  }
  return found;
}

const Words kShared = {"net.yaml",         "quant.recipe=w4a4", "batch.micro=5",   "batch.sum=tree",
                       "device.threads=1", "log.every=7 steps", "log.report=false"};

}  // namespace

TEST_CASE("processes and threads train the run of one rank, and it is resumed with any number of them") {
  const Folder folder;
  REQUIRE(train(folder, 1, joined(kShared, {"quant.observer_update=window", "--out", "one"})).code == 0);
  const std::string one = result_of(folder.file("one"));
  CHECK(contains(one, "ended at step 80, state "));
  for (const int ranks : {2, 4}) {
    const std::string name = std::to_string(ranks) + " processes";
    const ProcessResult run = train(folder, ranks, joined(kShared, {"--out", name}));
    INFO(run.out << run.err);
    CHECK(run.code == 0);
    CHECK(result_of(folder.file(name)) == one);
    CHECK(contains(slurp(folder.file(name + "/metrics.jsonl")), "\"slowest_rank\":"));
  }
  CHECK(!contains(slurp(folder.file("one/metrics.jsonl")), "\"slowest_rank\":"));
  CHECK(train(folder, 1, joined(kShared, {"--ranks", "4", "--out", "4 threads"})).code == 0);
  CHECK(result_of(folder.file("4 threads")) == one);

  REQUIRE(train(folder, 4, joined(kShared, {"train.stop=1 epochs", "--out", "parts"})).code == 0);
  REQUIRE(train(folder, 1, {"--resume", "parts", "train.stop=2 epochs"}).code == 0);
  const ProcessResult last = train(folder, 2, {"--resume", "parts", "train.stop=4 epochs"});
  INFO(last.out << last.err);
  CHECK(last.code == 0);
  CHECK(result_of(folder.file("parts")).substr(0, 110) == one.substr(0, 110));
  const ProcessResult again = train(folder, 2, {"--resume", "parts"});
  CHECK(again.code == 0);
  CHECK(contains(again.out, "this run is finished"));
}

TEST_CASE("a step of one microbatch is split among the processes, and --resume auto begins and goes on") {
  const Folder folder;
  const Words words{"net.yaml", "--out", "run", "--resume", "auto", "log.report=false"};
  const ProcessResult first = train(folder, 2, joined(words, {"train.stop=1 epochs"}));
  INFO(first.out << first.err);
  CHECK(first.code == 0);
  CHECK(contains(first.err + first.out, "a step of 20 samples is split among 2 ranks: batch.micro: 10"));
  const ProcessResult second = train(folder, 2, joined(words, {"train.stop=2 epochs"}));
  CHECK(second.code == 0);
  CHECK(contains(second.out + second.err, "resuming run with its own configuration: net.yaml is not read"));
  CHECK(contains(result_of(folder.file("run")), "ended at step 40, "));
  for (const char* name : {"last", "best"})
    std::filesystem::remove(folder.file(bitgrad::concat("run/", name, ".safetensors")));
  const ProcessResult anew = train(folder, 1, joined(words, {"train.stop=1 epochs", "--use-data"}));
  CHECK(anew.code == 0);
  CHECK(contains(anew.err + anew.out, "run holds no checkpoint: it is now run.unsaved-1, and the run begins anew"));
  CHECK(std::filesystem::exists(folder.file("run.unsaved-1/metrics.jsonl")));
}

TEST_CASE("SIGTERM of one process stops all at one step, saved") {
  const Folder folder;
  Process run(train_on(2, joined(kShared, {"train.stop=100000 epochs", "--out", "run"})), {}, folder.file(""));
  while (!std::filesystem::exists(folder.file("run/metrics.jsonl")) ||
         slurp(folder.file("run/metrics.jsonl")).find("\"train\"") == std::string::npos) {
    if (run.ended()) FAIL(run.wait().err);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::vector<int> processes = processes_below(run.id());
  REQUIRE(processes.size() == 2);
  ::kill(processes[1], SIGTERM);
  const ProcessResult end = run.wait();
  INFO(end.out << end.err);
  CHECK(end.code == 75);
  CHECK(contains(end.out, "stopped and saved at step "));
  CHECK(Json::parse(slurp(folder.file("run/summary.json"))).at("status") == "interrupted");
}

TEST_CASE("what one process cannot do ends all with its code") {
  const Folder folder;
  const ProcessResult config = train(folder, 2, {"missing.yaml"});
  INFO(config.out << config.err);
  CHECK(config.code == 2);
  const ProcessResult batch = train(folder, 2, joined(kShared, {"batch={global: 24, micro: 8}", "--out", "odd"}));
  INFO(batch.out << batch.err);
  CHECK(batch.code == 2);
  CHECK(contains(batch.err, "[ranks] 2 ranks share the microbatches of a step"));
  const ProcessResult other = run_program(joined(mpirun(2), {build_path("bin/bitgrad"), "inspect", "run"}));
  CHECK(other.code == 2);
  CHECK(contains(other.err,
                 bitgrad::concat("[inspect] runs as one process: a launcher has started 2 (", kRankVariable, ')')));
  const ProcessResult apart = run_program(
      joined(joined(mpirun(2), with_variable("BITGRAD_RANKS", "off")), {build_path("bin/bitgrad"), "recipes"}));
  CHECK(apart.code == 0);
  const ProcessResult both = train(folder, 2, joined(kShared, {"--ranks", "2", "--out", "both"}));
  CHECK(both.code == 2);
  CHECK(contains(both.err, "a launcher has started 2 processes, each of which is one rank. Leave --ranks out"));
  CHECK(batch.err.find("[ranks] 2 ranks share") == batch.err.rfind("[ranks] 2 ranks share"));  // said once
  REQUIRE(train(folder, 1, joined(kShared, {"train.stop=1 epochs", "--out", "run"})).code == 0);
  const Words rank{build_path("bin/bitgrad"), "train", "--resume", "run", "train.stop=2 epochs"};
  const Words second = joined({":", "-n", "1"}, with_variable("TMPDIR", "/missing"));
  const ProcessResult place = run_program(joined(joined(joined(mpirun(1), rank), second), rank), {}, folder.file(""));
  INFO(place.out << place.err);
  CHECK(place.code != 0);
  CHECK(contains(place.err, "error: [ranks] /missing/"));
  CHECK(contains(place.err, "[ranks] rank 1 ended: [ranks] /missing/"));
}

TEST_CASE("ranks share the batches of an evaluation, and print what one process prints") {
  const Folder folder;
  REQUIRE(train(folder, 1, joined(kShared, {"train.stop=1 epochs", "train.eval.batch=30", "--out", "run"})).code == 0);
  const auto eval = [&](int ranks, const Words& words) { return evaluate(folder, ranks, words); };
  const ProcessResult one = eval(1, {"run", "--json"}), three = eval(3, {"run", "--json"});
  INFO(three.out << three.err);
  REQUIRE(one.code == 0);
  CHECK(three.code == 0);
  CHECK(three.out == one.out);
  const auto once = [](const std::string& text, const std::string& part) {
    return contains(text, part) && text.find(part) == text.rfind(part);
  };
  const Words convert{build_path("bin/bitgrad"), "convert", "run", "-o", "net.safetensors"};
  REQUIRE(run_program(convert, {}, folder.file("")).code == 0);
  const ProcessResult converted = eval(1, {"net.safetensors", "--json"});
  REQUIRE(converted.code == 0);
  CHECK(eval(3, {"net.safetensors", "--json"}).out == converted.out);
  const ProcessResult missing = eval(2, {"nowhere"});
  INFO(missing.out << missing.err);
  CHECK(missing.code == eval(1, {"nowhere"}).code);
  CHECK(missing.out.empty());
  CHECK(once(missing.err, "nowhere"));
  // Rank 1 has the data, and not the run: rank 0 sends it.
  const auto apart = [&](const Words& second) {
    const Words rank{build_path("bin/bitgrad"), "eval"};
    return run_program(
        joined(joined(joined(joined(mpirun(1), rank), {"run", "--json"}), {":", "-n", "1"}), joined(rank, second)), {},
        folder.file(""));
  };
  CHECK(apart({"nowhere", "--json"}).out == one.out);
  const ProcessResult other = apart({"run", "data.test.size=150"});
  INFO(other.out << other.err);
  CHECK(other.code == 2);
  CHECK(once(other.err, "[ranks] ranks 0 and 1 differ in configuration: "));
}

TEST_CASE("ranks share the windows of a text, and print what one process prints") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 500; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 23);
  std::ofstream(folder.file("a.txt")) << text;
  std::ofstream(folder.file("b.txt")) << text.substr(211, 150);
  std::ofstream(folder.file("text.yaml")) << R"(version: 1
data:
  tokenizer: bytes
  train: {format: tokens, file: a.txt, context: 8, order: random}
  test: {format: tokens, file: b.txt, context: 8}
model: {layers: [{embedding: {num: 256, dim: 8, flat: false}}, {linear: {out: 256}}]}
batch: {global: 4}
optim: {name: adamw, lr: 0.01}
device: {threads: 1}
train: {stop: 5 steps, eval: {batch: 3}}
)";
  REQUIRE(train(folder, 1, {"text.yaml", "data.root=.", "--out", "run"}).code == 0);
  for (const Words& windows : {Words{}, Words{"--stride", "3"}}) {
    const Words words = joined({"run", "--text", "b.txt", "--json"}, windows);
    const ProcessResult one = evaluate(folder, 1, words), two = evaluate(folder, 2, words);
    INFO(one.err << two.out << two.err);
    REQUIRE(one.code == 0);
    CHECK(two.out == one.out);
  }
}

TEST_CASE("processes and threads with a device each train and evaluate the run of one on the CPU, in strict") {
  const std::string program = build_path("bin/emulated/bin/bitgrad");
  if (!std::filesystem::exists(program)) {
    WARN("skipped: " << program << " is not built");
    return;
  }
  const Folder folder;
  const Words words = joined(kShared, {"run.bits=strict", "train.stop=8 steps", "train.eval={every: 8 steps}"});
  REQUIRE(train(folder, 1, joined(words, {"quant.observer_update=window", "--out", "one"})).code == 0);
  const std::string one = result_of(folder.file("one"));
  CHECK(contains(one, "ended at step 8, state "));
  const auto emulated = [&](const std::string& command, const Words& arguments, int ranks = 2,
                            const std::string& devices = "2") {
    Words line = train_on(ranks, arguments);
    *std::find(line.begin(), line.end(), build_path("bin/bitgrad")) = program;
    *std::find(line.begin(), line.end(), "train") = command;
    return run_program(
        line, {{"BITGRAD_MPI_MODULE", build_path("bin/bitgrad_mpi.so")}, {"BITGRAD_EMULATION_DEVICES", devices}},
        folder.file(""));
  };
  const ProcessResult devices = emulated("train", joined(words, {"device.kind=cuda", "--out", "devices"}));
  INFO(devices.out << devices.err);
  CHECK(devices.code == 0);
  CHECK(result_of(folder.file("devices")).substr(0, 90) == one.substr(0, 90));
  CHECK(contains(slurp(folder.file("devices/train.log")), "emulated device"));
  const ProcessResult eval = emulated("eval", {"devices", "--json"});
  INFO(eval.out << eval.err);
  CHECK(eval.out ==
        run_program({build_path("bin/bitgrad"), "eval", "devices", "--json", "device.kind=cpu"}, {}, folder.file(""))
            .out);
  const Words on_devices = joined(words, {"device.kind=cuda", "--out"});
  const ProcessResult threads = emulated("train", joined(on_devices, {"threads", "--ranks", "2"}), 1);
  INFO(threads.out << threads.err);
  CHECK(threads.code == 0);
  CHECK(result_of(folder.file("threads")).substr(0, 90) == one.substr(0, 90));
  const ProcessResult beyond = emulated("train", joined(on_devices, {"beyond", "--ranks", "2", "device.index=1"}), 1);
  CHECK(beyond.code == 2);
  CHECK(contains(beyond.err, "[train] --ranks: got 2, expected at most 1, the number of devices from cuda:1 on"));
  const ProcessResult same = emulated("train", joined(on_devices, {"same"}), 2, "1");
  CHECK(same.code == 0);
  CHECK(contains(same.err, "[ranks] ranks 0 and 1 have the same device (emulated device 0, compute capability"));
}
