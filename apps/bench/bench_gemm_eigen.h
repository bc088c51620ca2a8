// Eigen's fp32 product. Eigen chooses its instructions when it is compiled, so it lies in small libraries of its own,
// one an instruction set (eigen/eigen.cpp); the one that this machine can run is opened at run time.
#pragma once

#include <cstdint>

namespace bitgrad::bench {

// C[m,n] (+)= A[m,k] B[k,n], dense. A stored [m,k], or [k,m] when k-major; B stored [n,k], or [k,n].
struct EigenProduct {
  int64_t m, n, k;
  bool a_k_major, b_k_major, add;
  const float *a, *b;
  float* c;
};
using EigenSgemm = void (*)(const EigenProduct& product);

// nullptr where bitgrad was built without Eigen, or the CPU has neither AVX2 nor AVX-512.
EigenSgemm find_eigen();

}  // namespace bitgrad::bench
