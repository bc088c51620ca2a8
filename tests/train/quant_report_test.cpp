// log.quantization: reports in metrics.jsonl, the same with a resume at a report, and true after any other.
#include <map>
#include <sstream>

#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<Json> quant_lines(const std::string& folder) {
  std::vector<Json> out;
  std::istringstream in(text_of(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (const Json j = Json::parse(line); j.at("event") == "quant") out.push_back(j);
  return out;
}

std::string fresh_folder(const TempDir& temp, const std::string& name, const RunConfig& config) {
  return create_run_folder(config, temp.file(name));
}

}  // namespace

TEST_CASE("the state of a run is the same bit for bit with reports and without") {
  const KeepModes keep;
  TempDir temp;
  for (const char* text : {kSmallTfc, kSmallInt4}) {
    const std::string off = run_all(small_config({"log.quantization=off"}, text), "").state_hash;
    for (const char* every : {"log.quantization=1 steps", "log.quantization=3 steps", "log.quantization=1 epochs"}) {
      INFO(every);
      int64_t told = 0;
      TrainHooks hooks;
      hooks.on_quant = [&](const QuantEvent&) { ++told; };
      CHECK(Trainer(small_config({every}, text)).run("", hooks).state_hash == off);
      CHECK(told > 0);
    }
  }
}

TEST_CASE("each report writes a line for every low-bit weight and quantizer, and so does the end of a run") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"log.quantization=4 steps"});  // 15 steps
  const std::string folder = fresh_folder(temp, "run", config);
  run_all(config, folder);
  std::map<int64_t, std::vector<std::string>> layers;
  for (const Json& j : quant_lines(folder))
    layers[j.at("step").get<int64_t>()].push_back(j.at("layer").get<std::string>() + ' ' +
                                                  j.at("part").get<std::string>());
  REQUIRE(layers.size() == 4);
  for (const int64_t step : {4, 8, 12, 15})
    CHECK(layers.at(step) ==
          std::vector<std::string>{"layers.2 weight", "layers.6 weight", "layers.0 quantize", "layers.4 quantize"});
  for (const Json& j : quant_lines(folder)) {
    CHECK(j.at("epoch") == j.at("step").get<int64_t>() / 5);
    if (j.at("part") != "weight") continue;
    const int64_t step = j.at("step").get<int64_t>();
    CHECK(j.at("since") == (step == 15 ? 12 : step - 4));
    CHECK(j.at("watched") == (step == 15 ? 3 : 4));
  }
  const RunConfig off = small_config({"log.quantization=off"});
  const std::string silent = fresh_folder(temp, "off", off);
  run_all(off, silent);
  CHECK(quant_lines(silent).empty());
}

TEST_CASE("windows of several microbatches and requantizations: what is watched is the state before a report") {
  const KeepModes keep;
  TempDir temp;
  struct Case {
    std::vector<std::string> overrides;
    std::vector<int64_t> steps, watched;
  };
  // 25 epochs of 5 microbatches, A = 2: 62.5 windows, of which the last one is half; N = 4 requantizes every other
  // step.
  const std::vector<Case> cases = {
      {{"log.quantization=40 steps", "quant.requantize_every=2"}, {40, 63}, {16, 16}},
      {{"log.quantization=40 steps", "quant.requantize_every=4"}, {40, 63}, {16, 12}},
      {{"log.quantization=20 epochs", "quant.requantize_every=2"}, {50, 63}, {16, 13}},
  };
  for (const Case& c : cases) {
    std::vector<std::string> overrides = c.overrides;
    overrides.insert(overrides.end(), {"batch.global=20", "train.stop=25 epochs"});
    INFO(c.overrides[0] << ' ' << c.overrides[1]);
    std::vector<int64_t> steps, watched;
    TrainHooks hooks;
    hooks.on_quant = [&](const QuantEvent& e) {
      if (e.layer != "layers.2") return;
      steps.push_back(e.step);
      watched.push_back(e.watched);
    };
    Trainer(small_config(overrides)).run("", hooks);
    CHECK(steps == c.steps);
    CHECK(watched == c.watched);
  }
}

TEST_CASE("a run that is resumed at a report writes the lines of the unbroken run") {
  const KeepModes keep;
  TempDir temp;
  for (const char* text : {kSmallTfc, kSmallInt4})
    for (const char* every : {"log.quantization=4 steps", "log.quantization=1 epochs"}) {
      const RunConfig config = small_config({every, "checkpoint.every=1 steps"}, text);
      const std::string name = std::string(text == kSmallTfc ? "a" : "b") + every[17];
      const std::string full = fresh_folder(temp, "whole" + name, config);
      run_all(config, full);
      for (const int64_t at : {4, 5, 8, 10}) {
        const bool report = every[17] == '4' ? at % 4 == 0 : at % 5 == 0;
        const std::string parts = fresh_folder(temp, name + std::to_string(at), config);
        run_part(config, parts, at);
        resume_run(parts);
        const std::vector<Json> a = quant_lines(full), b = quant_lines(parts);
        INFO(every << ", resumed at " << at);
        if (report) CHECK(a == b);
        REQUIRE(a.size() == b.size());
        for (size_t i = 0; i < a.size(); ++i) {
          CHECK(a[i].at("step") == b[i].at("step"));
          CHECK(a[i].value("histogram", Json()) == b[i].value("histogram", Json()));
          CHECK(a[i].at("sqnr_db") == b[i].at("sqnr_db"));
          if (report || a[i].at("part") != "weight") continue;
          // Only what was seen counts: from the resume on.
          const bool across = a[i].at("since") < at && a[i].at("step") > at;
          CHECK(b[i].at("since") == (across ? Json(at) : a[i].at("since")));
          if (across) CHECK(b[i].at("watched").get<int64_t>() <= b[i].at("step").get<int64_t>() - at);
          if (!across) CHECK(a[i] == b[i]);
        }
      }
    }
}

TEST_CASE("phases of a run: layers that are off have no lines") {
  const KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"log.quantization=1 steps", "quant.requantize_every=10",
                                         "quant.phases=[{from: 0 steps}, {from: 4 steps, quantization: off}, "
                                         "{from: 8 steps, recipe: int4wo_symmetric}]"},
                                        kSmallInt4);
  const std::string folder = fresh_folder(temp, "run", config);
  run_all(config, folder);
  std::map<int64_t, int64_t> weights;
  std::map<int64_t, Json> first;
  for (const Json& j : quant_lines(folder))
    if (j.at("part") == "weight" && weights[j.at("step").get<int64_t>()]++ == 0) first[j.at("step").get<int64_t>()] = j;
  for (int64_t step = 1; step <= 15; ++step) {
    INFO(step);
    CHECK(weights[step] == (step > 4 && step <= 8 ? 0 : 2));
  }
  CHECK(first[9].at("since") == 9);
  CHECK(first[9].at("flip_rate").is_null());
  CHECK(first[10].at("since") == 9);
  CHECK(first[9].at("granularity") == "group(32)");
}
