// cuBLASLt, loaded at run time and never linked: where it is looked for, and one product by it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bitgrad::cuda::gemm {

// The functions of the library that are used; `path` is the name that it was found by.
struct CublasLt;

// Names to try, in this order: $BITGRAD_CUBLASLT alone where it is set; else the plain sonames; the folders in which
// Python packages keep the library ($VIRTUAL_ENV, $CONDA_PREFIX, the environment of the python3 of the PATH, ~/.local,
// the system's); the toolkit's ($CUDA_HOME, $CUDA_PATH, /usr/local/cuda).
std::vector<std::string> cublaslt_candidates();
// The first candidate that loads and has all functions; null, and `why` says what is wrong with each.
std::shared_ptr<CublasLt> open_cublaslt(const std::vector<std::string>& candidates, std::string* why);
// The library of this process, looked for once; null when there is none.
CublasLt* cublaslt();
// "cuBLASLt: libcublasLt.so.13", or why there is none.
std::string describe_cublaslt();

enum class LtType { kFp32, kBf16, kInt8, kInt32 };

// C[m, n] = A B^T (+ C) (+ bias[n]), rows of C apart by ldc. lda, ldb: elements between stored rows. k_major: stored
// [k, free]. Accumulates in fp32 without TF32; int8 in int32.
struct LtProduct {
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  bool a_k_major = false, b_k_major = false, accumulate = false;
  LtType in = LtType::kFp32, out = LtType::kFp32;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const float* bias = nullptr;
};
// On the current device and stream. Of floats the library's first algorithm is taken, so that the bits are those of
// every other process; int8 into int32 is exact, so the first product of a shape times several algorithms, unless a
// graph is being captured or C is added to. False where the library has no algorithm for the shape: nothing was done,
// and it is not asked again. Throws Error(kDevice) with any other status of the library.
bool run_cublaslt(CublasLt& library, const LtProduct& product);

}  // namespace bitgrad::cuda::gemm
