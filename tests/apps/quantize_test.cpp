// convert, quantize, sensitivity and quant.budget as their users run them.
#include <sys/stat.h>

#include <fstream>

#include "apps/cli.h"
#include "apps/digits_net.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/expect_error.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

// A float network on the drawn digits, and what else `more` says.
std::string train(const TempDir& temp, const std::string& name, std::vector<std::string> more = {}) {
  std::ofstream(temp.file("net.yaml")) << kDigitsNet;
  std::vector<std::string> arguments{"train", temp.file("net.yaml"), "-q", "--out", temp.file(name)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProcessResult r = cli(arguments);
  INFO(r.err);
  REQUIRE(r.code == 0);
  return temp.file(name);
}

// Everything but the name of the file.
Json eval(const std::string& target) {
  const ProcessResult r = cli({"eval", target, "--json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  Json result = Json::parse(r.out);
  result.erase("file");
  return result;
}

}  // namespace

TEST_CASE("convert writes a model that gives what the checkpoint gives") {
  TempDir temp;
  const std::string run = train(temp, "run", {"quant.recipe=8da4w", "quant.last=int8wo"});
  const std::string file = temp.file("model");
  const ProcessResult dry = cli({"convert", run, "--dry-run"});
  INFO(dry.out << dry.err);
  CHECK(dry.code == 0);
  CHECK(contains(dry.out, "layers.0  all   8da4w"));
  CHECK(contains(dry.out, "layers.5  last  int8wo"));
  CHECK(slurp(file).empty());

  const ProcessResult r = cli({"convert", run, "-o", file, "--check"});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "logits equal bit for bit"));
  CHECK(eval(file) == eval(run));
  CHECK(slurp(file).size() < slurp(run + "/last.safetensors").size() / 4);

  const ProcessResult again = cli({"convert", run, "-o", file});
  CHECK(again.code == 2);
  CHECK(contains(again.err, "exists"));
  CHECK(cli({"convert", run, "-o", file, "--force", "--best"}).code == 0);
  CHECK(eval(file) == eval(run + "/best.safetensors"));
  const ProcessResult twice = cli({"convert", file, "-o", temp.file("other")});
  CHECK(twice.code == 2);
  CHECK(contains(twice.err, "is converted already"));
}

TEST_CASE("convert uses the phase that the run was in, and warns where nothing is quantized") {
  TempDir temp;
  const std::string run = train(temp, "run",
                                {"quant.phases=[{from: 0 steps, recipe: int4wo}, {from: 1 epochs, rules: "
                                 "[{layers: layers.0, recipe: int2wo}]}, {from: 3 epochs, quantization: "
                                 "frozen, observers: false}]"});
  const ProcessResult r = cli({"convert", run, "-o", temp.file("model"), "--check"});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "int2 symmetric group(32)"));
  CHECK(contains(r.out, "logits equal bit for bit"));
  CHECK(eval(temp.file("model")) == eval(run));

  const std::string off = train(
      temp, "off", {"quant.recipe=int4wo", "quant.phases=[{from: 0 steps}, {from: 3 epochs, quantization: off}]"});
  const ProcessResult floats_again = cli({"convert", off, "-o", temp.file("off_model"), "--check"});
  INFO(floats_again.out << floats_again.err);
  CHECK(floats_again.code == 0);
  CHECK(contains(floats_again.out, "int4wo (off)"));
  CHECK(eval(temp.file("off_model")) == eval(off));

  const std::string floats = train(temp, "floats");
  const ProcessResult plain = cli({"convert", floats, "-o", temp.file("plain")});
  CHECK(plain.code == 0);
  CHECK(contains(plain.err, "warning: no layer is quantized"));
  CHECK(eval(temp.file("plain")) == eval(floats));
}

TEST_CASE("quantize holds a trained network in few bits") {
  TempDir temp;
  const std::string run = train(temp, "run"), file = temp.file("model");
  const double before = eval(run).at("accuracy").get<double>();
  const ProcessResult r = cli({"quantize", run, "-o", file, "--recipe", "int8wo", "--batch-norm", "0"});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "before: accuracy"));
  CHECK_FALSE(contains(r.out, "statistics renewed"));
  CHECK(std::abs(eval(file).at("accuracy").get<double>() - before) <= 1.0);

  const Json written = eval(file);
  std::ostringstream after;
  after << "after:  accuracy " << written.at("accuracy").get<double>() << " %  loss "
        << written.at("loss").get<double>();
  CHECK(contains(r.out, after.str()));
  const ProcessResult renewed = cli({"quantize", run, "-o", file, "--force", "--recipe", "int8wo"});
  INFO(renewed.out << renewed.err);
  REQUIRE(renewed.code == 0);
  CHECK(contains(renewed.out, "batch norm: statistics renewed on 400 samples of data.train"));
  CHECK(eval(file).at("loss").get<double>() < written.at("loss").get<double>());

  const ProcessResult mixed =
      cli({"quantize", run, "-o", file, "--force", "--recipe", "w8a8", "--first", "none", "--last", "int8wo", "--rule",
           "layers.3=int4wo", "--observer", "min_max", "--samples", "100"});
  CHECK(mixed.code == 2);
  CHECK(contains(mixed.err, "no layer has an input"));
  const ProcessResult observed =
      cli({"quantize", run, "-o", file, "--force", "--recipe", "w8a8", "--last", "int8wo", "--rule", "layers.3=int4wo",
           "--observer", "min_max", "--batches", "5", "--batch-norm", "0"});
  INFO(observed.out << observed.err);
  REQUIRE(observed.code == 0);
  CHECK(contains(observed.out, "int8 absmax tensor min_max"));
  CHECK(contains(observed.out, "uint4 minmax_offset group(32)"));
  CHECK(std::abs(eval(file).at("accuracy").get<double>() - before) <= 2.0);

  // A model file, and a run that was not float, are taken by their numbers.
  REQUIRE(cli({"quantize", file, "-o", temp.file("again"), "--rule", "layers.[05]=int8wo"}).code == 0);
  const ProcessResult dry = cli({"quantize", run, "--rule", "layers.0=int8wo", "--dry-run"});
  CHECK(dry.code == 0);
  CHECK(contains(dry.out, "layers.0  layers.0  int8wo"));
  CHECK(contains(dry.out, "layers.3  all       none"));
}

TEST_CASE("sensitivity prints what each layer loses, for people and as JSON") {
  TempDir temp;
  const std::string run = train(temp, "run");
  std::vector<std::string> words{"sensitivity", run, "--bits", "8,1", "--recipe", "ternary_wo", "--samples", "150"};
  const ProcessResult r = cli(words);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "accuracy change"));
  words.emplace_back("--json");
  const Json j = Json::parse(cli(words).out);
  CHECK(j.at("samples") == 150);
  REQUIRE(j.at("layers").size() == 3);
  REQUIRE(j.at("layers")[2].at("recipes").size() == 3);
  CHECK(j.at("layers")[2].at("recipes")[1].at("recipe") == "binary_wo");
  CHECK(j.at("layers")[0].at("recipes")[0].at("sqnr_db") > 30);
  CHECK(j.at("layers")[0].at("recipes")[1].at("loss_change") > 0);
  CHECK(cli({"convert", run, "-o", temp.file("model")}).code == 0);
  CHECK(cli({"sensitivity", temp.file("model")}).code == 0);
}

TEST_CASE("a budget becomes rules of the run folder, and the run can be resumed and converted") {
  TempDir temp;
  const std::string from = train(temp, "floats");
  const std::string run = train(temp, "run", {"model.init_from=" + from, "quant.budget=12 KB"});
  CHECK(contains(slurp(run + "/config.yaml"), "layers: layers.0"));
  CHECK(!contains(slurp(run + "/config.yaml"), "budget"));
  CHECK(contains(slurp(run + "/train.log"), "budget: 12000 bytes; the weights need"));
  CHECK(cli({"train", "--resume", run}).code == 0);
  CHECK(cli({"convert", run, "-o", temp.file("model"), "--check"}).code == 0);
  const std::string fitted =
      train(temp, "fitted", {"model.init_from=" + from, "quant.budget={bytes: 12 KB, methods: [gptq, bias]}"});
  CHECK(contains(slurp(fitted + "/train.log"), "only one layer uses the recipe, fitted by gptq, bias, and their"));
  const ProcessResult whole = cli(
      {"check", temp.file("net.yaml"), "model.init_from=" + from, "quant.budget={bytes: 12 KB, methods: [smooth]}"});
  CHECK(whole.code == 2);
  CHECK(contains(whole.err + whole.out, "method smooth changes the whole model"));
  const ProcessResult r =
      cli({"train", temp.file("net.yaml"), "--out", temp.file("no"), "model.init_from=" + from, "quant.budget=100"});
  CHECK(r.code == 2);
  CHECK(contains(r.err, "the weights need at least"));
}

TEST_CASE("what a command reads, and what a run keeps, is never written over") {
  TempDir temp;
  const std::string run = train(temp, "run"), last = run + "/last.safetensors", file = temp.file("model");
  const std::string checkpoint = slurp(last);
  REQUIRE(cli({"convert", run, "-o", file}).code == 0);
  const std::string model = slurp(file);
  const std::vector<std::vector<std::string>> refused{
      {"convert", run, "-o", last, "--force"},
      {"convert", last, "-o", run + "/../run/last.safetensors", "--force"},
      {"convert", run, "-o", run + "/best.safetensors", "--force"},
      {"convert", run, "-o", run + "/config.yaml", "--force"},
      {"convert", run, "-o", run + "/metrics.jsonl", "--force"},
      {"quantize", run, "-o", last, "--force", "--recipe", "int8wo"},
      {"quantize", file, "-o", file, "--force", "--recipe", "int8wo"},
      {"quantize", file, "-o", last, "--force", "--recipe", "int8wo"},
  };
  for (const std::vector<std::string>& arguments : refused) {
    const ProcessResult r = cli(arguments);
    INFO(arguments[0] << ' ' << arguments[1] << ' ' << r.out << r.err);
    CHECK(r.code == 2);
    CHECK(contains(r.err, "Name another"));
    CHECK(slurp(last) == checkpoint);
    CHECK(slurp(file) == model);
  }
  CHECK(cli({"convert", run, "-o", run + "/model.safetensors"}).code == 0);
}

TEST_CASE("quantize fits layers to samples with methods") {
  TempDir temp;
  const std::string run = train(temp, "run"), file = temp.file("model");
  const ProcessResult plain = cli({"quantize", run, "-o", file, "--recipe", "int2wo", "--batch-norm", "0", "--json"});
  const ProcessResult r =
      cli({"quantize", run, "-o", file, "--force", "--recipe", "int2wo", "--method", "gptq,refit", "--json"});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json before = Json::parse(plain.out), after = Json::parse(r.out);
  CHECK(!before.contains("layers"));
  CHECK(!after.contains("after_stale"));
  CHECK(after["after"]["loss"].get<double>() < before["after"]["loss"].get<double>());
  for (const auto& layer : after["layers"]) {
    CHECK(layer["after"].get<double>() < layer["before"].get<double>());
    CHECK(layer["steps"][0]["method"].text() == "gptq");
    CHECK(layer["steps"][0]["kept"].get<bool>());
  }
  CHECK(eval(file)["loss"] == after["after"]["loss"]);
  // A list ends with its word, and methods run in the order of the list.
  const ProcessResult text = cli({"quantize", run, "--method", "gptq,clip", "train.eval.batch=50", "-o", file,
                                  "--force", "--recipe", "int2wo", "--batch-norm", "100"});
  INFO(text.out << text.err);
  CHECK(text.code == 0);
  CHECK(contains(text.out, "not kept"));
  CHECK(contains(
      cli({"quantize", run, "-o", file, "--force", "--recipe", "int2wo", "--method", "gptq", "--samples", "9"}).out,
      "inputs and was fitted to 9 rows of them"));
  CHECK(contains(text.out, "statistics renewed on 100 samples"));
  CHECK(text.out.find(" gptq ") < text.out.find(" clip "));
}

namespace {

// quantize under a budget, its JSON.
Json budgeted(const std::string& run, const std::string& file, const std::vector<std::string>& more) {
  std::vector<std::string> words{"quantize", run, "-o", file, "--force", "--json", "--samples", "100"};
  words.insert(words.end(), more.begin(), more.end());
  const ProcessResult r = cli(words);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  return Json::parse(r.out);
}

// Checks that the choices have the figures of sensitivity. Returns how many were compared.
int compare_choices(const Json& budget, const std::string& run, const std::vector<std::string>& more) {
  std::vector<std::string> words{"sensitivity", run, "--json", "--samples", "100"};
  words.insert(words.end(), more.begin(), more.end());
  const ProcessResult r = cli(words);
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const Json sensitivity = Json::parse(r.out);
  CHECK(sensitivity.at("methods").dump() == budget.at("methods").dump());
  int compared = 0;
  for (size_t i = 0; i < budget.at("layers").size(); ++i) {
    Json choice = budget.at("layers")[i];
    choice.erase("layer");
    for (const Json& recipe : sensitivity.at("layers")[i].at("recipes"))
      if (recipe.at("recipe") == choice.at("recipe") && choice.at("group").dump() == "null") {
        CHECK(recipe.dump() == choice.dump());
        ++compared;
      }
  }
  return compared;
}

}  // namespace

TEST_CASE("quantize chooses bits under a budget by the methods that it then uses") {
  TempDir temp;
  const std::string run = train(temp, "run"), file = temp.file("model"), other = temp.file("other");
  const std::vector<std::string> methods{"--method", "gptq,bias"}, bits{"--bits", "8,1"}, size{"--budget", "8 KB"};
  const auto all = [](std::initializer_list<std::vector<std::string>> parts) {
    std::vector<std::string> words;
    for (const auto& part : parts) words.insert(words.end(), part.begin(), part.end());
    return words;
  };
  const Json fitted = budgeted(run, file, all({size, bits, methods})), &budget = fitted.at("budget");
  CHECK(budget.at("budget") == 8000);
  CHECK(budget.at("bytes") <= 8000);
  CHECK(budget.at("methods").dump() == Json::array({"gptq", "bias"}).dump());
  CHECK(compare_choices(budget, run, all({bits, methods, {"--batch-norm", "0"}})) == 3);
  CHECK(fitted.at("layers")[0].at("steps")[0].at("method") == "gptq");
  CHECK(eval(file).at("loss") == fitted.at("after").at("loss"));

  // The same model as by rules, and another one than rounding to nearest gives.
  std::vector<std::string> rules = all({{"quantize", run, "-o", other, "--samples", "100"}, methods});
  for (const Json& layer : budget.at("layers")) {
    CHECK(layer.at("group").dump() == "null");
    rules.insert(rules.end(), {"--rule", layer.at("layer").text() + "=" + layer.at("recipe").text()});
  }
  const ProcessResult by_rules = cli(rules);
  INFO(by_rules.out << by_rules.err);
  REQUIRE(by_rules.code == 0);
  CHECK(slurp(other) == slurp(file));
  const Json plain = budgeted(run, other, all({size, bits, {"--batch-norm", "0"}}));
  CHECK(slurp(other) != slurp(file));
  CHECK(plain.at("budget").at("methods").empty());
  CHECK(plain.at("budget").at("layers")[0].at("loss_change") != budget.at("layers")[0].at("loss_change"));
  CHECK(compare_choices(plain.at("budget"), run, all({bits, {"--batch-norm", "0"}})) == 3);

  // norms renews the statistics of each measurement, as sensitivity does by itself.
  const Json renewed = budgeted(run, other, all({size, bits, {"--method", "gptq,bias,norms"}}));
  CHECK(compare_choices(renewed.at("budget"), run, all({bits, methods})) == 3);
  CHECK(renewed.at("budget").at("layers")[0].at("loss_change") != budget.at("layers")[0].at("loss_change"));

  // A choice that a method fits no layer of: the measurement used it, and its steps say so.
  const Json unused = budgeted(run, other, all({{"--budget", "3600"}, bits, {"--method", "gptq,adaround"}}));
  for (const Json& layer : unused.at("layers")) CHECK(layer.at("steps")[1].contains("refused"));

  const std::string before = slurp(file);
  const ProcessResult dry = cli(all({{"quantize", run, "--dry-run", "--samples", "100"}, size, methods}));
  INFO(dry.out << dry.err);
  CHECK(dry.code == 0);
  CHECK(contains(dry.out, "budget: 8000 bytes; "));
  CHECK(contains(dry.out, "only one layer uses the recipe, fitted by gptq, bias, and their sums"));
  CHECK(contains(dry.out, "layers.3  layers.3"));
  CHECK(slurp(file) == before);
  const ProcessResult text = cli(all({{"sensitivity", run, "--samples", "50"}, bits, methods}));
  CHECK(contains(text.out, "one layer at a time requantized, fitted by gptq, bias:"));
}

TEST_CASE("convert, quantize and sensitivity report wrong arguments") {
  TempDir temp;
  const std::string run = train(temp, "run", {"train.stop=20 steps"}), out = temp.file("model");
  const std::string full = slurp(run + "/last.safetensors");
  std::ofstream(temp.file("cut"), std::ios::binary) << full.substr(0, full.size() / 2);
  std::ofstream(temp.file("text")) << "not a model";
  const std::string pipe = temp.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  struct Case {
    std::vector<std::string> arguments;
    int code;
    std::string text;
  };
  const Case cases[] = {
      {{"convert", run}, 2, "-o FILE"},
      {{"convert", run, "-o", temp.file("no/model")}, 2, "no such folder"},
      {{"convert", run, "-o", run}, 2, "is a folder"},
      {{"convert", run, "-o", temp.file("text")}, 2, "exists"},
      {{"convert", run, "-o", pipe, "--force"}, 2, "is a device or a pipe"},
      {{"convert", run, "-o", out, "--check", "device.kind=cuda", "device.index=255"}, 6, "is absent"},
      {{"convert", run, "--dry-run", "--check"}, 2, "excludes"},
      {{"convert", run + "/last.safetensors", "-o", out, "--best"}, 2, "--best"},
      {{"convert", temp.file("nothing"), "-o", out}, 3, "nothing"},
      {{"convert", temp.file("text"), "-o", out}, 3, "text"},
      {{"convert", temp.file("cut"), "-o", out}, 3, "cut"},
      {{"quantize", run, "-o", out}, 2, "--recipe NAME or --rule GLOB=NAME"},
      {{"quantize", run, "-o", out, "--recipe", "int9wo"}, 2, "unknown recipe 'int9wo'"},
      {{"quantize", run, "-o", out, "--recipe", "int8wo", "--first", "x"}, 2, "unknown recipe 'x'"},
      {{"quantize", run, "-o", out, "--rule", "layers.0"}, 2, "GLOB=RECIPE"},
      {{"quantize", run, "-o", out, "--rule", "layers.1=int8wo"}, 2, "matches no layer"},
      {{"quantize", run, "-o", out, "--recipe", "w8a8", "--observer", "minmax"}, 2, "Did you mean 'min_max'"},
      {{"quantize", run, "-o", out, "--recipe", "int8wo", "--samples", "0"}, 2, "--samples"},
      {{"quantize", run, "-o", out, "--recipe", "int8wo", "--samples", "5", "--batches", "5"}, 2, "excludes"},
      {{"quantize", run, "--recipe", "int8wo"}, 2, "-o FILE"},
      {{"quantize", run, "-o", out, "--recipe", "int8", "--output-rounding", "ruy"}, 2, "Use double, single or float"},
      {{"quantize", run, "-o", out, "--recipe", "int8wo", "--output-rounding", "float"}, 2, "got recipe int8wo"},
      {{"quantize", run, "-o", out, "--recipe", "int4wo", "--method", "gtpq"}, 2, "Did you mean 'gptq'?"},
      {{"quantize", run, "-o", out, "--recipe", "int4wo", "--method", "gptq,gptq"}, 2, "listed twice"},
      {{"quantize", run, "-o", out, "--recipe", "int4wo", "--method", "clip"}, 2, "method clip fits no layer"},
      {{"quantize", run, "-o", out, "--recipe", "int4wo", "--method", "gptq", "--damp", "2"}, 2, "0.000001 to 1"},
      {{"quantize", run, "-o", out, "--recipe", "int4wo", "--damp", "0.1"}, 2, "--method"},
      {{"quantize", run, "-o", out, "--recipe", "int4wo", "--method", "norms", "--batch-norm", "0"},
       2,
       "--batch-norm 0"},
      {{"quantize", temp.file("cut"), "-o", out, "--recipe", "int8wo"}, 3, "cut"},
      {{"quantize", run, "-o", out, "--budget", "12 K"}, 2, "got '12 K', expected a whole number of bytes"},
      {{"quantize", run, "-o", out, "--budget", "100"}, 2, "the weights need at least"},
      {{"quantize", run, "-o", out, "--budget", "12 KB", "--bits", "7"}, 2, "no weight recipe has 7 bits"},
      {{"quantize", run, "-o", out, "--budget", "12 KB", "--recipe", "int8wo"}, 2, "excludes"},
      {{"quantize", run, "-o", out, "--budget", "12 KB", "--rule", "layers.0=int8wo"}, 2, "excludes"},
      {{"quantize", run, "-o", out, "--budget", "12 KB", "--first", "int8wo"}, 2, "excludes"},
      {{"quantize", run, "-o", out, "--budget", "12 KB", "--last", "int8wo"}, 2, "excludes"},
      {{"quantize", run, "-o", out, "--budget", "12 KB", "--observer", "min_max"}, 2, "excludes"},
      {{"quantize", run, "-o", out, "--budget", "12 KB", "--output-rounding", "float"}, 2, "excludes"},
      {{"quantize", run, "-o", out, "--recipe", "int8wo", "--bits", "8"}, 2, "--budget"},
      {{"quantize", run, "-o", out, "--budget", "12 KB", "--method", "gptq,equalize"},
       2,
       "method equalize changes the whole model, and here one layer is quantized at a time"},
      {{"sensitivity", run, "--method", "gptq,smooth"}, 2, "method smooth changes the whole model"},
      {{"sensitivity", run, "--bits", "7"}, 2, "no weight recipe has 7 bits"},
      {{"sensitivity", run, "--recipe", "none"}, 2, "leaves the weights in fp32"},
      {{"sensitivity", temp.file("text")}, 3, "text"},
  };
  for (const Case& c : cases) {
    const ProcessResult r = cli(c.arguments);
    std::string line;
    for (const std::string& a : c.arguments) line += a + ' ';
    INFO(line << '\n' << r.out << r.err);
    CHECK(r.code == c.code);
    CHECK(contains(r.err, c.text));
    CHECK(slurp(out).empty());
  }
}
