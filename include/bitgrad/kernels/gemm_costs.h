// How gemm kernels are chosen: the expected cost of each kernel, measured correction factors for this machine, and the
// verdict on every kernel for a given product.
//
// The cost function of a kernel has constants of the machine on which it was written. A factor table (`bitgrad kernels
// --calibrate`) corrects them: expected ns = kernel.cost(args) * factor(kernel, class of m). Factors affect only the
// choice among legal kernels. In strict mode those all have the same bits; in fast mode another choice may change the
// bits of float products (checkpoints record a hash of the costs).
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels {

// Classes of m: 1, 2 to 16, 17 to 128, more. Kernels differ in how efficiently they handle few rows of A.
inline constexpr int kGemmCostClasses = 4;
int gemm_cost_class(int64_t m);

struct GemmCostFactors {
  std::string kernel;
  std::array<double, kGemmCostClasses> factor{1, 1, 1, 1};  // measured / estimated ns, > 0
};

// Expected nanoseconds on one thread, with the current factors.
double gemm_cost(const GemmKernel& kernel, const GemmArgs& args);

// Replaces the factors; kernels not named have factor 1. Invalidates cached choices. Throws Error for a duplicate
// kernel, or a factor that is not finite and positive. Unknown kernels are ignored: the table may come from a build
// with other libraries.
void set_gemm_costs(std::vector<GemmCostFactors> factors);
std::vector<GemmCostFactors> gemm_costs();
// Incremented by every set_gemm_costs.
uint64_t gemm_costs_generation();

// Measures every vectorized or library kernel that is usable here, on small random products, relative to its cost
// function (about ten seconds, single-threaded, CPU time). `progress` (may be empty) is called with the name of each
// kernel before it is measured.
std::vector<GemmCostFactors> calibrate_gemm(const std::function<void(std::string_view)>& progress);

// $BITGRAD_GEMM_COSTS, else $XDG_CACHE_HOME/bitgrad/gemm_costs.txt, else $HOME/.cache/bitgrad/gemm_costs.txt; empty if
// none of these variables is set.
std::string gemm_costs_path();
// Writes a text file: a header with the CPU name, then one line per kernel. Atomic; creates missing directories.
void save_gemm_costs(const std::string& path, const std::vector<GemmCostFactors>& factors);
// Reads a table and applies it. Returns false, changing nothing, if the file does not exist or was measured on another
// CPU (which logs a warning). Throws Error(kData) naming the line if the file is malformed.
bool load_gemm_costs(const std::string& path);

enum class GemmVerdict {
  kChosen,
  kDearer,       // usable, at a higher cost
  kNeedsIsa,     // needs instructions that the machine or the cap does not allow
  kUnsupported,  // does not support these operands or this output
  kOrder,        // its order of summation is not allowed in strict mode
};
struct GemmCandidate {
  const GemmKernel* kernel;
  GemmVerdict verdict;
  double ns;  // expected; 0 unless kChosen or kDearer
};
// Every kernel of the family, in list order, judged as by plan_gemm.
std::vector<GemmCandidate> explain_gemm(const GemmArgs& args);
std::string_view verdict_name(GemmVerdict verdict);  // "chosen", "slower", ...

}  // namespace bitgrad::kernels
