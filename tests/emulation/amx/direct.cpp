#include "emulation/amx/direct.h"

#include "emulation/amx/tiles.h"
#include "kernels/gemm/tiles/amx_small_loops.h"
#include "kernels/windows/tiles/direct_loop.h"

namespace bitgrad::kernels::windows {
namespace {
struct PortableRows {};
constexpr DirectIsa kEmulated =
    make_direct_isa<gemm_detail::EmulatedTiles, PortableRows>(&gemm_detail::AmxLoops<PortableRows>::transpose_bytes);
}  // namespace

const DirectIsa& direct_emulated() { return kEmulated; }

}  // namespace bitgrad::kernels::windows
