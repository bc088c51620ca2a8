// The libraries beside which bench_gemm measures: oneDNN (fp32, bf16 -> fp32, int8 -> int32; both operands prepacked),
// OpenBLAS and Eigen (fp32, from plain rows). Each takes the product of the same shape and operand order, one thread.
#pragma once

#include <string>
#include <vector>

#include "bench_gemm_options.h"
#include "shared/measure.h"

namespace bitgrad::bench {

struct Rival {
  std::string id;  // of --rivals, and of the field "x_<id>" of the report
  std::string text;
};
// Adds the chosen rivals that are built in and that this machine can run; gives them in the order in which they stand.
std::vector<Rival> add_rivals(const Options& options, const ProductShape& shape, std::vector<Contestant>& all);
std::vector<std::string> rival_ids();

}  // namespace bitgrad::bench
