// How gemm kernels are chosen, in public: the expected cost of each kernel, factors on those costs that were measured
// on this machine, and the verdict on every kernel for one product.
//
// A kernel's own cost function holds constants of the machine it was written on. A factor table (`bitgrad kernels
// --calibrate`) corrects them: expected ns = kernel.cost(args) * factor(kernel, class of m). Factors move the choice
// among kernels that are legal; in strict mode these all have the same bits, in fast mode another choice may mean other
// bits of float products (checkpoints record a hash of the costs).
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::kernels {

// Classes of m: 1, 2 to 16, 17 to 128, more. Kernels differ in how they serve few rows of A.
inline constexpr int kGemmCostClasses = 4;
int gemm_cost_class(int64_t m);

struct GemmCostFactors {
  std::string kernel;
  std::array<double, kGemmCostClasses> factor{1, 1, 1, 1};  // measured / estimated nanoseconds, each > 0
};

// Nanoseconds on one thread, with the factors in use.
double gemm_cost(const GemmKernel& kernel, const GemmArgs& args);

// Replaces the factors in use; kernels that are not named have 1. Cached choices are forgotten. Throws Error for a
// kernel that is named twice, or a factor that is not a finite number above 0. Unknown kernels are kept out silently: a
// table may come from a build with other libraries.
void set_gemm_costs(std::vector<GemmCostFactors> factors);
std::vector<GemmCostFactors> gemm_costs();
// Grows with each set_gemm_costs.
uint64_t gemm_costs_generation();

// Measures each vector kernel that takes a product here now, on small random ones (ten seconds, one thread, processor
// time), against the shipped constants. `progress` gets each kernel's name before it is measured; may be empty.
std::vector<GemmCostFactors> calibrate_gemm(const std::function<void(std::string_view)>& progress);

// $BITGRAD_GEMM_COSTS, else $XDG_CACHE_HOME/bitgrad/gemm_costs.txt, else $HOME/.cache/bitgrad/gemm_costs.txt; empty
// when none of the three is set.
std::string gemm_costs_path();
// Text: a head with the CPU's name, then a line a kernel. Atomic; missing directories are made.
void save_gemm_costs(const std::string& path, const std::vector<GemmCostFactors>& factors);
// Reads and uses the table. False, and nothing changes, when there is no such file, or it was measured on another CPU
// (a warning is logged). Throws Error(kData) that names the line when the file is damaged.
bool load_gemm_costs(const std::string& path);

enum class GemmVerdict {
  kChosen,
  kDearer,       // usable, at a higher cost
  kNeedsIsa,     // the machine, or the cap, does not grant its instructions
  kUnsupported,  // not for these operands or this output
  kOrder,        // its order of summation is not the one of strict mode
};
struct GemmCandidate {
  const GemmKernel* kernel;
  GemmVerdict verdict;
  double ns;  // expected; 0 unless chosen or dearer
};
// Every kernel of the family, in the order of the list, judged as plan_gemm judges them.
std::vector<GemmCandidate> explain_gemm(const GemmArgs& args);
std::string_view verdict_name(GemmVerdict verdict);  // "chosen", "slower", "needs instructions", ...

}  // namespace bitgrad::kernels
