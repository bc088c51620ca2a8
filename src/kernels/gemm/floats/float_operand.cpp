#include "kernels/gemm/floats/float_operand.h"
#include "base/simd.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "bitgrad/base/cpu.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// v[0..n) share one set of parameters.
template <typename Float>
void apply_constant(const ScaleMap& map, int64_t at, int64_t n, Float* v) {
  if (map.zero != nullptr) {
    const Float z = static_cast<Float>(map.zero[at]);
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] - z;
  }
  if (map.scale != nullptr) {
    const Float s = map.scale[at];
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] * s;
  }
  if (map.offset != nullptr) {
    const Float m = map.offset[at];
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] + m;
  }
}

// One set of parameters per element.
template <typename Float>
void apply_each(const ScaleMap& map, int64_t at, int64_t n, Float* v) {
  if (map.zero != nullptr) {
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] - static_cast<Float>(map.zero[at + j]);
  }
  if (map.scale != nullptr) {
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] * map.scale[at + j];
  }
  if (map.offset != nullptr) {
    for (int64_t j = 0; j < n; ++j) v[j] = v[j] + map.offset[at + j];
  }
}

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")
// The parameters at one position.
struct Params {
  __m512 z, s, m;
};
[[gnu::always_inline]] inline Params params_at(const ScaleMap& map, int64_t at) {
  return {_mm512_set1_ps(map.zero == nullptr ? 0.0f : static_cast<float>(map.zero[at])),
          _mm512_set1_ps(map.scale == nullptr ? 1.0f : map.scale[at]),
          _mm512_set1_ps(map.offset == nullptr ? 0.0f : map.offset[at])};
}
// A zero point of 0 and a scale of 1 change no bits, but an offset of 0 would change the sign of a zero.
template <bool kOffset>
[[gnu::always_inline]] inline __m512 value_of(__m512 q, const Params& p) {
  const __m512 x = _mm512_mul_ps(_mm512_sub_ps(q, p.z), p.s);
  return kOffset ? _mm512_add_ps(x, p.m) : x;
}
[[gnu::always_inline]] inline __mmask16 first_of(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFFu : (1u << n) - 1u);
}

// Stores the end of a run.
[[gnu::always_inline]] inline void store(float* out, int64_t n, __m512 v) {
  if (n >= 16)
    _mm512_storeu_ps(out, v);
  else
    _mm512_mask_storeu_ps(out, first_of(n), v);
}

// Columns [c0, c0 + n), split into runs that share parameters.
struct Runs {
  int64_t at, step, group, left, n;
};

// Places each byte in 64 bits, once shifted left by 28, so that the low bits of each half are one of its two codes.
[[gnu::always_inline]] inline __m512 look_up(__m128i bytes, __m512 values) {
  const __m512i w = _mm512_cvtepu8_epi64(bytes);
  return _mm512_permutexvar_ps(_mm512_or_si512(w, _mm512_slli_epi64(w, 28)), values);
}

// Codes of 4 bits, starting at an even column. Each run looks its values up in a table of 16 that is computed once per
// run.
template <bool kOffset>
void nibbles_avx512(const float* numbers, const uint8_t* p, const ScaleMap& map, Runs runs, float* out) {
  const __m512 table = _mm512_loadu_ps(numbers);
  for (int64_t j = 0; j < runs.n; runs.at += runs.step, runs.left = runs.group) {
    const int64_t run = runs.left < runs.n - j ? runs.left : runs.n - j;
    const __m512 values = value_of<kOffset>(table, params_at(map, runs.at));
    int64_t i = 0;
    for (; i + 16 <= run; i += 16)
      _mm512_storeu_ps(out + j + i,
                       look_up(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + (j + i) / 2)), values));
    if (i < run) {
      const auto bytes = static_cast<__mmask16>((1u << ((run - i + 1) / 2)) - 1u);
      const __m128i in = _mm_maskz_loadu_epi8(bytes, p + (j + i) / 2);
      _mm512_mask_storeu_ps(out + j + i, first_of(run - i), look_up(in, values));
    }
    j += run;
  }
  _mm256_zeroupper();
}

[[gnu::always_inline]] inline __m512 number_of(__m128i bytes, bool sign) {
  return _mm512_cvtepi32_ps(sign ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
}

template <bool kOffset>
void bytes_avx512(bool sign, const uint8_t* p, const ScaleMap& map, Runs runs, float* out) {
  for (int64_t j = 0; j < runs.n; runs.at += runs.step, runs.left = runs.group) {
    const int64_t run = runs.left < runs.n - j ? runs.left : runs.n - j;
    const Params params = params_at(map, runs.at);
    int64_t i = 0;
    for (; i + 16 <= run; i += 16) {
      const __m512 q = number_of(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + j + i)), sign);
      _mm512_storeu_ps(out + j + i, value_of<kOffset>(q, params));
    }
    if (i < run) {
      const __mmask16 mask = first_of(run - i);
      const __m512 q = number_of(_mm_maskz_loadu_epi8(mask, p + j + i), sign);
      _mm512_mask_storeu_ps(out + j + i, mask, value_of<kOffset>(q, params));
    }
    j += run;
  }
  _mm256_zeroupper();
}

// Runs of `group` columns, starting with the one that contains c0; their parameters are `step` apart.
template <bool kOffset>
void apply_runs_avx512(const ScaleMap& map, int64_t at, int64_t step, int64_t group, int64_t c0, int64_t n, float* v) {
  int64_t left = group - c0 % group;
  for (int64_t j = 0; j < n; at += step, left = group) {
    const int64_t run = left < n - j ? left : n - j;
    const Params params = params_at(map, at);
    for (int64_t i = 0; i < run; i += 16) {
      const __m512 q = _mm512_maskz_loadu_ps(first_of(run - i), v + j + i);
      store(v + j + i, run - i, value_of<kOffset>(q, params));
    }
    j += run;
  }
  _mm256_zeroupper();
}
#pragma GCC pop_options

// A single set of parameters for all columns is a single run.
bool apply_by_vectors(const ScaleMap& map, int64_t r, int64_t c0, int64_t n, float* v) {
  if ((cpu_isa() & isa::kAvx512) == 0 || n <= 0) return false;
  const bool one = map.col_step == 0;
  const auto apply = map.offset != nullptr ? apply_runs_avx512<true> : apply_runs_avx512<false>;
  apply(map, map.index(r, one ? 0 : c0), map.col_step, one ? c0 + n : map.col_group, one ? 0 : c0, n, v);
  return true;
}

// How the loops treat a dtype's codes. Cached, because searching the list of dtypes takes as long as processing a row.
enum class Form : uint8_t { kUnknown, kOther, kNibbles, kInt8, kUint8 };
Form form_of(DType dtype) {
  static std::array<std::atomic<Form>, 256> forms;
  std::atomic<Form>& known = forms[dtype.id()];
  Form form = known.load(std::memory_order_relaxed);
  if (form != Form::kUnknown) return form;
  const int bits = dtype.is_code() ? dtype.bits() : 0;
  form = bits == 4 ? Form::kNibbles : Form::kOther;
  if (bits == 8 && dtype.kind() == DTypeKind::kInt) form = Form::kInt8;
  if (bits == 8 && dtype.kind() == DTypeKind::kUint) form = Form::kUint8;
  known.store(form, std::memory_order_relaxed);
  return form;
}

bool read_by_vectors(DType dtype, const void* row, const ScaleMap& map, int64_t r, int64_t c0, int64_t n, float* out) {
  const Form form = form_of(dtype);
  if (form == Form::kOther) return false;
  const bool one = map.col_step == 0, nibbles = form == Form::kNibbles, offset = map.offset != nullptr;
  if (nibbles && (c0 % 2 != 0 || (!one && map.col_group % 2 != 0))) return false;
  if (!one && map.col_group == 1) return false;
  const Runs runs{map.index(r, one ? 0 : c0), map.col_step, map.col_group, one ? n : map.col_group - c0 % map.col_group,
                  n};
  const uint8_t* codes = static_cast<const uint8_t*>(row) + (nibbles ? c0 / 2 : c0);
  if (nibbles)
    (offset ? nibbles_avx512<true> : nibbles_avx512<false>)(code_values(dtype), codes, map, runs, out);
  else
    (offset ? bytes_avx512<true> : bytes_avx512<false>)(form == Form::kInt8, codes, map, runs, out);
  return true;
}
bool apply_by_vectors(const ScaleMap&, int64_t, int64_t, int64_t, double*) { return false; }

template <typename Float>
void apply(const ScaleMap& map, int64_t r, int64_t c0, int64_t n, Float* v) {
  if (map.col_step == 1 && map.col_group == 1) return apply_each(map, map.index(r, c0), n, v);
  if (apply_by_vectors(map, r, c0, n, v)) return;
  if (map.col_step == 0) return apply_constant(map, map.index(r, 0), n, v);
  for (int64_t j = 0; j < n;) {
    const int64_t c = c0 + j;
    const int64_t run = std::min(n - j, map.col_group - c % map.col_group);
    apply_constant(map, map.index(r, c), run, v + j);
    j += run;
  }
}

// Parameters of quantized values, each operation rounded once.
// Reads codes and applies parameters in one step, with the same bits: out[j] = value of element (r, c0 + j) of
// canonical codes whose row r begins at `row`; without parameters, the code value. Returns false without doing anything
// if the machine, the width of the codes or the start of a group is not supported.
bool values_by_vectors(DType dtype, const void* row, const ScaleMap& map, int64_t r, int64_t c0, int64_t n,
                       float* out) {
  return n > 0 && (cpu_isa() & isa::kAvx512) != 0 && read_by_vectors(dtype, row, map, r, c0, n, out);
}
// v[j] for element (r, c0 + j) of the stored matrix, j < n. The bits do not depend on the instruction set.
void apply_params(const ScaleMap& map, int64_t r, int64_t c0, int64_t n, float* v) { apply(map, r, c0, n, v); }
void apply_params(const ScaleMap& map, int64_t r, int64_t c0, int64_t n, double* v) { apply(map, r, c0, n, v); }

// Whether the scale depends on the stored row, or on the stored column.
bool by_row(const ScaleMap& map) { return map.row_step != 0; }
bool by_column(const ScaleMap& map) { return map.col_step != 0; }

}  // namespace

void read_values(const GemmOperand& x, int64_t r, int64_t c0, int64_t n, bool bare, float* out) {
  static const ScaleMap kNone;
  if (values_by_vectors(x.dtype, stored_row(x, r), bare ? kNone : x.scale, r, c0, n, out)) return;
  unpack_row(x.dtype, stored_row(x, r), c0, n, out);
  if (!bare && !x.scale.trivial()) apply_params(x.scale, r, c0, n, out);
}

void read_values(const GemmOperand& x, int64_t r, int64_t c0, int64_t n, bool bare, double* out) {
  if (bare || x.scale.trivial() || x.dtype == dtypes::fp64) {
    unpack_row(x.dtype, stored_row(x, r), c0, n, out);
    if (!bare && !x.scale.trivial()) apply_params(x.scale, r, c0, n, out);
    return;
  }
  constexpr int64_t kPiece = 256;
  float piece[kPiece];
  for (int64_t j = 0; j < n; j += kPiece) {
    const int64_t count = std::min(kPiece, n - j);
    read_values(x, r, c0 + j, count, bare, piece);
    std::copy(piece, piece + count, out + j);
  }
}

Fold fold_of(const GemmArgs& args) {
  if (!args.fold_b_scale || args.b.scale.scale == nullptr) return Fold::kNone;
  const bool by_n = args.b.k_major ? by_column(args.b.scale) : by_row(args.b.scale);
  return by_n ? Fold::kOntoSum : Fold::kIntoA;
}

bool fold_is_legal(const GemmArgs& args) {
  if (!args.fold_b_scale || args.b.scale.trivial()) return true;
  const ScaleMap& map = args.b.scale;
  return map.zero == nullptr && map.offset == nullptr && !(by_row(map) && by_column(map));
}

}  // namespace bitgrad::kernels::gemm_detail
