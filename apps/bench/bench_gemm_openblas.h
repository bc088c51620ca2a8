// OpenBLAS's sgemm, opened at run time if installed (libopenblas.so.0). bitgrad does not need it to build.
#pragma once

namespace bitgrad::bench {

// cblas_sgemm: order, transposition of A and of B, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc. Uses one thread.
using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
inline constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;  // of the CBLAS standard

// nullptr if OpenBLAS is not installed.
Sgemm find_openblas();

}  // namespace bitgrad::bench
