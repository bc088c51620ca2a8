// Family pack: canonical codes -> canonical codes of the transpose.
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/pack/tile.h"

namespace bitgrad::cuda {

BITGRAD_GLOBAL void transpose_codes_kernel(int64_t rows, int64_t cols, CodeRows in, CodeRows out) {
  __shared__ uint32_t tile[kTileWords];
  const TilePlace at = tile_place(rows);
  for (int i = static_cast<int>(threadIdx.x); i < kTileOctets; i += kTileThreads) {
    const int r = i / (kTileSide / 8), o = i % (kTileSide / 8);
    const uint64_t codes = at.row + r < rows ? load_octet(in, at.row + r, at.col / 8 + o, cols) : 0;
    put_octet(tile, r, o, spread_octet(codes, in.bits));
  }
  __syncthreads();
  store_transposed(tile, at, cols, out);
}

inline constexpr int kWideSide = 32, kWideRows = 8;

template <typename T>
BITGRAD_GLOBAL void transpose_wide_kernel(int64_t rows, int64_t cols, const char* in, int64_t stride, char* out,
                                          int64_t out_stride) {
  __shared__ T tile[kWideSide][kWideSide + 1];
  const Cell at = cell_of(blockIdx.x, (rows + kWideSide - 1) / kWideSide);
  const int64_t r0 = at.col * kWideSide, c0 = at.row * kWideSide;
  const int x = static_cast<int>(threadIdx.x) % kWideSide, y = static_cast<int>(threadIdx.x) / kWideSide;
  for (int r = y; r < kWideSide; r += kWideRows)
    if (r0 + r < rows && c0 + x < cols) tile[r][x] = reinterpret_cast<const T*>(in + (r0 + r) * stride)[c0 + x];
  __syncthreads();
  for (int c = y; c < kWideSide; c += kWideRows)
    if (c0 + c < cols && r0 + x < rows) reinterpret_cast<T*>(out + (c0 + c) * out_stride)[r0 + x] = tile[x][c];
}

namespace {

template <typename T>
void transpose_wide(const TransposeArgs& args) {
  const int64_t tiles = ceil_div(args.rows, kWideSide) * ceil_div(args.cols, kWideSide);
  const LaunchShape shape{{static_cast<unsigned>(tiles)}, {kWideSide * kWideRows}, 0, 1, "transpose_wide_cuda"};
  launch(transpose_wide_kernel<T>, shape, args.rows, args.cols, static_cast<const char*>(args.in), args.in_stride,
         static_cast<char*>(args.out), args.out_stride);
}

}  // namespace

void transpose_cuda(const TransposeArgs& args) {
  if (args.bits == 16) return transpose_wide<uint16_t>(args);
  if (args.bits == 32) return transpose_wide<uint32_t>(args);
  if (args.bits == 64) return transpose_wide<uint64_t>(args);
  const CodeRows in = code_rows(args.in, args.in_stride, args.bits, args.cols);
  const CodeRows out = code_rows(args.out, args.out_stride, args.bits, args.rows);
  ensure(args.cols == 0 || args.out_stride >= out.bytes, "transpose", "rows of ", args.out_stride,
         " bytes, expected at least ", out.bytes);
  const LaunchShape shape{
      {static_cast<unsigned>(tile_count(args.rows, args.cols))}, {kTileThreads}, 0, 1, "transpose_codes_cuda"};
  launch(transpose_codes_kernel, shape, args.rows, args.cols, in, out);
}

void pack_transposed_cuda(const PackArgs& args) {
  const int64_t stride = row_bytes_memory(args.dtype, args.rows), used = args.cols * stride;
  transpose_cuda({args.dtype.bits(), args.rows, args.cols, args.canonical, args.stride, args.out, stride});
  fill_async(static_cast<char*>(args.out) + used, 0, args.to.info().bytes(args.dtype, args.rows, args.cols) - used,
             current_stream());
}

}  // namespace bitgrad::cuda
