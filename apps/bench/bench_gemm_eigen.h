// Eigen's fp32 product. Eigen selects its instructions at compile time, so it is built into small libraries, one per
// instruction set (eigen/eigen.cpp). The one that suits this machine is opened at run time.
#pragma once

#include <cstdint>

namespace bitgrad::bench {

// C[m,n] (+)= A[m,k] B[k,n], dense. A is stored [m,k], or [k,m] if k-major; B is stored [n,k], or [k,n] if k-major.
struct EigenProduct {
  int64_t m, n, k;
  bool a_k_major, b_k_major, add;
  const float *a, *b;
  float* c;
};
using EigenSgemm = void (*)(const EigenProduct& product);

// nullptr if bitgrad was built without Eigen, or the CPU has neither AVX2 nor AVX-512.
EigenSgemm find_eigen();

}  // namespace bitgrad::bench
