// The commands that explain, check, start and compare: what they print, and how they end.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/config/config.h"
#include "bitgrad/nn/prepare.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const char* const kDigits = R"(version: 1
data: {train: {format: digits, size: 300}, test: {format: digits, size: 100}}
model: {layers: [{linear: {out: 16}}, {relu: {}}, {linear: {out: 10}}]}
quant: {weights: {dtype: int4}}
batch: {global: 50}
optim: {name: adam, lr: 0.01}
train: {stop: 2 epochs}
)";

struct Said {
  int code;
  std::string output;
};
Said said(const std::vector<std::string>& arguments) {
  const ProcessResult result = cli(arguments);
  return {result.code, result.out + result.err};
}

std::string written(const TempDir& dir, const std::string& name, const std::string& text) {
  std::string path = dir.file(name);
  std::ofstream(path) << text;
  return path;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int64_t peak_of(const std::string& run) {
  std::ifstream in(run + "/summary.json");
  std::stringstream text;
  text << in.rdbuf();
  return Json::parse(text.str()).at("memory").at("total_peak").get<int64_t>();
}

std::vector<std::string> words_of_help(const std::string& help) {
  std::istringstream lines(help.substr(help.find('\n') + 1));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line) && !line.empty();)
    if (line[0] != ' ') names.push_back(line.substr(0, line.find(' ')));  // others continue the line before
  return names;
}

}  // namespace

TEST_CASE("check describes a run, and its peak of memory is that of the run") {
  const TempDir dir;
  const std::string config = written(dir, "a.yaml", kDigits);
  // How many batches have been read ahead at the peak is a matter of time (157 kB each): the model is large beside
  // them.
  const std::string wide = "model.layers.0.linear.out=4096";
  const std::map<std::string, std::vector<std::string>> cases{
      {"plain", {}},
      {"accumulated", {"batch={global: 60, micro: 20}"}},
      {"phases", {"quant={phases: [{from: 0 steps, quantization: off}, {from: 1 epochs, recipe: w4a4}]}"}},
      {"untested", {"~data.test"}},
  };
  for (const auto& [name, overrides] : cases) {
    INFO(name);
    std::vector<std::string> check{"check", config, wide, "device.threads=2"},
        train{"train", config, wide, "device.threads=2"};
    check.insert(check.end(), overrides.begin(), overrides.end());
    train.insert(train.end(), overrides.begin(), overrides.end());
    train.insert(train.end(), {"--quiet", "--out", dir.file(name)});
    const Said checked = said(check);
    REQUIRE(checked.code == 0);
    CHECK(has(checked.output, "data.train  digits (train): 300 samples of [28,28]"));
    CHECK(has(checked.output, "3,256,330 parameters"));
    REQUIRE(said(train).code == 0);
    const std::string line = checked.output.substr(checked.output.find("memory at the peak: "));
    double megabytes = 0;
    REQUIRE(std::sscanf(line.c_str(), "memory at the peak: %lf MB", &megabytes) == 1);
    const auto peak = static_cast<double>(peak_of(dir.file(name))) / 1e6;
    CHECK(std::abs(megabytes - peak) < 0.03 * peak);
  }
  CHECK(has(said({"check", config}).output, "12 optimizer steps of 50 samples, 6 an epoch"));
  // Nothing is written.
  CHECK_FALSE(std::filesystem::exists("runs/a"));
}

TEST_CASE("check reads several configurations, prints one table and ends with the first error's code") {
  const TempDir dir;
  const std::string good = written(dir, "good.yaml", kDigits), bad = written(dir, "bad.yaml", "version: 1\n");
  const std::string far = written(dir, "far.yaml", std::string(kDigits) + "log: {every: 5 steps}\n");
  const Said all = said({"check", "-q", far, bad, good});
  CHECK(all.code == 2);
  CHECK(has(all.output, "bad.yaml:1:1: error: missing required key 'data.train'"));
  CHECK(has(all.output, "memory at the peak"));
  CHECK(has(all.output, "12,730"));
  const Said absent = said({"check", good, "data.train={format: idx, images: no, labels: no}", "~data.test"});
  CHECK(absent.code == 3);
  CHECK(has(absent.output, "good.yaml: error: "));
  CHECK(said({"check", "optim.lr=1"}).code == 2);
  CHECK_FALSE(has(said({"check", good, "--no-memory"}).output, "memory at the peak:"));
}

TEST_CASE("check predicts what several ranks send, and refuses a step that they cannot share") {
  const TempDir dir;
  const std::string config = written(dir, "a.yaml", kDigits);
  const std::vector<std::string> words{"check", config, "--no-memory", "--ranks", "4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return said(more);
  };
  const std::string wide = "model.layers.0.linear.out=1024", rows = "quant.weights.granularity=channel";
  const Said two = with({"batch={global: 80, micro: 20}", wide, rows});
  CHECK(two.code == 0);
  CHECK(has(two.output, "  ranks       4: each sends at most "));
  CHECK(has(two.output, " ms at 1 Gbit/s, "));
  CHECK(has(two.output, "masters and moments of a rank between steps: at most "));
  const auto bytes = [&](const std::string& wire) {
    const Said out = with({"batch={global: 80, micro: 20}", wide, rows, wire, "--json"});
    return Json::parse(out.output)[0].at("rank_bytes").at("gradients").get<double>();
  };
  const double exact = bytes("ranks.wire=exact");
  CHECK(std::abs(bytes("ranks.wire=bf16") / exact - 0.5) < 0.02);
  CHECK(std::abs(bytes("ranks.wire=int8") / exact - 0.254) < 0.03);
  const Said odd = with({"batch={global: 60, micro: 20}"});
  CHECK(odd.code == 2);
  CHECK(has(odd.output,
            "[ranks] 4 ranks share the microbatches of a step, of which batch.global 60 and batch.micro 20 "
            "make 3: expected a multiple of 4"));
}

TEST_CASE("what has no effect is a warning on the screen and in train.log") {
  const TempDir dir;
  const std::string config = written(dir, "a.yaml", kDigits);
  const Said run =
      said({"train", config, "quant.recipe=w4a8", "batch.global=1000", "device={threads: 900, graph: false}",
            "optim.decay=matrices", "train.stop=1 steps", "--quiet", "--out", dir.file("run")});
  REQUIRE(run.code == 0);
  std::ifstream in(dir.file("run/train.log"));
  std::stringstream log;
  log << in.rdbuf();
  for (const char* text :
       {"quant.weights (int4 symmetric) has no effect: quant.recipe w4a8 says how to quantize every layer",
        "command line, argument 3: device.graph has no effect with device.kind cpu",
        "optim.decay (matrices) has no effect: optim.weight_decay is 0",
        "batch.global (1000) is larger than data.train (300 samples)", "device.threads (900) is more than the "}) {
    INFO(text);
    CHECK(has(run.output, text));
    CHECK(has(log.str(), text));
  }
  // A resolved configuration says every key, and warns of none.
  REQUIRE(said({"train", config, "--quiet", "train.stop=1 steps", "--out", dir.file("plain")}).code == 0);
  const Said again = said({"check", "-q", dir.file("plain/config.yaml")});
  CHECK(again.code == 0);
  CHECK_FALSE(has(again.output, "warning"));
}

TEST_CASE("a phase of quantization and, with --verbose, the lines of the log are on the screen") {
  const TempDir dir;
  const std::string config = written(dir, "a.yaml", kDigits);
  const std::string phases = "quant={phases: [{from: 0 steps, quantization: off}, {from: 1 epochs, recipe: w4a8}]}";
  const Said usual = said({"train", config, phases, "--out", dir.file("a")});
  REQUIRE(usual.code == 0);
  CHECK(has(usual.output, "phase 1 from step 6: quantization on, observers on, all layers w4a8"));
  CHECK_FALSE(has(usual.output, "updated inside backward"));
  const Said verbose = said({"train", config, phases, "-v", "--out", dir.file("b")});
  CHECK(has(verbose.output, "phase 1 at step 6: quantization on, observers on, all layers w4a8"));
  CHECK(has(verbose.output, "updated "));
  CHECK(said({"train", config, "-v", "-q"}).code == 2);
}

TEST_CASE("explain shows a key by its path or its end, and names the nearest one") {
  const Said lr = said({"explain", "lr"});
  CHECK(
      lr.output ==
      "optim.lr\n  learning rate before the schedule\n  value    a number in [1e-30, 1000]\n  default  required\n"
      "  example  optim: {lr: 0.01}\n"
      "\noptim.aux.lr\n  learning rate before the schedule\n  value    a number in [1e-30, 1000]\n  default  optim.lr\n"
      "  example  optim: {aux: {lr: 0.01}}\n");
  CHECK(has(said({"explain", "model.layers.3.linear.out"}).output, "example  model: {layers: [{linear: {out: 10}}]}"));
  CHECK(has(said({"explain", "dataset.size"}).output, "with     format digits"));
  CHECK(said({"explain", "dtype"}).output.starts_with("quant.weights.dtype\n"));
  const Said wrong = said({"explain", "optim.lrr"});
  CHECK(wrong.code == 2);
  CHECK(has(wrong.output, "no configuration key is called 'optim.lrr'. Did you mean 'optim.lr'?"));
  CHECK(said({"explain"}).code == 2);
}

TEST_CASE("explain --list has a path a line") {
  std::istringstream paths(said({"explain", "--list"}).output);
  int keys = 0;
  for (std::string path; std::getline(paths, path); ++keys) CHECK(path.find(' ') == std::string::npos);
  CHECK(keys > 300);
}

TEST_CASE("the schema accepts every shipped configuration and no mutated one") {
  const TempDir dir;
  const Said schema = said({"schema"});
  REQUIRE(schema.code == 0);
  const std::string file = written(dir, "schema.json", schema.output);
  const ProcessResult checked =
      run_program({"python3", source_path("tests/apps/schema_check.py"), file, source_path("configs")});
  if (checked.code == 77 || checked.code == 127) {
    WARN("skipped: " << checked.out << checked.err);
    return;
  }
  INFO(checked.out << checked.err);
  CHECK(checked.code == 0);
}

TEST_CASE("new writes configurations that check accepts, and never over a file") {
  const TempDir dir;
  const std::string list = said({"new", "--list"}).output;
  // Data of the forms that they name.
  written(dir, "input.txt", std::string(4000, 'a') + std::string(3000, 'b'));
  std::string table = "a,b,class\n";
  for (int i = 0; i < 100; ++i) table += std::to_string(i) + (i % 2 == 0 ? ",0.5,even\n" : ",0.25,odd\n");
  written(dir, "table.csv", table);
  for (const std::string& task : words_of_help(list)) {
    INFO(task);
    const std::string file = dir.file(task + ".yaml");
    REQUIRE(said({"new", task, "-o", file}).code == 0);
    const Said again = said({"new", task, "-o", file});
    CHECK(again.code == 2);
    std::vector<std::string> words{"check", "-q", "--no-memory", file};
    if (task == "digits") words.push_back("data.train.size=200");
    if (task == "finetune") words.push_back("~model.init_from");
    const Said checked = said(words);
    INFO(checked.output);
    CHECK(checked.code == (task == "digits" || task == "text" || task == "table" || task == "finetune"
                               ? 0
                               : 3));  // 3: right, and its data are not here
  }
  const Said wrong = said({"new", "image"});
  CHECK(wrong.code == 2);
  CHECK(has(wrong.output, "Did you mean 'images'?"));
}

TEST_CASE("sweep trains each combination once, goes on, and compares in one table") {
  const TempDir dir;
  const std::string config = written(dir, "a.yaml", kDigits), out = dir.file("sweep");
  const std::vector<std::string> command{
      "sweep", config, "optim.lr=0.1,0.01", "quant.weights={dtype: int4},{dtype: int2}", "train.stop=3 steps",
      "--out", out};
  std::vector<std::string> dry = command;
  dry.push_back("--dry-run");
  CHECK(has(said(dry).output, "not started"));
  CHECK_FALSE(std::filesystem::exists(out));
  REQUIRE(said(command).code == 0);
  std::filesystem::remove_all(out + "/lr=0.1_weights=-dtype--int2-_stop=3-steps");
  const Said again = said(command);
  REQUIRE(again.code == 0);
  CHECK(has(again.output, "[1/4] lr=0.1_weights=-dtype--int4-_stop=3-steps: finished before"));
  CHECK(has(again.output, "[2/4] lr=0.1_weights=-dtype--int2-_stop=3-steps\n"));
  CHECK(has(again.output, "0.01      {dtype: int2}  3 steps     accuracy"));
  std::ifstream in(out + "/sweep.csv");
  std::string head;
  std::getline(in, head);
  CHECK(head == "optim.lr,quant.weights,train.stop,metric,best,last,steps,seconds,status,folder");
  // Another configuration in the same folder.
  written(dir, "a.yaml", std::string(kDigits) + "loss: squared_hinge\n");
  const Said refused = said(command);
  CHECK(refused.code == 2);
  CHECK(has(refused.output, "\n  loss: {softmax_cross_entropy: {smoothing: 0}} there, squared_hinge now\n"));
  CHECK_FALSE(has(refused.output, "(not set)"));
  CHECK(said({"sweep", config, "optim.lrr=1,2", "--out", dir.file("x")}).code == 2);
  CHECK(said({"sweep", config, "optim.lr=1", "optim.lr=2", "--out", dir.file("x")}).code == 2);
  const std::string list =
      written(dir, "list.txt", "# two runs\noptim.lr=0.1 'train.stop=1 steps'\noptim.lr=0.2 'train.stop=2 steps'\n");
  const Said listed = said({"sweep", config, "--list", list, "--out", dir.file("listed")});
  CHECK(listed.code == 0);
  CHECK(has(listed.output, "lr=0.2_stop=2-steps"));
}

TEST_CASE("the runs of a sweep as JSON, and on one page, the best on top") {
  const TempDir dir;
  const std::string config = written(dir, "a.yaml", kDigits), out = dir.file("sweep");
  const std::vector<std::string> command{"sweep", config,  "optim.lr=1e-6,0.01", "train.stop=3 steps", "--out",
                                         out,     "--json"};
  const ProcessResult swept = cli(command);
  INFO(swept.err);
  REQUIRE(swept.code == 0);
  CHECK(has(swept.err, "[2/2] lr=0.01_stop=3-steps\n"));
  const Json j = Json::parse(swept.out);
  const std::string best = out + "/lr=0.01_stop=3-steps", worse = out + "/lr=1e-6_stop=3-steps";
  CHECK(j.at("best").text() == best);
  REQUIRE(j.at("runs").size() == 2);
  const Json& first = j.at("runs")[0];
  CHECK(first.at("folder").text() == worse);
  CHECK(first.at("name").text() == "lr=1e-6_stop=3-steps");
  CHECK(first.at("values").at("optim.lr").get<double>() == 1e-6);
  CHECK(first.at("values").at("train.stop").text() == "3 steps");
  CHECK(first.at("status").text() == "finished");
  CHECK(first.at("metrics").at("accuracy").get<double>() <= j.at("runs").at(1).at("best_value").get<double>());
  std::vector<std::string> loud = command;  // what the runs say does not mix with the object
  loud[5] = dir.file("loud");
  loud.emplace_back("--verbose");
  CHECK(Json::parse(cli(loud).out).at("runs").size() == 2);
  std::vector<std::string> dry = command;
  dry[5] = dir.file("none");
  dry.emplace_back("--dry-run");
  const Json none = Json::parse(cli(dry).out);
  CHECK(none.at("best").is_null());
  CHECK(none.at("runs").at(1).at("status").text() == "not started");

  const ProcessResult page = cli({"report", out});
  INFO(page.err);
  REQUIRE(page.code == 0);
  CHECK(page.out.find(best) < page.out.find(worse));
  const std::string html = slurp(out + "/report.html");
  CHECK(html.find("lr=0.01_stop=3-steps</a>") < html.find("lr=1e-6_stop=3-steps</a>"));
  CHECK(has(html, "<details class=\"run\" id=\"run1\"><summary>lr=1e-6_stop=3-steps</summary>"));
  // What a shell's * names: the runs, sweep.csv, the page itself, and what else is there.
  written(dir, "sweep/notes.txt", "x");
  std::filesystem::create_directory(out + "/empty");
  std::filesystem::create_directory(out + "/begun");
  written(dir, "sweep/begun/config.yaml", "version: 1\n");
  std::vector<std::string> all{"report", "--json"};
  for (const auto& entry : std::filesystem::directory_iterator(out)) all.push_back(entry.path().string());
  const ProcessResult listed = cli(all);
  INFO(listed.err);
  REQUIRE(listed.code == 0);
  CHECK(has(listed.err, "notes.txt"));
  const Json told = Json::parse(listed.out);
  CHECK(told.at("file").text() == out + "/report.html");
  CHECK(told.at("best").text() == best);
  CHECK(told.at("runs").at(1).at("folder").text() == worse);
  CHECK(has(cli({"report", out}).err, "skipped, not started: " + out + "/begun"));
  const ProcessResult nothing = cli({"report", out + "/empty", out + "/notes.txt"});
  CHECK(nothing.code == 3);
  CHECK(has(nothing.err, "empty, " + out + "/notes.txt: no run is there"));
  CHECK(cli({"report", best, dir.file("typo")}).code == 3);
  CHECK(cli({"report", best, dir.file("loud")}).code == 2);  // of two folders: no name for the page
  // Runs that were selected by different metrics have no order.
  REQUIRE(cli({"train", config, "-q", "train.best=loss", "train.stop=3 steps", "--out", out + "/other"}).code == 0);
  CHECK(has(cli({"report", out}).err, "selected by different values (metric: accuracy, loss)"));
}

TEST_CASE("watch shows the evaluations of a run and ends with it") {
  const TempDir dir;
  const std::string config = written(dir, "a.yaml", kDigits), run = dir.file("run");
  REQUIRE(said({"train", config, "-q", "--out", run}).code == 0);
  const Said ended = said({"watch", run});
  CHECK(ended.code == 0);
  CHECK(has(ended.output, "epoch 2  step 12  test accuracy "));
  CHECK(has(ended.output, run + ": finished"));
  CHECK(said({"watch", dir.file("nothing")}).code == 3);
}

TEST_CASE("help, the manual page and the completions name every command") {
  const std::vector<std::string> commands = words_of_help(said({"help"}).output);
  REQUIRE(commands.size() >= 20);
  const std::string man = said({"man"}).output, bash = said({"completion", "bash"}).output,
                    fish = said({"completion", "fish"}).output;
  for (const std::string& command : commands) {
    INFO(command);
    CHECK(has(man, ".SS bitgrad " + command + "\n"));
    CHECK(has(bash, "    " + command + ") options="));
    CHECK(has(fish, " -a " + command + " -d "));
    const std::string help = said({"help", command}).output;
    CHECK(has(help, "Exit codes: 0 success; 2 usage"));
    CHECK(help == said({command, "--help"}).output);
  }
  CHECK(said({"--version"}).output == said({"version"}).output);
  CHECK(said({"help", "trian"}).code == 2);
  CHECK(has(said({"train", "--outt"}).output, "Try: bitgrad train --help"));
  CHECK(said({"completion", "csh"}).code == 2);
}

TEST_CASE("the completion of bash completes commands, options and keys") {
  const TempDir dir;
  const std::string script = written(dir, "c.bash", said({"completion", "bash"}).output + R"(
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _bitgrad; echo "${COMPREPLY[@]}"; }
bitgrad() { ")" + kProgram + R"(" "$@"; }
try bitgrad swe
try bitgrad train --resu
try bitgrad train optim.weight_d
try bitgrad explain schedule.warm
try bitgrad train run.se
try bitgrad train quant.recipe = w1a
try bitgrad train optim.fused =
try bitgrad quantize run --recipe int8w
try bitgrad presets resn
try bitgrad new pic
try bitgrad data fetch fash
try bitgrad completion z
)");
  const ProcessResult shell = run_program({"bash", "--norc", script});
  if (shell.code == 127) return;
  CHECK(shell.out ==
        "sweep\n--resume\noptim.weight_decay=\nschedule.warmup schedule.warmup_from\nrun.seed=\n"
        "w1a1 w1a2\nauto off\nint8wo\nresnet20 resnet20_irnet resnet8\npictures\nfashion_mnist\nzsh\n");
}

TEST_CASE("help and lists fit 80 columns") {
  std::vector<std::vector<std::string>> texts{{"presets"}, {"recipes"}, {"help"}, {"new", "--list"}, {"--help"}};
  for (const std::string& command : words_of_help(said({"help"}).output)) texts.push_back({"help", command});
  for (const std::vector<std::string>& words : texts) {
    std::istringstream lines(said(words).output);
    for (std::string line; std::getline(lines, line);) {
      INFO(words.back() << ": " << line);
      CHECK(line.size() <= 80);
    }
  }
}

TEST_CASE("a wrong option suggests the nearest one, a key instead of a command suggests explain") {
  CHECK(has(said({"train", "a.yaml", "--ouut", "b"}).output, "--ouut: no such option. Did you mean '--out'?"));
  CHECK(has(said({"export", "--fromat=onnx"}).output, "--fromat=onnx: no such option. Did you mean '--format'?"));
  CHECK(has(said({"train", "--qqqqqqqq"}).output, "--qqqqqqqq: no such option. Try: bitgrad train --help"));
  CHECK(has(said({"help", "optim.lr"}).output, "Try: bitgrad explain optim.lr"));
}

TEST_CASE("--json is a flag, and standard output then holds one JSON value alone") {
  const TempDir dir;
  const std::string config = written(dir, "a.yaml", kDigits), run = dir.file("run");
  const auto json = [](std::vector<std::string> words) {
    words.emplace_back("--json");
    const ProcessResult r = cli(words);
    INFO(words[0] << '\n' << r.out << r.err);
    REQUIRE(r.code == 0);
    return Json::parse(r.out);
  };
  const Json checked = json({"check", config});
  CHECK(checked[0].at("ok") == true);
  CHECK(checked[0].at("peak_bytes").at("total") > 0);
  const ProcessResult wrong = cli({"check", config, "optim.lr=x", "--json"});
  CHECK(wrong.code == 2);
  CHECK(has(Json::parse(wrong.out)[0].at("error").get<std::string>(), "optim.lr"));
  REQUIRE(cli({"train", config, "-q", "--out", run, "quant.recipe=none"}).code == 0);
  const Json converted = json({"convert", run, "-o", dir.file("c")});
  CHECK(converted.at("bytes") == static_cast<int64_t>(std::filesystem::file_size(dir.file("c"))));
  const Json quantized = json({"quantize", run, "-o", dir.file("q"), "--recipe", "int8wo"});
  CHECK(quantized.at("before").at("samples") == quantized.at("after").at("samples"));
  CHECK(json({"version"}).at("threads") > 0);
  CHECK(json({"recipes"}).size() == recipe_names().size());
  CHECK(json({"presets"})[0].at("preset") == "birealnet18");
  CHECK(json({"keys"}).size() == config_key_paths().size());
}

TEST_CASE("recipes lists every recipe with what it does") {
  const std::string table = said({"recipes"}).output;
  for (const std::string& name : recipe_names()) CHECK(has(table, "\n" + name + " "));
  CHECK(has(table, "int4 lsq channel(0)"));
}
