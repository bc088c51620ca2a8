// oneDNN's matrix product and convolution, the rivals of the benchmark programs. Absent if bitgrad is built without
// oneDNN.
#pragma once

#if BITGRAD_WITH_ONEDNN
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace bitgrad::bench::onednn {

enum class Number : uint8_t { kF32, kBf16, kS8, kU8, kS32 };
constexpr int64_t bytes_of(Number x) {
  return x == Number::kF32 || x == Number::kS32 ? 4 : (x == Number::kBf16 ? 2 : 1);
}

// C[m,n] (+)= A[m,k] B[k,n], with dense operands and dense rows of C. A is stored [m,k], or [k,m] if a_k_major; B is
// stored [n,k], or [k,n] if b_k_major.
struct Spec {
  int64_t m, n, k;
  Number a, b, c;
  bool a_k_major = false, b_k_major = false;
  bool add = false;  // accumulate into C
};

// How the operands get into the layout that oneDNN prefers.
enum class Packing : uint8_t {
  kBefore,    // once, when the product is created: not timed
  kPlain,     // by oneDNN, inside the product
  kWeights,   // reorder B in each run
  kOperands,  // reorder A and B in each run
};

// Returns a function that runs the product on these operands, which must outlive it, with OpenMP's number of threads.
// nullptr if oneDNN does not support it (bf16 without AVX-512).
std::function<void()> product(const Spec& spec, const void* a, const void* b, void* c, Packing packing);
// The product with the fastest packing that is repeated in each run, found by trial.
std::function<void()> fastest_product(const Spec& spec, const void* a, const void* b, void* c);

// A convolution of images [n,h,w,c] with weights [o,kernel,kernel,c], no bias; equal stride and padding on all sides.
struct ConvolutionSpec {
  int64_t n, h, w, c, o, kernel, stride, pad;
  Number number = Number::kF32;  // of the inputs: fp32 or bf16; results are fp32
  // Images are stored NHWC. Otherwise all three tensors have the layout that oneDNN prefers; reorders are not timed.
  bool nhwc = false;
};
enum class ConvolutionPass : uint8_t { kForward, kInput, kWeights };  // kInput, kWeights: the gradient of that operand

// Returns a function that runs one pass (direct algorithm, as frameworks use) on its own operands, filled with ones.
// Weights have the layout that oneDNN prefers. nullptr if oneDNN does not support it.
std::function<void()> convolution(const ConvolutionSpec& spec, ConvolutionPass pass);

std::string version();
void set_threads(int threads);

}  // namespace bitgrad::bench::onednn
#endif
