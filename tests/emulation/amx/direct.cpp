#include "emulation/amx/direct.h"

#include "emulation/amx/tiles.h"
#include "kernels/conv/amx/direct_loop.h"
#include "kernels/gemm/tiles/amx_small_loops.h"

namespace bitgrad::kernels::conv {
namespace {
struct PortableRows {};
constexpr DirectIsa kEmulated =
    make_direct_isa<gemm_detail::EmulatedTiles, PortableRows>(&gemm_detail::AmxLoops<PortableRows>::transpose_bytes);
}  // namespace

const DirectIsa& direct_emulated() { return kEmulated; }

}  // namespace bitgrad::kernels::conv
