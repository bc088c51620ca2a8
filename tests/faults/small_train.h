// Trainings of a fraction of a second, and what is left of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/paths.h"

namespace bitgrad::test {

// 40 steps of 10 digits each in a network of 32 signs; a checkpoint each tenth step, two evaluations. Strict, so that
// the state at the end is one for every machine, number of threads and way that it was come to.
inline std::vector<std::string> small_train(const std::string& out, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"train",
                                     source_path("configs/digits_mlp_w1a1.yaml"),
                                     "run.bits=strict",
                                     "data.train.size=200",
                                     "data.test.size=90",
                                     "batch.global=10",
                                     "batch.micro=10",
                                     "model.layers.1.linear.out=32",
                                     "model.layers.4.linear.out=32",
                                     "train.stop=2 epochs",
                                     "checkpoint.every=10 steps",
                                     "log.every=10 steps",
                                     "--out",
                                     out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

inline std::vector<std::string> with_program(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kProgram);
  return arguments;
}

inline Json json_file(const std::string& path) { return Json::parse(slurp(path)); }
inline std::string hash_in(const std::string& folder) {
  return json_file(folder + "/summary.json").at("state_hash").text();
}
inline bool exists(const std::string& path) { return std::filesystem::exists(path); }
inline size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Lines of metrics.jsonl, without what the clock says. A resumed run watches flips from there on, so its reports of
// quantization are left out (`resumed`).
inline std::vector<std::string> metrics_in(const std::string& folder, bool resumed = false) {
  std::vector<std::string> lines;
  std::istringstream in(slurp(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    Json event = Json::parse(line);
    for (const char* key : {"samples_per_s", "gmacs_per_s"}) event.erase(key);
    if (resumed && event.at("event") == "quant") continue;
    lines.push_back(event.dump());
  }
  return lines;
}

}  // namespace bitgrad::test
