// The libraries that bench_gemm compares with: oneDNN (fp32, bf16 -> fp32, int8 -> int32; both operands prepacked),
// OpenBLAS and Eigen (fp32, from plain rows). Each computes the product of the same shape and operand order on one
// thread.
#pragma once

#include <string>
#include <vector>

#include "bench_gemm_options.h"
#include "shared/measure.h"

namespace bitgrad::bench {

struct Rival {
  std::string id;  // as in --rivals and in the report's field "x_<id>"
  std::string text;
};
// Adds the selected rivals that are built in and run on this machine. Returns them in the order in which they were
// added.
std::vector<Rival> add_rivals(const Options& options, const ProductShape& shape, std::vector<Contestant>& all);
std::vector<std::string> rival_ids();

}  // namespace bitgrad::bench
