// wgmma products of weights of 1 to 7 bits, unpacked in registers, and 8-bit codes in shared memory; and the sums of
// such weights.
#include "cuda/kernels/gemm/wgmma/args.h"
#include "cuda/kernels/gemm/wgmma/kernels.h"
#include "cuda/kernels/gemm/wgmma/unpack.h"

namespace bitgrad::cuda::gemm {

#if BITGRAD_SM90A || defined(BITGRAD_CUDA_EMULATED)
#define BITGRAD_BODY(type, bits, columns, cluster, rows, store)                         \
  run_tiles<WgmmaStore::store, false, columns, bits, cluster, rows>(                    \
      args, [](const auto& tile, RingPlace& place, int consumer, int blocks, auto& d) { \
        multiply_fragments<WgmmaType::type, bits>(tile, place, consumer, blocks, d);    \
      });
#else
#define BITGRAD_BODY(type, bits, columns, cluster, rows, store)
#endif

#define BITGRAD_WGMMA_RS(name, type, bits, columns, cluster, rows, store) \
  BITGRAD_GLOBAL void __launch_bounds__(kWgmmaThreads, 1)                 \
      name([[maybe_unused]] const BITGRAD_GRID_CONSTANT WgmmaArgs args) { \
    BITGRAD_BODY(type, bits, columns, cluster, rows, store)               \
  }
#include "cuda/kernels/gemm/wgmma/rs_kernels.inc"
#undef BITGRAD_WGMMA_RS
#undef BITGRAD_BODY

namespace {

template <int kBits>
BITGRAD_DEVICE inline void add_fragments(const FragmentSumsArgs& args, const uint8_t* block, int thread,
                                         int (&sums)[2]) {
  const FragmentWords<kBits> words = load_fragments<kBits>(block, thread);
  BITGRAD_UNROLL
  for (int i = 0; i < 16; ++i) {
    const uint32_t bytes = signed_bytes(top_codes(words, i / 4, i % 4), args.fragments);
    sums[i % 2] = __dp4a(static_cast<int>(bytes), 0x01010101, sums[i % 2]);
  }
}

}  // namespace

BITGRAD_GLOBAL void gemm_fragment_sums_simt(FragmentSumsArgs args) {
  const int thread = static_cast<int>(threadIdx.x);
  int sums[2] = {0, 0};  // rows g and g + 8 of the warp's 16
  for (int block = 0; block < args.k_blocks; ++block) {
    const int64_t at =
        (static_cast<int64_t>(blockIdx.x) * args.k_blocks + block) * frag64_layout::block_bytes(args.bits);
    const uint8_t* data = args.fragments.data + at;
    switch (args.bits) {
      case 1:
        add_fragments<1>(args, data, thread, sums);
        break;
      case 2:
        add_fragments<2>(args, data, thread, sums);
        break;
      case 3:
        add_fragments<3>(args, data, thread, sums);
        break;
      case 4:
        add_fragments<4>(args, data, thread, sums);
        break;
      case 5:
        add_fragments<5>(args, data, thread, sums);
        break;
      case 6:
        add_fragments<6>(args, data, thread, sums);
        break;
      default:
        add_fragments<7>(args, data, thread, sums);
        break;
    }
  }
  for (int half = 0; half < 2; ++half) {
    int sum = sums[half];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    const int64_t row = static_cast<int64_t>(blockIdx.x) * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * half;
    if (thread % 4 == 0 && row < args.rows) args.out[row] = (sum >> args.shift) - args.pad;
  }
}

}  // namespace bitgrad::cuda::gemm
