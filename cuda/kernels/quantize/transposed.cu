// Codes and their transpose from a single read: a block processes a tile of 128 x 128 values, keeps its codes in shared
// memory and stores both orders.
#include "bitgrad/dtype/codec.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/pack/tile.h"
#include "cuda/kernels/quantize/element.h"
#include "kernels/pack.h"

namespace bitgrad::cuda {

template <CodeRule kRule>
BITGRAD_GLOBAL void __launch_bounds__(kTileThreads, 3)
    quantize_transposed_kernel(QuantizeCall call, CodeRows transposed) {
  __shared__ uint32_t tile[kTileWords];
  const TilePlace at = tile_place(call.rows);
  const int64_t octets = padded_octets(call.cols);
  for (int i = static_cast<int>(threadIdx.x); i < kTileOctets; i += kTileThreads) {
    const int r = i / (kTileSide / 8), o = i % (kTileSide / 8);
    const int64_t row = at.row + r, octet = at.col / 8 + o;
    OctetCodes codes;
    if (row < call.rows && octet < octets) {
      codes = code_octet<kRule>(call, Levels{}, row, octet);
      store_codes(call, row, octet, codes);
    }
    put_octet(tile, r, o, codes.bytes);
    if (call.row_sums == nullptr) continue;
    int sum = sum_codes(call, codes.bytes);  // 16 lanes share a row of the tile
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (o == 0 && sum != 0) atomicAdd(call.row_sums + row, sum);
  }
  __syncthreads();
  store_transposed(tile, at, call.cols, transposed);
}

namespace {

constexpr void (*kTransposedKernels[])(QuantizeCall, CodeRows) = {
#define BITGRAD_CUDA_CODE_RULE(rule) quantize_transposed_kernel<CodeRule::rule>,
#include "cuda/kernels/quantize/rules.inc"
#undef BITGRAD_CUDA_CODE_RULE
};

}  // namespace

void quantize_transposed_cuda(const QuantizeArgs& args, void* transposed) {
  if (args.rule == CodeRule::kCodebook) {
    quantize_any_cuda(args);
    PackArgs pack{args.dtype, args.rows, args.cols, args.codes, args.stride, layouts::transposed, transposed};
    return pack_transposed_cuda(pack);
  }
  const int64_t stride = row_bytes_memory(args.dtype, args.rows), used = args.cols * stride;
  const LaunchShape shape{
      {static_cast<unsigned>(tile_count(args.rows, args.cols))}, {kTileThreads}, 0, 1, "quantize_transposed_cuda"};
  launch(kTransposedKernels[static_cast<int>(args.rule)], shape, quantize_call(args),
         code_rows(transposed, stride, args.dtype.bits(), args.rows));
  fill_async(static_cast<char*>(transposed) + used, 0,
             layouts::transposed.info().bytes(args.dtype, args.rows, args.cols) - used, current_stream());
}

}  // namespace bitgrad::cuda
