// The last step of every product, in pieces of 64 columns. The formulas are in epilogue.h.
#include "kernels/gemm/common/epilogue.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "bitgrad/dtype/bf16.h"
#include "kernels/gemm/common/formulas.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kPiece = 64;

template <typename T>
T* c_at(const GemmArgs& args, int64_t i, int64_t j) {
  return static_cast<T*>(args.c) + i * args.ldc + j;
}

template <typename Float>
void add_bias(const GemmArgs& args, int64_t j0, int64_t count, Float* y) {
  if (args.bias == nullptr) return;
  const float* bias = args.bias + j0;
  for (int64_t j = 0; j < count; ++j) y[j] = y[j] + static_cast<Float>(bias[j]);
}

void store_bf16(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const float* y, bool stochastic) {
  uint16_t* c = c_at<uint16_t>(args, i, j0);
  if (stochastic) {
    uint16_t draws[kPiece];
    args.sr->fill_bits16(static_cast<uint64_t>(args.first_element + i * args.n + j0), count, draws);
    for (int64_t j = 0; j < count; ++j) c[j] = bf16_from_float_stochastic(y[j], draws[j]);
    return;
  }
  for (int64_t j = 0; j < count; ++j) c[j] = bf16_from_float(y[j]);
}

// Stores complete values y, at most kPiece of them.
void store(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, float* y) {
  if (args.c_dtype == dtypes::fp32) {
    float* c = c_at<float>(args, i, j0);
    if (args.accumulate) {
      for (int64_t j = 0; j < count; ++j) c[j] = c[j] + y[j];
    } else {
      std::copy(y, y + count, c);
    }
  } else if (args.c_dtype == dtypes::bf16) {
    if (args.accumulate) {
      const uint16_t* c = c_at<uint16_t>(args, i, j0);
      for (int64_t j = 0; j < count; ++j) y[j] = bf16_to_float(c[j]) + y[j];
    }
    store_bf16(args, i, j0, count, y, args.sr != nullptr);
  } else {
    double* c = c_at<double>(args, i, j0);
    for (int64_t j = 0; j < count; ++j)
      c[j] = args.accumulate ? c[j] + static_cast<double>(y[j]) : static_cast<double>(y[j]);
  }
}

void store(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, double* y) {
  if (args.c_dtype == dtypes::fp64) {
    double* c = c_at<double>(args, i, j0);
    for (int64_t j = 0; j < count; ++j) c[j] = args.accumulate ? c[j] + y[j] : y[j];
  } else if (args.c_dtype == dtypes::fp32) {
    float* c = c_at<float>(args, i, j0);
    for (int64_t j = 0; j < count; ++j)
      c[j] = static_cast<float>(args.accumulate ? static_cast<double>(c[j]) + y[j] : y[j]);
  } else {
    const uint16_t* c = c_at<uint16_t>(args, i, j0);
    float rounded[kPiece];
    for (int64_t j = 0; j < count; ++j) {
      rounded[j] = static_cast<float>(args.accumulate ? static_cast<double>(bf16_to_float(c[j])) + y[j] : y[j]);
    }
    store_bf16(args, i, j0, count, rounded, args.sr != nullptr);
  }
}

// y[j] = acc[j] * (sa * sb[j]), computed in Float.
template <typename Float, typename Acc>
void scale_sums(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const Acc* acc, Float* y) {
  const Float sa = static_cast<Float>(free_scale(args.a, i));
  const float* sb = args.b.scale.scale;
  if (sb == nullptr || args.b.scale.per_tensor()) {
    const Float s = sa * static_cast<Float>(sb == nullptr ? 1.0f : *sb);
    for (int64_t j = 0; j < count; ++j) y[j] = static_cast<Float>(acc[j]) * s;
    return;
  }
  sb += j0;
  for (int64_t j = 0; j < count; ++j) y[j] = static_cast<Float>(acc[j]) * (sa * static_cast<Float>(sb[j]));
}

template <typename To, typename Acc>
void store_saturated(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const Acc* acc) {
  To* c = c_at<To>(args, i, j0);
  for (int64_t j = 0; j < count; ++j) {
    if constexpr (sizeof(To) >= sizeof(Acc)) {
      c[j] = acc[j];
    } else {
      c[j] = static_cast<To>(std::clamp<Acc>(acc[j], std::numeric_limits<To>::min(), std::numeric_limits<To>::max()));
    }
  }
}

template <typename Acc>
void finish_exact(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const Acc* acc) {
  if (args.c_dtype == dtypes::int32) return store_saturated<int32_t>(args, i, j0, count, acc);
  if (args.c_dtype == dtypes::int64) return store_saturated<int64_t>(args, i, j0, count, acc);
  for (int64_t j = 0; j < count; j += kPiece) {
    const int64_t piece = std::min(kPiece, count - j);
    if (args.c_dtype == dtypes::fp64) {
      double y[kPiece];
      scale_sums(args, i, j0 + j, piece, acc + j, y);
      store(args, i, j0 + j, piece, y);
    } else {
      float numbers[kPiece];
      const bool in_place = args.c_dtype == dtypes::fp32 && !args.accumulate;
      float* const y = in_place ? c_at<float>(args, i, j0 + j) : numbers;
      scale_sums(args, i, j0 + j, piece, acc + j, y);
      add_bias(args, j0 + j, piece, y);
      if (!in_place) store(args, i, j0 + j, piece, y);
    }
  }
}

template <typename Float, typename Sum>
void finish_offset_piece(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const Sum* acc, Sum sum_a,
                         const Sum* sum_b) {
  const GemmOperand &a = args.a, &b = args.b;
  const int64_t at_a = free_param(a, i);
  const SideParams<Float> pa{static_cast<Float>(scale_at(a, at_a)), static_cast<Float>(offset_at(a, at_a)),
                             a.scale.offset != nullptr};
  const Float row_sum = static_cast<Float>(sum_a), depth = static_cast<Float>(args.k);
  Float y[kPiece];
  for (int64_t j = 0; j < count; ++j) {
    const int64_t at_b = free_param(b, j0 + j);
    const SideParams<Float> pb{static_cast<Float>(scale_at(b, at_b)), static_cast<Float>(offset_at(b, at_b)),
                               b.scale.offset != nullptr};
    y[j] = offsets_value(acc[j], row_sum, sum_b[j], depth, pa, pb);
  }
  add_bias(args, j0, count, y);
  store(args, i, j0, count, y);
}

template <typename Float>
void finish_float(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const Float* sum) {
  for (int64_t j = 0; j < count; j += kPiece) {
    const int64_t piece = std::min(kPiece, count - j);
    Float y[kPiece];
    std::copy(sum + j, sum + j + piece, y);
    add_bias(args, j0 + j, piece, y);
    store(args, i, j0 + j, piece, y);
  }
}

}  // namespace

void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const int32_t* acc) {
  finish_exact(args, i, j0, count, acc);
}
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const int64_t* acc) {
  finish_exact(args, i, j0, count, acc);
}
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const float* sum) {
  finish_float(args, i, j0, count, sum);
}
void finish_row(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const double* sum) {
  finish_float(args, i, j0, count, sum);
}

template <typename Sum>
void finish_offsets(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, const Sum* acc, Sum sum_a,
                    const Sum* sum_b) {
  const auto piece =
      args.c_dtype == dtypes::fp64 ? &finish_offset_piece<double, Sum> : &finish_offset_piece<float, Sum>;
  for (int64_t j = 0; j < count; j += kPiece)
    piece(args, i, j0 + j, std::min(kPiece, count - j), acc + j, sum_a, sum_b + j);
}
template void finish_offsets(const GemmArgs&, int64_t, int64_t, int64_t, const int32_t*, int32_t, const int32_t*);
template void finish_offsets(const GemmArgs&, int64_t, int64_t, int64_t, const int64_t*, int64_t, const int64_t*);

template <typename Sum, typename Float>
void add_group(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, int64_t k, const Sum* acc, Sum sum_a,
               Float* t) {
  const GemmOperand &a = args.a, &b = args.b;
  const Float row_sum = static_cast<Float>(sum_a);
  const Float sa = has_blocks(a) ? static_cast<Float>(a.scale.scale[param_at(a, i, k)]) : Float{1};
  const int64_t first = param_at(b, j0, k);
  const int64_t group = b.k_major ? b.scale.col_group : b.scale.row_group;
  const int64_t step = b.k_major ? b.scale.col_step : b.scale.row_step;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t at = group == 1 ? first + j * step : param_at(b, j0 + j, k);
    const Float scale = static_cast<Float>(scale_at(b, at)) * sa;
    t[j] = t[j] + (b.scale.offset == nullptr
                       ? group_term(acc[j], scale)
                       : group_term(acc[j], scale, row_sum, static_cast<Float>(b.scale.offset[at]) * sa));
  }
}
template void add_group(const GemmArgs&, int64_t, int64_t, int64_t, int64_t, const int32_t*, int32_t, float*);
template void add_group(const GemmArgs&, int64_t, int64_t, int64_t, int64_t, const int64_t*, int64_t, float*);
template void add_group(const GemmArgs&, int64_t, int64_t, int64_t, int64_t, const int64_t*, int64_t, double*);

template <typename Float>
void finish_groups(const GemmArgs& args, int64_t i, int64_t j0, int64_t count, Float* t) {
  if (!has_blocks(args.a)) {
    const Float sa = static_cast<Float>(free_scale(args.a, i));
    for (int64_t j = 0; j < count; ++j) t[j] = t[j] * sa;
  }
  finish_float(args, i, j0, count, t);
}
template void finish_groups(const GemmArgs&, int64_t, int64_t, int64_t, float*);
template void finish_groups(const GemmArgs&, int64_t, int64_t, int64_t, double*);

}  // namespace bitgrad::kernels::gemm_detail
