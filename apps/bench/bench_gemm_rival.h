// oneDNN's fp32 product, prepacked, beside which bench_gemm measures.
#pragma once

#include <vector>

#include "bench_gemm_measure.h"
#include "bench_gemm_options.h"

namespace bitgrad::bench {

// Adds it in front; nothing where bitgrad was built without oneDNN.
void add_rival(const Shape& shape, std::vector<Contestant>& all);

}  // namespace bitgrad::bench
