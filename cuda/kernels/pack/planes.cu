// Family pack: canonical codes -> bit planes, and -> contiguous canonical rows.
#include "bitgrad/base/device.h"
#include "bitgrad/dtype/codec.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/pack/octet.h"

namespace bitgrad::cuda {

// One thread per octet: one byte of each plane.
BITGRAD_GLOBAL void planes_kernel(int64_t rows, int64_t cols, CodeRows in, uint8_t* planes) {
  const int64_t octets = padded_octets(cols), plane_bytes = rows * octets;
  for (int64_t i = thread_index(); i < plane_bytes; i += thread_count()) {
    const Cell at = cell_of(i, octets);
    const uint64_t bytes = spread_octet(load_octet(in, at.row, at.col, cols), in.bits);
    for (int p = 0; p < in.bits; ++p) planes[p * plane_bytes + i] = bits_of_octet(bytes, p);
  }
}

BITGRAD_GLOBAL void canonical_kernel(int64_t rows, int64_t cols, CodeRows in, CodeRows out) {
  const int64_t octets = padded_octets(cols);
  for (int64_t i = thread_index(); i < rows * octets; i += thread_count()) {
    const Cell at = cell_of(i, octets);
    store_octet(out, at.row, at.col, load_octet(in, at.row, at.col, cols));
  }
}

namespace {

// Clears the padding after the last row of a layout.
void clear_behind(const PackArgs& args, int64_t used) {
  fill_async(static_cast<char*>(args.out) + used, 0, args.to.info().bytes(args.dtype, args.rows, args.cols) - used,
             current_stream());
}

}  // namespace

void pack_planes_cuda(const PackArgs& args) {
  const CodeRows in = code_rows(args.canonical, args.stride, args.dtype.bits(), args.cols);
  const int64_t plane_bytes = args.rows * padded_octets(args.cols);
  launch(planes_kernel, cover(plane_bytes, "pack_planes_cuda"), args.rows, args.cols, in,
         static_cast<uint8_t*>(args.out));
  clear_behind(args, args.dtype.bits() * plane_bytes);
}

void pack_canonical_cuda(const PackArgs& args) {
  const int64_t row_bytes = row_bytes_memory(args.dtype, args.cols);
  if (args.dtype.is_code()) {
    const int bits = args.dtype.bits();
    launch(canonical_kernel, cover(args.rows * padded_octets(args.cols), "pack_canonical_cuda"), args.rows, args.cols,
           code_rows(args.canonical, args.stride, bits, args.cols), code_rows(args.out, row_bytes, bits, args.cols));
  } else if (args.rows > 0 && row_bytes > 0) {
    device_backend(current_device())
        .copy(CopyWay::kOnDevice, args.out, row_bytes, args.canonical, args.stride, row_bytes, args.rows);
  }
  clear_behind(args, args.rows * row_bytes);
}

}  // namespace bitgrad::cuda
