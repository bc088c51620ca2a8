// The parts of bench_gemm: its command line, operands, peak rates, rivals, products on a device and of convolutions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/dtype/layout.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/ops/spatial.h"

#include "shared/common.h"
#include "shared/measure.h"

namespace bitgrad::bench {

// The command line of bench_gemm.

// The named convolutions of bench_gemm --conv.

// Images [n,h,w,c], o outputs; kernel, stride and padding are equal on all sides.
struct ConvShape {
  std::string name;
  int64_t n, h, w, c, o, kernel, stride, pad;

  Conv2dOptions options() const;
  std::array<int64_t, 2> output() const { return conv2d_output(h, w, options()); }
  int64_t rows() const { return n * output()[0] * output()[1]; }
  int64_t k() const { return kernel * kernel * c; }
  double gmacs() const { return static_cast<double>(rows()) * static_cast<double>(o * k()) / 1e9; }
  std::string text() const;  // in the form that --shape accepts
};

// One shape per word n,h,w,c,o,kernel,stride,pad; any other word selects all shapes whose names start with it (empty:
// all). Throws Error.
std::vector<ConvShape> parse_conv_shapes(const std::vector<std::string>& words);

struct ProductShape {
  int64_t m, n, k;
};
// One product: its dtypes, and the product that determines how the operands are stored.
struct Case {
  DType a, b;
  std::string product;  // forward, gx, gw
};
struct Options : SharedOptions {  // a device other than the CPU: run_on_device; threads: of convolutions
  Options() : SharedOptions{.repeat = 11} {}
  std::vector<ProductShape> shapes;
  std::vector<Case> cases;
  std::vector<std::string> rivals;
  std::string kernel, guard, record;
  int64_t group = 0;                      // group size of B's scales along k; 0: no scales
  bool b_offset = false, a_zero = false;  // B has real offsets; A has a zero point per row
  bool fast_rows = false;                 // leave out reference kernels and libraries
  bool conv = false;                      // convolutions: run_conv
  std::vector<ConvShape> convs;
  std::vector<ProductMode> grads;  // of gradients in convolutions
  bool a_k_major_flag = false, b_k_major_flag = false;

  std::string product = "forward";  // of the case being measured
  bool a_k_major() const { return a_k_major_flag || product == "gw"; }
  bool b_k_major() const { return b_k_major_flag || product != "forward"; }
  bool accumulate() const { return product == "gw"; }
};

// Throws cli::UsageError, cli::HelpShown or Error.
Options parse_options(cli::Arguments& args, int argc, char** argv);

// Random operands of bench_gemm.

// A random [rows, cols] matrix in canonical layout.
struct Matrix {
  DType dtype;
  int64_t rows, cols, stride;
  Bytes bytes;
  std::vector<float> scales, offsets;
  std::vector<int32_t> zeros;
  ScaleMap map;  // without parameters until some are added

  Matrix(DType type, int64_t r, int64_t c, std::mt19937& rng);
  // Adds scales for groups of `group` along k (0: one per free index), and on request real offsets.
  void add_scales(bool k_major, int64_t group, bool with_offsets, std::mt19937& rng);
  // Adds a zero point per free index.
  void add_zeros(bool k_major, std::mt19937& rng);
};

// The same codes in the layout that a kernel reads; nullptr if the layout does not support the dtype.
std::unique_ptr<Bytes> packed(Matrix& x, Layout layout);

// Peak rates of this machine's arithmetic units, measured by loops that stay in registers. bench_gemm reports each
// kernel's share of the fastest unit for its pair of dtypes.

struct UnitPeak {
  std::string name;
  double gmacs;  // 1e9 multiply-adds per second on one thread
};

// This thread's current clock in cycles per nanosecond (GHz), measured with a chain of 64-bit multiplications of three
// cycles each (Intel since Nehalem, AMD since Zen). 0 on machines other than x86-64.
double clock_ghz();

class Units {
 public:
  // Measures every unit of the granted instruction sets alternately; medians of `repeat` runs.
  explicit Units(int64_t repeat);
  // The fastest unit for products of these dtypes; nullptr if none was measured (cap `scalar`, other architectures).
  const UnitPeak* fastest(DType a, DType b) const;

 private:
  struct Measured {
    UnitPeak peak;
    bool (*serves)(DType a, DType b);
  };
  std::vector<Measured> units_;
};

// The libraries that bench_gemm compares with: oneDNN (fp32, bf16 -> fp32, int8 -> int32; both operands prepacked),
// OpenBLAS and Eigen (fp32, from plain rows). Each computes the product of the same shape and operand order on one
// thread.
struct Rival {
  std::string id;  // as in --rivals and in the report's field "x_<id>"
  std::string text;
};
// Adds the selected rivals that are built in and run on this machine. Returns them in the order in which they were
// added.
std::vector<Rival> add_rivals(const Options& options, const ProductShape& shape, std::vector<Contestant>& all);
std::vector<std::string> rival_ids();

// Products of bench_gemm on a CUDA device.

// Measures every usable kernel of the device on the products of `options`: codes -> bf16 with a scale per row of A and
// of B, on random operands. Each is compared with the same product of random bf16 values by the kernel that the device
// selects for it (cuBLASLt if found). Reports wall time of series of launches that are synchronized at their end,
// cycling through operands that exceed the L2 cache, and the bandwidth of a copy. Returns the exit status.
int run_on_device(const Options& options);

// bench_gemm --conv: the products of convolutions, compared with oneDNN.

// For each shape and product, measures alternately: conv2d for every pair of dtypes (A x B: images by weights; gx:
// gradients by weights; gw: gradients by images, gradients in the dtype of --grad), its window moves alone (gathering
// all windows, or for gx adding all sums back into images), and oneDNN. The whole op is timed: rounding of gradients,
// packing, moves and product, but not the packing of weights, which training does once per step. int8 gradients are
// rounded stochastically. Rivals: onednn_f32 and onednn_bf16 with all operands in oneDNN's preferred formats (reorders
// are not timed); onednn_f32_nhwc and onednn_bf16_nhwc with NHWC images, as in bitgrad. Returns 0, or 1 if --compare
// found a loss.
int run_conv(const Options& options);

// The values of --rivals that apply to --conv.
std::vector<std::string> conv_rival_ids();

// bitgrad's side of bench_gemm --conv.

// One product of a convolution of these dtypes. forward: images x by weights w; gx and gw: the gradient in `mode`.
struct ConvProduct {
  ConvShape shape;
  std::string product;  // forward, gx, gw
  DType x, w;
  ProductMode mode = ProductMode::kFp32;

  DType a() const;  // operand dtypes of the product; a(): x in forward, else the dtype of gradients in the mode
  DType b() const { return product == "gw" ? x : w; }
};

// Whether conv2d supports the mode for these dtypes.
bool takes(const ConvProduct& what);
// conv2d, or one part of its backward pass, on random operands. Codes of kinds int and uint have one scale per tensor.
// Weights are in the layout that training plans.
Contestant conv_contestant(const ConvProduct& what);
// The moves of the op without its product, by the same kernel in blocks of as many windows: gathers the windows of the
// images, or for gx adds sums of windows into images. A no-op where windows are the pixels themselves.
Contestant conv_moves(const ConvProduct& what);

}  // namespace bitgrad::bench
