// The command line of bench_step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "cli/arguments.h"

namespace bitgrad::bench {

// Dtypes of weights and activations. Weights: sign, or absmax per output. Activations: sign with the clip rule, or
// absmax per sample.
struct LayerKind {
  const char* name;
  DType weights, activations;
};

// One linear layer whose input requires a gradient (widths: in, out), or a net (784, hidden ..., 10).
struct Case {
  LayerKind layer;
  std::string net;  // empty: a single layer
  int64_t batch = 0;
  std::vector<int64_t> widths;

  std::string shape() const;  // "512,4096,4096"
};

// A net defined by a configuration (bench_step_net.h).
struct NetCase {
  std::string name;   // built-in name, or a file
  int64_t batch = 0;  // 0: as in the configuration
};

struct Options {
  std::vector<Case> cases;
  std::vector<NetCase> nets;
  std::vector<int64_t> sample{32, 32, 3};  // for nets
  int64_t classes = 0;                     // for nets; 0: 10, or 65 for language models
  std::vector<std::string> overrides;      // for nets
  bool grad_given = false;                 // else nets keep the dtypes of their configuration
  ProductMode grad = ProductMode::kFp32;   // for both backward products
  Rounding rounding = Rounding::kStochastic;
  MomentKind moments = MomentKind::kFp32;
  MasterKind master = MasterKind::kFp32;
  int64_t accumulate = 1;
  bool norm_clip = false, parts = true, rivals = true, memory = true;
  bool qat = false;                  // bench_step_qat.h
  std::vector<std::string> schemes;  // for qat; empty: all
  Device device;                     // other than the CPU: wall time, no rivals, no memory account
  bool recorded = false;             // run the step as recorded graphs of a device
  int threads = 1;
  int64_t repeat = 7;
  std::string json, compare;
  double slack = 0.9;
};

// Throws cli::UsageError, cli::HelpShown or Error.
Options parse_options(cli::Arguments& args, int argc, char** argv);

}  // namespace bitgrad::bench
