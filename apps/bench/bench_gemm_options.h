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
// One product: dtypes and how the operands are stored.
struct Case {
  DType a, b;
  std::string product;  // forward, gx, gw
};
struct Options {
  std::vector<ProductShape> shapes;
  std::vector<Case> cases;
  std::vector<std::string> rivals;
  std::string kernel, json, compare, guard, record;
  Device device;  // not the CPU: bench_gemm_device.h
  double slack = 0.9;
  int64_t repeat = 11;
  int64_t group = 0;                      // of B along k; 0: none
  bool b_offset = false, a_zero = false;  // real offsets of B; a zero point for each row of A
  bool fast_rows = false;                 // leave out references and libraries
  bool conv = false;                      // convolutions: bench_gemm_conv.h
  std::vector<ConvShape> convs;
  std::vector<ProductMode> grads;  // of convolutions
  int64_t threads = 1;             // of convolutions
  bool a_k_major_flag = false, b_k_major_flag = false;

  std::string product = "forward";  // of the case that is measured
  bool a_k_major() const { return a_k_major_flag || product == "gw"; }
  bool b_k_major() const { return b_k_major_flag || product != "forward"; }
  bool accumulate() const { return product == "gw"; }
};

// Throws cli::UsageError, cli::HelpShown, Error.
Options parse_options(cli::Arguments& args, int argc, char** argv);

}  // namespace bitgrad::bench
