// The command line of bench_step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/nn/layers.h"
#include "cli/arguments.h"

namespace bitgrad::bench {

// Codes of weights and activations. Weights: sign, or absmax per output; activations: sign with the clip rule, or
// absmax per sample.
struct LayerKind {
  const char* name;
  DType weights, activations;
};

// One linear layer whose input wants a gradient (widths: in, out), or a net (784, hidden ..., 10).
struct Case {
  LayerKind layer;
  std::string net;  // empty: a layer alone
  int64_t batch = 0;
  std::vector<int64_t> widths;

  std::string shape() const;  // "512,4096,4096"
};

// A net of a configuration: bench_step_net.h.
struct NetCase {
  std::string name;   // built in, or a file
  int64_t batch = 0;  // 0: that of the configuration
};

struct Options {
  std::vector<Case> cases;
  std::vector<NetCase> nets;
  std::vector<int64_t> sample{32, 32, 3};  // of nets
  int64_t classes = 0;                     // of nets; 0: 10, of language models 65
  std::vector<std::string> overrides;      // of nets
  bool grad_given = false;                 // nets keep their own otherwise
  ProductMode grad = ProductMode::kFp32;   // of both backward products
  Rounding rounding = Rounding::kStochastic;
  MomentKind moments = MomentKind::kFp32;
  MasterKind master = MasterKind::kFp32;
  int64_t accumulate = 1;
  bool norm_clip = false, parts = true, rivals = true, memory = true;
  bool qat = false;                  // bench_step_qat.h
  std::vector<std::string> schemes;  // of qat; empty: all
  Device device;                     // not the CPU: wall time, no rivals and no account of memory
  bool recorded = false;             // the step as graphs of a device
  int threads = 1;
  int64_t repeat = 7;
  std::string json, compare;
  double slack = 0.9;
};

// Throws cli::UsageError, cli::HelpShown, Error.
Options parse_options(cli::Arguments& args, int argc, char** argv);

}  // namespace bitgrad::bench
