// The command line of bench_gemm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench_gemm_conv_shapes.h"
#include "bitgrad/base/device.h"
#include "bitgrad/dtype/dtype.h"
#include "cli/arguments.h"

namespace bitgrad::bench {

struct ProductShape {
  int64_t m, n, k;
};
// One product: its dtypes, and the product that determines how the operands are stored.
struct Case {
  DType a, b;
  std::string product;  // forward, gx, gw
};
struct Options {
  std::vector<ProductShape> shapes;
  std::vector<Case> cases;
  std::vector<std::string> rivals;
  std::string kernel, json, compare, guard, record;
  Device device;  // other than the CPU: bench_gemm_device.h
  double slack = 0.9;
  int64_t repeat = 11;
  int64_t group = 0;                      // group size of B's scales along k; 0: no scales
  bool b_offset = false, a_zero = false;  // B has real offsets; A has a zero point per row
  bool fast_rows = false;                 // leave out reference kernels and libraries
  bool conv = false;                      // convolutions: bench_gemm_conv.h
  std::vector<ConvShape> convs;
  std::vector<ProductMode> grads;  // of gradients in convolutions
  int64_t threads = 1;             // for convolutions
  bool a_k_major_flag = false, b_k_major_flag = false;

  std::string product = "forward";  // of the case being measured
  bool a_k_major() const { return a_k_major_flag || product == "gw"; }
  bool b_k_major() const { return b_k_major_flag || product != "forward"; }
  bool accumulate() const { return product == "gw"; }
};

// Throws cli::UsageError, cli::HelpShown or Error.
Options parse_options(cli::Arguments& args, int argc, char** argv);

}  // namespace bitgrad::bench
