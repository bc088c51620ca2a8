// oneDNN's matrix product and convolution, the rivals of the benchmark programs. Absent where bitgrad is built without
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

// C[m,n] (+)= A[m,k] B[k,n], C dense rows. Operands are dense; `_k_major`: A stored [k,m], B stored [k,n], else A [m,k]
// and B [n,k].
struct Spec {
  int64_t m, n, k;
  Number a, b, c;
  bool a_k_major = false, b_k_major = false;
  bool add = false;  // to what C holds
};

// Who brings the operands into the order in which oneDNN likes to read them.
enum class Packing : uint8_t {
  kBefore,    // once, when the product is made: the time of packing is not measured
  kPlain,     // oneDNN itself, inside the product
  kWeights,   // a reorder of B in each run
  kOperands,  // reorders of A and B in each run
};

// Runs the product on these operands, which must outlive it, on as many threads as OpenMP gives. nullptr where oneDNN
// cannot (bf16 without AVX-512).
std::function<void()> product(const Spec& spec, const void* a, const void* b, void* c, Packing packing);
// The fastest of the packings that repeat their work in each run, by trial.
std::function<void()> fastest_product(const Spec& spec, const void* a, const void* b, void* c);

// A convolution of images [n,h,w,c] with weights [o,kernel,kernel,c], no bias; equal stride and padding on all sides.
struct ConvolutionSpec {
  int64_t n, h, w, c, o, kernel, stride, pad;
  Number number = Number::kF32;  // of what is multiplied: fp32 or bf16; results are fp32
  // Images lie as NHWC; else all three lie as oneDNN likes best, and bringing them there is not measured.
  bool nhwc = false;
};
enum class ConvolutionPass : uint8_t { kForward, kInput, kWeights };  // kInput, kWeights: whose gradient is made

// Runs one pass (algorithm: direct, as frameworks do) on operands of its own, whose values are 1. Weights lie as oneDNN
// likes best. nullptr where oneDNN cannot.
std::function<void()> convolution(const ConvolutionSpec& spec, ConvolutionPass pass);

std::string version();
void set_threads(int threads);

}  // namespace bitgrad::bench::onednn
#endif
