// The program as its users run it: arguments in, exit code, text and files out.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/failing_calls.h"
#include "support/paths.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

const std::string kDigits = source_path("configs/digits_mlp_w1a1.yaml");

// A few steps of the default configuration: 20 a epoch.
std::vector<std::string> small_train(const std::string& out, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"train",
                                     kDigits,
                                     "data.train.size=200",
                                     "data.test.size=90",
                                     "batch.global=10",
                                     "batch.micro=10",
                                     "model.layers.1.linear.out=32",
                                     "model.layers.4.linear.out=32",
                                     "train.stop=2 epochs",
                                     "checkpoint.every=1 epochs",
                                     "log.every=10 steps",
                                     "--out",
                                     out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Json json_file(const std::string& path) { return Json::parse(slurp(path)); }
std::vector<Json> json_lines(const std::string& path) {
  std::vector<Json> lines;
  std::istringstream in(slurp(path));
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}
std::string hash_in(const std::string& folder) { return json_file(folder + "/summary.json").at("state_hash").text(); }

// 400 steps with a checkpoint each tenth.
std::vector<std::string> long_train(const std::string& out) {
  return small_train(out, {"train.stop=400 steps", "checkpoint.every=10 steps", "log.every=1 steps"});
}

}  // namespace

TEST_CASE("train writes a whole run folder, and eval reads the packed weights back") {
  TempDir temp;
  const std::string folder = temp.file("run");
  const ProcessResult r = cli(small_train(folder));
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "accuracy on the packed weights"));
  CHECK(contains(r.out, "memory at the peak"));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"best.safetensors", "config.source.yaml", "config.yaml", "evaluation.json",
                                          "last.safetensors", "metrics.jsonl", "report.html", "results.csv", "run.json",
                                          "summary.json", "train.log"});

  const Json summary = json_file(folder + "/summary.json");
  CHECK(summary.at("status") == "finished");
  CHECK(summary.at("epochs") == 2);
  CHECK(summary.at("steps") == 40);
  CHECK(summary.at("memory").at("total_peak") > 0);
  std::map<std::string, int64_t> events;
  for (const Json& line : json_lines(folder + "/metrics.jsonl")) ++events[line.at("event").text()];
  CHECK(events == std::map<std::string, int64_t>{{"eval", 2}, {"train", 4}, {"quant", 2 * 6}});

  for (const std::string& target : {folder, folder + "/last.safetensors"}) {
    const ProcessResult e = cli({"eval", target, "--json"});
    INFO(e.err);
    REQUIRE(e.code == 0);
    const Json j = Json::parse(e.out);
    CHECK(j.size() == 7);
    CHECK(j.at("split") == "test");
    CHECK(j.at("file") == folder + "/last.safetensors");
    CHECK(j.at("step") == 40);
    CHECK(j.at("top5_accuracy") >= j.at("accuracy").get<double>());
    CHECK(j.at("accuracy") == summary.at("last_accuracy"));
    CHECK(j.at("samples") == 90);
    CHECK(j.at("loss") > 0);
  }
  // Evaluation needs no training data.
  const ProcessResult elsewhere = cli({"eval", folder, "--json", "data.train={format: idx, images: no, labels: none}"});
  INFO(elsewhere.err);
  CHECK(elsewhere.code == 0);
  const ProcessResult best = cli({"eval", folder + "/best.safetensors", "--json"});
  CHECK(Json::parse(best.out).at("accuracy") == summary.at("best_accuracy"));
  const ProcessResult text = cli({"eval", folder});
  CHECK(text.code == 0);
  CHECK(contains(text.out, "samples 90"));
  const ProcessResult fewer = cli({"eval", folder, "--json", "data.test.size=50"});
  CHECK(Json::parse(fewer.out).at("samples") == 50);
}

TEST_CASE("the best model is named by its step where the length of a run is given in steps") {
  TempDir temp;
  const std::string folder = temp.file("run");
  const ProcessResult r =
      cli(small_train(folder, {"train.stop=40 steps", "train.eval.every=8 steps", "checkpoint.every=40 steps"}));
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  int64_t best = 0;
  double most = -1;
  for (const Json& line : json_lines(folder + "/metrics.jsonl"))
    if (line.at("event") == "eval" && line.at("accuracy").get<double>() > most) {
      most = line.at("accuracy").get<double>();
      best = line.at("step").get<int64_t>();
    }
  REQUIRE(best > 0);
  CHECK(json_file(folder + "/summary.json").at("best_step") == best);
  CHECK(json_file(folder + "/summary.json").at("evaluated") == Json{{"split", "test"}, {"samples", 90}, {"step", 40}});
  const std::string place = " % at step " + std::to_string(best);
  CHECK(contains(r.out, place + ")"));
  CHECK(contains(r.out, "\nthe best model was chosen on these test samples: set data.valid"));
  const ProcessResult again = cli({"train", "--resume", folder});  // counters are those of the file
  CHECK(contains(again.out, place + ")"));
  CHECK(contains(again.out, "this run is finished: train.stop (40 steps) is reached"));
  CHECK(contains(again.out, "to train longer: bitgrad train --resume " + folder + " train.stop='N epochs'\n"));
  CHECK(contains(cli({"inspect", folder}).out, place));
  CHECK(Json::parse(cli({"inspect", folder, "--json"}).out).at("best_step") == best);
  const ProcessResult epochs = cli(small_train(temp.file("epochs")));
  CHECK(contains(epochs.out, " % at epoch "));
}

TEST_CASE("a run without data.test ends with a reported evaluation of a part of its training samples") {
  TempDir temp;
  const std::string folder = temp.file("run");
  const ProcessResult r = cli(small_train(folder, {"~data.test", "~train.eval"}));
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  // 400 samples were trained on: a sixteenth, in microbatches of 10.
  CHECK(contains(r.out, " of 30 training samples, the first ones (data.test is not set)\n"));
  const Json summary = json_file(folder + "/summary.json");
  CHECK(summary.at("evaluated") == Json{{"split", "train"}, {"samples", 30}, {"step", 40}});
  const ProcessResult e = cli({"eval", folder, "--json", "data.train.limit=30"});
  INFO(e.err);
  CHECK(Json::parse(e.out).at("accuracy") == summary.at("metrics").at("accuracy"));
  CHECK(summary.at("best_value").is_null());
}

TEST_CASE("a test set of fewer classes than the training set is trained with and evaluated") {
  TempDir temp;
  const auto big = [](uint32_t x) {
    return std::string{static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8),
                       static_cast<char>(x)};
  };
  std::string labels = big(0x801) + big(20);
  for (int i = 0; i < 20; ++i) labels += static_cast<char>(i % 5);
  std::ofstream(temp.file("images"), std::ios::binary)
      << big(0x803) + big(20) + big(28) + big(28) + std::string(20 * 784, '\x40');
  std::ofstream(temp.file("labels"), std::ios::binary) << labels;
  const std::string test =
      "data.test={format: idx, images: " + temp.file("images") + ", labels: " + temp.file("labels") + ", classes: 5}";
  std::vector<std::string> arguments = small_train(temp.file("run"), {test, "train.stop=2 steps"});
  arguments.erase(std::find(arguments.begin(), arguments.end(), "data.test.size=90"));
  const ProcessResult trained = cli(arguments);
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  const ProcessResult evaluated = cli({"eval", temp.file("run"), "--json"});
  INFO(evaluated.err);
  REQUIRE(evaluated.code == 0);
  CHECK(Json::parse(evaluated.out).at("samples") == 20);
}

TEST_CASE("a run is never overwritten") {
  TempDir temp;
  std::ofstream(temp.file("precious.txt")) << "mine";
  const ProcessResult r = cli(small_train(temp.path()));
  CHECK(r.code == 2);
  CHECK(contains(r.err, "not empty"));
  CHECK(slurp(temp.file("precious.txt")) == "mine");
  CHECK(std::distance(std::filesystem::directory_iterator(temp.path()), {}) == 1);
}

TEST_CASE("wrong arguments on the command line are usage errors with the right form") {
  const auto check = [](const std::vector<std::string>& arguments, const std::string& text) {
    const ProcessResult r = cli(arguments);
    INFO(r.err);
    CHECK(r.code == 2);
    CHECK(r.out.empty());
    CHECK(contains(r.err, text));
    CHECK(contains(r.err, "error: "));
  };
  check({"trian"}, "train");
  check({"trian", kDigits}, "trian");
  check({}, "--help");
  check({"train"}, "configuration");
  check({"eval"}, "target");
  check({"train", kDigits, "--outt", "x"}, "--outt");
  check({"train", kDigits, "--resume", "x"}, "--resume");
  check({"train", "--resume", "x", "--out", "y"}, "--out");
  check({"version", "extra"}, "extra");
}

TEST_CASE("a bad override is named by its place on the command line and starts nothing") {
  TempDir temp;
  const std::string folder = temp.file("run");
  const auto check = [&](std::vector<std::string> arguments, const std::string& place) {
    const ProcessResult r = cli(arguments);
    INFO(r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, "command line, argument " + place));
    CHECK_FALSE(std::filesystem::exists(folder));
  };
  check({"train", kDigits, "optim.lrr=0.1", "--out", folder}, "1");
  check({"train", kDigits, "--out", folder, "optim.lr=0.1", "run.seed=-1"}, "2");
  check({"train", kDigits, "optim.lr=fast", "--out", folder}, "1");
}

TEST_CASE("a configuration that cannot be read is a usage error") {
  TempDir temp;
  CHECK(cli({"train", temp.file("absent.yaml")}).code == 2);
  std::ofstream(temp.file("bad.yaml")) << "version: 1\nrum: {name: x}\n";
  const ProcessResult r = cli({"train", temp.file("bad.yaml"), "--out", temp.file("run")});
  CHECK(r.code == 2);
  CHECK(contains(r.err, "bad.yaml:2:1"));
  CHECK(contains(r.err, "run"));
  CHECK_FALSE(std::filesystem::exists(temp.file("run")));
}

TEST_CASE("a missing data file is exit 3, names data.root and makes no folder") {
  TempDir temp;
  const ProcessResult r =
      cli({"train", source_path("configs/mnist_tfc_w1a1.yaml"), "data.root=" + temp.path(), "--out", temp.file("run")});
  INFO(r.err);
  CHECK(r.code == 3);
  CHECK(contains(r.err, "data.root"));
  CHECK(contains(r.err, "mnist/train-"));
  CHECK_FALSE(std::filesystem::exists(temp.file("run")));
}

TEST_CASE("interrupted, terminated and killed runs resume to the same state as an uninterrupted run") {
  TempDir temp;
  const std::string counts = temp.file("counts");
  REQUIRE(cli(long_train(temp.file("uninterrupted")), with_failing_calls({{"FAULT_COUNT", counts}})).code == 0);
  const long calls = counts_in(counts).files;  // more than 400 of them at a step
  const std::string hash = hash_in(temp.file("uninterrupted"));
  const auto stopped = [&](const std::string& name, int signal, int expected, long call) {
    const std::string folder = temp.file(name);
    const ProcessResult r =
        cli(long_train(folder),
            with_failing_calls({{"FAULT_KILL", std::to_string(call)}, {"FAULT_SIGNAL", std::to_string(signal)}}));
    INFO(name << ": " << r.out << r.err);
    REQUIRE(r.code == expected);
    if (signal != SIGKILL) {
      CHECK(contains(r.out, "bitgrad train --resume " + folder));
      CHECK(json_file(folder + "/summary.json").at("status") == "interrupted");
      CHECK(hash_in(folder) != hash);
    }
    const ProcessResult again = cli({"train", "--resume", folder});
    INFO(again.out << again.err);
    REQUIRE(again.code == 0);
    CHECK(hash_in(folder) == hash);
    std::vector<int64_t> steps;
    for (const Json& line : json_lines(folder + "/metrics.jsonl"))
      if (line.at("event") == "train") steps.push_back(line.at("step").get<int64_t>());
    REQUIRE(steps.size() == 400);
    for (size_t i = 0; i < steps.size(); ++i) REQUIRE(steps[i] == static_cast<int64_t>(i) + 1);
    CHECK(json_file(folder + "/summary.json").at("best_accuracy") ==
          json_file(temp.file("uninterrupted/summary.json")).at("best_accuracy"));
  };
  stopped("int", SIGINT, 130, calls / 7);
  stopped("term", SIGTERM, 75, calls / 3);
  stopped("hup", SIGHUP, 75, calls / 5);
  stopped("kill", SIGKILL, 128 + SIGKILL, calls / 2);
}

TEST_CASE("resume names what is wrong with a folder") {
  TempDir temp;
  const ProcessResult none = cli({"train", "--resume", temp.file("absent")});
  CHECK(none.code == 3);
  CHECK(contains(none.err, "not a run folder"));
  REQUIRE(cli(small_train(temp.file("run"))).code == 0);
  std::filesystem::remove(temp.file("run/last.safetensors"));
  const ProcessResult best = cli({"train", "--resume", temp.file("run")});
  INFO(best.err);
  CHECK(best.code == 0);
  CHECK(contains(best.err, "has no last.safetensors: best.safetensors is used"));
  for (const char* name : {"run/last.safetensors", "run/best.safetensors"}) std::filesystem::remove(temp.file(name));
  const ProcessResult gone = cli({"train", "--resume", temp.file("run")});
  CHECK(gone.code == 3);
  CHECK(contains(gone.err, "last.safetensors"));
}

TEST_CASE("a damaged checkpoint is one clear error with exit code 3") {
  TempDir temp;
  const std::string folder = temp.file("run"), path = folder + "/last.safetensors";
  REQUIRE(cli(small_train(folder)).code == 0);
  const std::string full = slurp(path);
  const auto put = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  std::string flipped = full;
  flipped[full.size() / 2] = static_cast<char>(flipped[full.size() / 2] ^ 4);
  for (const std::string& bytes : {full.substr(0, full.size() / 2), full.substr(0, 4), std::string(), flipped,
                                   std::string("PK\3\4 not a checkpoint")}) {
    put(bytes);
    for (const auto& arguments :
         {std::vector<std::string>{"eval", folder}, {"eval", path, "--json"}, {"train", "--resume", folder}}) {
      const ProcessResult r = cli(arguments);
      INFO(bytes.size() << " bytes: " << r.err);
      CHECK(r.code == 3);
      CHECK(contains(r.err, path));
      CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
      CHECK(r.out.empty());
    }
  }
  put(full);
  CHECK(cli({"eval", folder}).code == 0);
  CHECK(cli({"eval", temp.file("absent.safetensors")}).code == 3);
}

TEST_CASE("kernels, version and help print what is asked for") {
  const ProcessResult kernels = cli({"kernels"});
  CHECK(kernels.code == 0);
  for (const char* family : {"gemm", "quantize", "pack", "reduce", "elementwise"}) CHECK(contains(kernels.out, family));
  const ProcessResult all = cli({"kernels", "--all"}), scalar = cli({"kernels"}, {{"BITGRAD_ISA", "scalar"}});
  CHECK(all.out.size() >= kernels.out.size());
  CHECK(scalar.code == 0);
  CHECK_FALSE(contains(scalar.out, "avx"));
  CHECK(contains(all.out, "avx512"));
  CHECK(contains(kernels.out, "\ndevices\ncpu "));
  const size_t cuda = kernels.out.find("\ncuda");
  REQUIRE(cuda != std::string::npos);
  const std::string devices = kernels.out.substr(cuda);
  CHECK((contains(devices, "none: ") || contains(devices, "cuBLASLt")));
  const ProcessResult version = cli({"version"});
  CHECK(version.code == 0);
  CHECK(contains(version.out, "bitgrad 0.1.0"));
  const ProcessResult help = cli({"--help"});
  CHECK(help.code == 0);
  for (const char* command : {"train", "eval", "kernels", "version"}) CHECK(contains(help.out, command));
  CHECK(cli({"train", "--help"}).code == 0);
}

TEST_CASE("output that cannot be written, or a file beyond the limit of sizes, is exit 4 with a reason") {
  TempDir temp;
  if (::access("/dev/full", W_OK) == 0) {
    const ProcessResult full = run_program({"sh", "-c", kProgram + " version > /dev/full"});
    CHECK(full.code == 4);
    CHECK(contains(full.err, "standard output cannot be written"));
  }
  const std::string config = source_path("configs/digits_mlp_w1a1.yaml");
  const ProcessResult limited = run_program(
      {"sh", "-c",
       "ulimit -f 16 && " + kProgram + " train " + config + " 'train.stop=1 steps' --out " + temp.file("run")});
  CHECK(limited.code == 4);
  CHECK(contains(limited.err, "File too large"));
}

TEST_CASE("kernels explains a product row by row") {
  const ProcessResult r = cli({"kernels", "--shape", "64,256,512", "--dtypes", "int8,int4", "--all"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "int8 [m,k] x int4 [n,k] -> fp32, m 64, n 256, k 512, fast, costs as shipped"));
  CHECK(contains(r.out, "chosen"));
  CHECK(contains(r.out, "operands not supported"));
  const ProcessResult strict =
      cli({"kernels", "--shape", "64,256,512", "--dtypes", "fp32,fp32", "--b-k-major", "--strict"});
  CHECK(contains(strict.out, "fp32 [k,n]"));
  CHECK(contains(strict.out, "summation order not allowed in strict: free"));
  const ProcessResult scalar =
      cli({"kernels", "--shape", "64,256,512", "--dtypes", "bint1,bint1"}, {{"BITGRAD_ISA", "scalar"}});
  CHECK(contains(scalar.out, "needs instructions that are not enabled: avx2"));
  for (const auto& bad : {std::vector<std::string>{"kernels", "--shape", "64,256", "--dtypes", "int8,int4"},
                          {"kernels", "--shape", "64,256,512"},
                          {"kernels", "--dtypes", "int8,int4"},
                          {"kernels", "--shape", "1,-2,3", "--dtypes", "int8,int4"},
                          {"kernels", "--shape", "99999999999999999999,5,5", "--dtypes", "int8,int4"},
                          {"kernels", "--shape", "1,2,3", "--dtypes", "int8,int9"},
                          {"kernels", "--shape", "1,2,3", "--dtypes", "int8,int8", "--calibrate"}}) {
    const ProcessResult refused = cli(bad);
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(refused.err.size() > 10);
  }
}

TEST_CASE("measured costs are kept in a file, used, and refused when damaged") {
  TempDir temp;
  const std::string path = temp.file("cache/costs.txt");
  const Process::Environment environment{{"BITGRAD_GEMM_COSTS", path}, {"BITGRAD_ISA", "scalar"}};
  const ProcessResult r = cli({"kernels", "--calibrate"}, environment);
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "written to " + path));
  CHECK(contains(cli({"kernels", "--shape", "8,8,8", "--dtypes", "fp32,fp32"}, environment).out,
                 "measured on this machine"));
  std::ofstream(path) << "bitgrad gemm costs 1\n";
  std::ofstream(path, std::ios::app) << "cpu of another machine\n";
  const ProcessResult other = cli({"kernels", "--shape", "8,8,8", "--dtypes", "fp32,fp32"}, environment);
  CHECK(contains(other.out, "as shipped"));
  CHECK(contains(other.err, "was measured on another machine"));
  CHECK(contains(cli({"kernels", "--shape", "8,8,8", "--dtypes", "fp32,fp32", "--costs", temp.file("absent")}).err,
                 "no such file"));
  std::ofstream(path) << "junk\n";
  for (const auto& arguments : {std::vector<std::string>{"kernels", "--shape", "8,8,8", "--dtypes", "fp32,fp32"},
                                small_train(temp.file("run"))}) {
    const ProcessResult refused = cli(arguments, environment);
    INFO(refused.err);
    CHECK(refused.code == 3);
    CHECK(contains(refused.err, path + ":1"));
  }
}

TEST_CASE("a wrong BITGRAD_ISA is a usage error that lists the levels") {
  TempDir temp;
  for (const auto& arguments : {std::vector<std::string>{"kernels"}, {"version"}, small_train(temp.file("run"))}) {
    const ProcessResult r = cli(arguments, {{"BITGRAD_ISA", "bogus"}});
    INFO(r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, "avx2"));
  }
  CHECK_FALSE(std::filesystem::exists(temp.file("run")));
}

TEST_CASE("BITGRAD_ISA and threads change no bit of a strict run") {
  TempDir temp;
  const auto hash = [&](const std::string& isa, const std::string& threads) {
    const std::string folder = temp.file(isa + threads);
    const ProcessResult r =
        cli(small_train(folder, {"run.bits=strict", "device.threads=" + threads, "train.stop=20 steps"}),
            {{"BITGRAD_ISA", isa}});
    INFO(r.err);
    REQUIRE(r.code == 0);
    return hash_in(folder);
  };
  const std::string scalar = hash("scalar", "1");
  CHECK(hash("avx2", "2") == scalar);
  CHECK(hash("avx512", "3") == scalar);
}

TEST_CASE("a number that is not finite ends the run with exit code 5, names a tensor and saves nothing") {
  TempDir temp;
  // Each step multiplies the error by about lr * |x|^2, so the numbers overflow within a few steps.
  const ProcessResult r = cli({"train", source_path("configs/digits_linear_fp32.yaml"), "data.train.size=100",
                               "data.test.size=10", "batch.global=10", "batch.micro=10", "loss=squared_hinge",
                               "schedule={name: constant}", "optim={name: sgd, lr: 1000}", "data.affine=[1000,0]",
                               "train.stop=50 epochs", "checkpoint.every=50 epochs", "--out", temp.file("run")});
  INFO(r.out << r.err);
  CHECK(r.code == 5);
  CHECK(contains(r.err, "layers.0"));
  CHECK(json_file(temp.file("run/summary.json")).at("status") == "failed");
  CHECK(contains(json_file(temp.file("run/summary.json")).at("error").text(), "layers.0"));
  CHECK_FALSE(std::filesystem::exists(temp.file("run/last.safetensors")));
}

TEST_CASE("a device that is absent ends every command that computes with exit code 6, and nothing is written") {
  TempDir temp;
  const ProcessResult r = cli(small_train(temp.file("run"), {"device.kind=cuda", "device.index=255"}));
  INFO(r.err);
  CHECK(r.code == 6);
  CHECK(contains(r.err, "cuda:255 is absent"));
  CHECK_FALSE(std::filesystem::exists(temp.file("run")));

  const std::string trained = temp.file("trained");
  REQUIRE(cli(small_train(trained, {"train.stop=2 steps"})).code == 0);
  const std::string model = temp.file("model.safetensors");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"eval", trained},
                                                  {"train", "--resume", trained},
                                                  {"sensitivity", trained},
                                                  {"diff", trained, trained},
                                                  {"quantize", trained, "-o", model, "--recipe", "int8wo"}}) {
    std::vector<std::string> words = command;
    words.insert(words.end(), {"device.kind=cuda", "device.index=255"});
    const ProcessResult refused = cli(words);
    INFO(command.front() << ": " << refused.err);
    CHECK(refused.code == 6);
    CHECK(contains(refused.err, "cuda:255 is absent"));
  }
  CHECK_FALSE(std::filesystem::exists(model));
}

TEST_CASE("a run goes on with its own configuration, but for the device") {
  TempDir temp;
  const std::string folder = temp.file("run");
  REQUIRE(cli(small_train(folder, {"train.stop=2 steps"})).code == 0);
  const ProcessResult other = cli({"train", "--resume", folder, "device.threads=1", "optim.lr=0.5"});
  CHECK(other.code == 2);
  CHECK(contains(other.err, "--resume uses the configuration of the run folder: optim.lr: got 0.5, the run has "));
  CHECK(contains(other.err, "Only device.*, data.root, train.stop and train.early_stop may change"));
  const ProcessResult two = cli({"train", "--resume", folder, "optim.lr=0.5", "run.seed=99", "train.stop=9 steps"});
  CHECK(contains(two.err, "run.seed: got 99, the run has "));
  CHECK(contains(two.err, "; optim.lr: got 0.5, the run has "));
  CHECK(cli({"train", "--resume", folder, "device.threads=1", "device.kind=cpu"}).code == 0);
}
