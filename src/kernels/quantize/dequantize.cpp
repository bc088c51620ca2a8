// Family quantize: codes -> values.
#include "bitgrad/dtype/codec.h"
#include "kernels/elementwise/floats.h"
#include "kernels/kernel_table.h"
#include "kernels/quantize.h"
#include "kernels/quantize/chunk_params.h"

namespace bitgrad::kernels {

void cpu::dequantize(const DequantizeArgs& args) {
  using namespace quantize_loops;
  const QuantizeLoops& loops = quantize_loops::loops();
  for_row_tiles(args.rows, args.cols, [&](int64_t r, int64_t c0, int64_t c1) {
    const char* row = static_cast<const char*>(args.codes) + r * args.stride;
    float* y = args.y + r * args.ldy;
    if (args.scale.trivial()) {
      unpack_row(args.dtype, row, c0, c1 - c0, y + c0);
      return;
    }
    ChunkParamReader params(loops, args.scale);
    for (int64_t c = c0; c < c1; c += kChunk) {
      const int64_t n = std::min(kChunk, c1 - c);
      unpack_row(args.dtype, row, c, n, y + c);
      loops.value(n, y + c, params.read(r, c, n), args.scale.zero != nullptr, args.scale.offset != nullptr, y + c);
    }
  });
}

}  // namespace bitgrad::kernels
