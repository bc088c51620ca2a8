#include "emulation/amx/signs.h"

#include "emulation/amx/lanes.h"
#include "kernels/windows/few/loops.h"
#include "kernels/windows/signs/loops.h"

namespace bitgrad::kernels::windows {
namespace {

constexpr SignIsa kSigns = SignLoops<MemoryLanes>::isa();
constexpr FewIsa kFew = FewLoops<MemoryLanes>::isa();

}  // namespace

const SignIsa& signs_emulated() { return kSigns; }
const FewIsa& few_emulated() { return kFew; }

}  // namespace bitgrad::kernels::windows
