// cuBLASLt, loaded at run time and never linked: where to look for it, and one product through it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/kernels/gemm.h"

namespace bitgrad::cuda::gemm {

// The library functions in use; `path` is the name under which the library was found.
struct CublasLt;

// Names to try, in order: $BITGRAD_CUBLASLT alone if it is set; otherwise the plain sonames; the folders where Python
// packages install the library ($VIRTUAL_ENV, $CONDA_PREFIX, the environment of the python3 on the PATH, ~/.local, the
// system's); the toolkit's ($CUDA_HOME, $CUDA_PATH, /usr/local/cuda).
std::vector<std::string> cublaslt_candidates();
// The first candidate that loads and has all functions. If there is none, returns nullptr and sets `why` to what is
// wrong with each.
std::shared_ptr<CublasLt> open_cublaslt(const std::vector<std::string>& candidates, std::string* why);
// The library of this process, looked up once: when a product is selected that it could run. nullptr if there is none.
CublasLt* cublaslt();
// "cuBLASLt: libcublasLt.so.13", or the reason why there is none.
std::string describe_cublaslt();

enum class LtType { kFp32, kBf16, kInt8, kInt32 };

// C[m, n] = A B^T (+ C) (+ bias[n]). lda, ldb and ldc are row strides in elements. k_major means stored as [k, free].
// Accumulates in fp32 without TF32, or in int32 for int8.
struct LtProduct {
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  bool a_k_major = false, b_k_major = false, accumulate = false;
  LtType in = LtType::kFp32, out = LtType::kFp32;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const float* bias = nullptr;
};
// Runs on the current device and stream. Float products use the library's first algorithm, so that every process gets
// the same bits. int8 into int32 is exact, so the first product of a shape times several algorithms, unless a graph is
// being captured or the product accumulates into C. Returns false, having done nothing, if the library has no algorithm
// for the shape; it is not asked again for that shape. Throws Error(kDevice) for any other status of the library.
bool run_cublaslt(CublasLt& library, const LtProduct& product);

// Products of floats with codes through a float product: codes are dequantized to fp32, bf16 is widened. For mode fast,
// where such products would otherwise run on a reference kernel.

// Whether run_expanded supports `args`: a float product by definition (bitgrad/kernels/gemm.h) in which one side is
// codes of at most 8 bits in canonical rows, and the other is such codes or plain fp32 or bf16. C is fp32, or bf16 that
// is overwritten and rounded to nearest. A scale for which fold_b_scale is set stays with B's values, so s q is rounded
// once instead of s a.
bool expands(const kernels::GemmArgs& args);
// Expands the operands and calls `product` with fp32 operands and C. `product` returns whether it ran. If it did not,
// returns false and leaves C unchanged.
bool run_expanded(const kernels::GemmArgs& args, bool (*product)(const LtProduct&));
// Nanoseconds of the expansion.
double expansion_cost(const kernels::GemmArgs& args);

}  // namespace bitgrad::cuda::gemm
