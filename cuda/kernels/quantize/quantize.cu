// Family quantize: values -> codes and straight-through masks. One thread per octet of a row.
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/quantize/element.h"

namespace bitgrad::cuda {

template <CodeRule kRule>
BITGRAD_GLOBAL void quantize_kernel(QuantizeCall call) {
  for_octets(call.rows, call.cols, call.row_sums, [&](int64_t, Cell at) {
    const OctetCodes codes = code_octet<kRule>(call, Levels{}, at.row, at.col);
    store_codes(call, at.row, at.col, codes);
    return sum_codes(call, codes.bytes);
  });
}

BITGRAD_GLOBAL void quantize_codebook_kernel(QuantizeCall call, CodebookLevels levels) {
  __shared__ float bounds[256];
  __shared__ uint8_t codes[256];
  for (int k = static_cast<int>(threadIdx.x); k < levels.count; k += static_cast<int>(blockDim.x)) {
    bounds[k] = levels.bounds[k];
    codes[k] = levels.codes[k];
  }
  __syncthreads();
  const Levels shared{bounds, codes, levels.count};
  const int64_t octets = padded_octets(call.cols);
  for (int64_t i = thread_index(); i < call.rows * octets; i += thread_count()) {
    const Cell at = cell_of(i, octets);
    store_codes(call, at.row, at.col, code_octet<CodeRule::kCodebook>(call, shared, at.row, at.col));
  }
}

// One-bit codes without scale or range.
BITGRAD_GLOBAL void quantize_sign_kernel(QuantizeCall call) {
  for_octets(call.rows, call.cols, call.row_sums, [&](int64_t i, Cell at) {
    const int64_t count = call.cols - 8 * at.col;
    uint32_t signs = 0, pass = 0;
    bool nonfinite = false;
    if (count > 0) {
      const Numbers8 x = load_octet_of_x(call, at.row, 8 * at.col, count);
      for (int k = 0; k < 8; ++k) {
        const bool finite = quantize_loops::is_finite_number(x.v[k]),
                   inside = (x.v[k] < 0.0f ? -x.v[k] : x.v[k]) <= 1.0f;
        nonfinite |= !finite;
        signs |= static_cast<uint32_t>(k < count && finite && x.v[k] >= 0.0f) << k;
        pass |= static_cast<uint32_t>(k < count && (inside || !call.clip)) << k;
      }
    }
    call.codes.data[at.row * call.codes.stride + at.col] = static_cast<uint8_t>(signs);
    if (call.mask != nullptr) call.mask[i] = static_cast<uint8_t>(pass);
    if (nonfinite && call.flags != nullptr) atomicOr(call.flags, kFlagNonFinite);
    return __popc(signs);
  });
}

// gx = g if the code before clamping is in range (kSign, kPositive: |x| <= 1), else +0.
template <CodeRule kRule>
BITGRAD_GLOBAL void clip_gradient_kernel(QuantizeCall call, const float* g, float* gx, bool wide) {
  const int64_t octets = (call.cols + 7) / 8;
  for (int64_t i = thread_index(); i < call.rows * octets; i += thread_count()) {
    const Cell at = cell_of(i, octets);
    const int64_t c = 8 * at.col, count = call.cols - c, first = at.row * call.cols + c;
    const Numbers8 x = load_octet_of_x(call, at.row, c, count);
    Numbers8 y = load_numbers(g + first, count, wide);
    Params p(call.scale, at.row, c, kInverts<kRule>);
    for (int k = 0; k < 8; ++k) {
      if (k >= count) continue;
      if (k > 0) p.advance();
      if (!clip_passes<kRule>(call, x.v[k], p)) y.v[k] = 0.0f;
    }
    store_numbers(gx + first, count, wide, y);
  }
}

namespace {

constexpr void (*kQuantizeKernels[])(QuantizeCall) = {
#define BITGRAD_CUDA_CODE_RULE(rule) quantize_kernel<CodeRule::rule>,
#include "cuda/kernels/quantize/rules.inc"
#undef BITGRAD_CUDA_CODE_RULE
};
constexpr void (*kClipKernels[])(QuantizeCall, const float*, float*, bool) = {
#define BITGRAD_CUDA_CODE_RULE(rule) clip_gradient_kernel<CodeRule::rule>,
#include "cuda/kernels/quantize/rules.inc"
#undef BITGRAD_CUDA_CODE_RULE
};

}  // namespace

void quantize_any_cuda(const QuantizeArgs& args) {
  const QuantizeCall call = quantize_call(args);
  const LaunchShape shape = cover(args.rows * padded_octets(args.cols), "quantize_any_cuda");
  if (args.rule == CodeRule::kCodebook)
    return launch(quantize_codebook_kernel, shape, call, codebook_levels(args.dtype));
  launch(kQuantizeKernels[static_cast<int>(args.rule)], shape, call);
}

void quantize_sign_cuda(const QuantizeArgs& args) {
  launch(quantize_sign_kernel, cover(args.rows * padded_octets(args.cols), "quantize_sign_cuda"), quantize_call(args));
}

void clip_gradient_cuda(const QuantizeArgs& args, const float* g, float* gx) {
  QuantizeArgs read = args;
  read.sr = nullptr;
  const bool wide = rows_lie_on_four(g, args.cols) && rows_lie_on_four(gx, args.cols);
  launch(kClipKernels[static_cast<int>(args.rule)], cover(args.rows * ceil_div(args.cols, 8), "clip_gradient_cuda"),
         quantize_call(read), g, gx, wide);
}

}  // namespace bitgrad::cuda
