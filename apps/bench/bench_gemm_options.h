// The command line of bench_gemm.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/dtype/dtype.h"

namespace bitgrad::bench {

struct Shape {
  int64_t m, n, k;
};
struct Options {
  std::vector<Shape> shapes;
  std::vector<std::pair<DType, DType>> dtypes;
  std::string product = "forward", kernel, json;
  int64_t repeat = 11;
  int64_t group = 0;                      // of B along k; 0: none
  bool b_offset = false, a_zero = false;  // real offsets of B; a zero point for each row of A
  bool a_k_major() const { return product == "gw"; }
  bool b_k_major() const { return product != "forward"; }
};

// Throws CLI::ParseError, Error.
Options parse_options(CLI::App& app, int argc, char** argv);

}  // namespace bitgrad::bench
