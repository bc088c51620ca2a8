// The two parts of bench_ptq: times of gptq on drawn weights, and lists of methods on a model of a file.
#pragma once

#include <string>
#include <vector>

#include "shared/common.h"

namespace bitgrad::bench {

struct PtqOptions : SharedOptions {
  PtqOptions() : SharedOptions{.repeat = 1} {}
  std::string sizes = "768,4096", rival = {};
  std::string model = {}, recipe = {}, layers = "*";
  std::vector<std::string> lists = {}, overrides = {};
  int64_t calibrate = 512, held_out = 1000;
};

// Quantizes a model by each list of methods and prints what it loses. Returns the exit status.
int bench_lists(const PtqOptions& o);

}  // namespace bitgrad::bench
