// The loops of family conv for the baseline ISA, and those in double: the reference.
#include <cmath>

#include "kernels/conv/loops.h"

namespace bitgrad::kernels::conv {
namespace scalar {
namespace {

template <typename Number>
struct Scalars {
  using T = Number;
  using V = Number;
  struct Mask {};
  static constexpr int64_t kWidth = 1;
  static constexpr int kVectors = 4, kPanelVectors = 1;
  static Mask mask(int64_t) { return {}; }
  static V zero() { return 0; }
  static V load(const T* p) { return *p; }
  static V load_part(const T* p, Mask) { return *p; }
  static V load_floats(const float* p, Mask, bool) { return *p; }
  static void store(T* p, V v) { *p = v; }
  static void store_part(T* p, V v, Mask) { *p = v; }
  static V fma(V a, V b, V c) { return std::fma(a, b, c); }
  static V mul(V a, V b) { return a * b; }
  static V add(V a, V b) { return a + b; }
  // v in the lanes whose bit (from the low end of `bits`) is set, otherwise 0.
  static V where(uint64_t bits, V v) { return (bits & 1) != 0 ? v : V{0}; }
  // Bit i: whether byte i equals `value`.
  static constexpr int64_t kBytes = 1;
  static uint64_t matches(const uint8_t* p, uint8_t value) { return *p == value; }
  static void end() {}
};
using Floats = Scalars<float>;

#include "kernels/conv/loops.inc"

}  // namespace
}  // namespace scalar

const WindowLoops& loops_scalar() { return scalar::kLoops; }
void chain_fp64(const ChainCall<double>& call) { scalar::chain<scalar::Scalars<double>>(call); }
void panel_fp64(const PanelCall<double>& call) { scalar::panel<scalar::Scalars<double>>(call); }

}  // namespace bitgrad::kernels::conv
