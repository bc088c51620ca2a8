// bench_ptq: lists of methods on a model, a rival in a process of its own, and options that it refuses.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "apps/digits_net.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

ProcessResult bench(std::vector<std::string> arguments, Process::Environment environment = {}) {
  arguments.insert(arguments.begin(), build_path("bin/bench_ptq"));
  environment.insert(environment.begin(), {"BITGRAD_DATA", ""});
  return run_program(arguments, environment);
}

std::string trained(const TempDir& temp, const std::string& yaml) {
  std::ofstream(temp.file("net.yaml")) << yaml;
  const ProcessResult r = cli({"train", temp.file("net.yaml"), "-q", "--out", temp.file("run")});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return temp.file("run");
}

}  // namespace

TEST_CASE("bench_ptq measures lists of methods on the samples that quantize fits to") {
  TempDir temp;
  const std::string run = trained(temp, kDigitsNet), json = temp.file("r.json");
  const ProcessResult r = bench({"--model", run, "--recipe", "int2wo", "--list", "gptq", "--list", "equalize,gptq",
                                 "--calibrate", "127", "--held-out", "100", "--json", json, "train.eval.batch=50"});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json report = Json::parse(slurp(json));
  CHECK(report.at("fit_batches") == 3);  // of 50, 50 and 27
  REQUIRE(report.at("rows").size() == 2);
  const Json& row = report.at("rows")[0];
  CHECK(row.at("accuracy").get<double>() > 10);
  CHECK(row.at("test_accuracy").get<double>() > 10);
  const ProcessResult q = cli({"quantize", run, "-o", temp.file("model"), "--recipe", "int2wo", "--method", "gptq",
                               "--samples", "127", "--json", "train.eval.batch=50"});
  INFO(q.out << q.err);
  REQUIRE(q.code == 0);
  const double loss = Json::parse(q.out).at("after").at("loss").get<double>();
  CHECK(std::abs(row.at("test_loss").get<double>() - loss) < 1e-5 * loss);  // kernels may differ
}

TEST_CASE("bench_ptq gives an accuracy for classes alone") {
  TempDir temp;
  std::ofstream csv(temp.file("line.csv"));
  csv << "a,b,y\n";
  for (int i = 0; i < 40; ++i) csv << i % 7 << ',' << i % 5 << ',' << 0.5 * (i % 7) - (i % 5) << '\n';
  csv.close();
  const std::string run =
      trained(temp, "version: 1\nrun: {name: line}\ndata: {train: {format: csv, file: " + temp.file("line.csv") +
                        ", target: y, target_is: values}}\nmodel: {layers: [{linear: {out: 4}}, "
                        "{relu: {}}, {linear: {out: 1}}]}\nloss: mean_squared_error\nbatch: "
                        "{global: 10}\noptim: {name: sgd, lr: 0.01}\ntrain: {stop: 2 epochs}\n");
  const ProcessResult r = bench({"--model", run, "--recipe", "int4wo_symmetric", "--list", "gptq", "--calibrate", "20",
                                 "--held-out", "20", "--json", temp.file("r.json")});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json row = Json::parse(slurp(temp.file("r.json"))).at("rows")[0];
  CHECK(row.at("loss").get<double>() > 0);
  CHECK(row.at("accuracy").dump() == "null");
  CHECK(row.at("test_accuracy").dump() == "null");
}

TEST_CASE("bench_ptq starts its rival where a path has blanks and quotes") {
  TempDir temp;
  const std::string folder = temp.file("it's a folder"), python = folder + "/python";
  std::filesystem::create_directory(folder);
  std::ofstream(python)
      << "#!/bin/sh\n[ \"$1\" = 'my script.py' ] && [ \"$2 $3\" = '8 1' ] && head -c 64 /dev/zero > \"$4\" && echo "
         "'{\"seconds\": 50, \"error\": 0.25}'\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const ProcessResult r = bench({"--sizes", "8", "--rival", "numpy", "--json", temp.file("r.json")},
                                {{"BITGRAD_PYTHON", python}, {"BITGRAD_BENCH_PTQ", "my script.py"}});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json row = Json::parse(slurp(temp.file("r.json"))).at("rows")[0];
  CHECK(row.at("rival_seconds") == 50);
  CHECK(row.at("rival_error") == 0.25);
  CHECK(row.at("codes_that_differ").get<int64_t>() > 30);  // the weights are whole numbers of -8 to 8, mostly not 0
  CHECK(row.at("x_rival").get<double>() > 100);
  std::ofstream(python) << "#!/bin/sh\nexit 77\n";
  const ProcessResult absent = bench({"--sizes", "8", "--rival", "numpy"}, {{"BITGRAD_PYTHON", python}});
  CHECK(absent.code == 2);
  CHECK(contains(absent.err, "BITGRAD_PYTHON names no Python that has NumPy"));
}

TEST_CASE("bench_ptq refuses options that it would ignore, and values that it cannot use") {
  TempDir temp;
  const std::string run = trained(temp, kDigitsNet);
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"--sizes", "0"}, "--sizes: got '0', expected whole numbers of 1 to 8192"},
      {{"--sizes", "8,x"}, "--sizes: got '8,x', expected whole numbers"},
      {{"--rival", "torch"}, "--rival: got 'torch', expected numpy"},
      {{"--recipe", "int8wo"}, "--recipe needs --model"},
      {{"--layers", "*"}, "--layers needs --model"},
      {{"--list", "gptq"}, "--list needs --model"},
      {{"--calibrate", "5"}, "--calibrate needs --model"},
      {{"--held-out", "5"}, "--held-out needs --model"},
      {{"run.seed=1"}, "overrides needs --model"},
      {{"--model", run}, "--model needs --recipe NAME"},
      {{"--model", run, "--recipe", "int8wo", "--sizes", "8"}, "--sizes and --rival are not for --model"},
      {{"--model", run, "--recipe", "int8wo", "--rival", "numpy"}, "--sizes and --rival are not for --model"},
      {{"--model", run, "--recipe", "int8wo", "--repeat", "2"}, "--repeat is not for --model"},
      {{"--model", run, "--recipe", "int8wo", "--compare", "x"}, "--compare is not for --model"},
      {{"--model", run, "--recipe", "int8wo", "--slack", "0.5"}, "--slack is not for --model"},
      {{"--model", run, "--recipe", "int9wo", "--calibrate", "20"}, "unknown recipe 'int9wo'"},
      {{"--model", run, "--recipe", "int8wo", "--list", "gtpq"}, "Did you mean 'gptq'?"},
      {{"--model", run, "--recipe", "int8wo", "--list", "gptq,gptq"}, "listed twice"},
      {{"--model", run, "--recipe", "int8wo", "--layers", "x.*", "--calibrate", "20"}, "matches no layer"},
      {{"--model", run, "--recipe", "int8wo", "--calibrate", "400"},
       "data.train has 400 samples, expected more than 400"},
      {{"--model", run, "--recipe", "int8wo", "--calibrate", "0"}, "--calibrate"}};
  for (const auto& [arguments, text] : refused) {
    const ProcessResult r = bench(arguments);
    INFO(text << ": " << r.out << r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, text));
  }
}
