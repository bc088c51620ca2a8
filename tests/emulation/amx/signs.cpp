#include "emulation/amx/signs.h"

#include "emulation/amx/lanes.h"
#include "kernels/conv/binary/loops.h"
#include "kernels/conv/first_layer/loops.h"

namespace bitgrad::kernels::conv {
namespace {

constexpr SignIsa kSigns = SignLoops<MemoryLanes>::isa();
constexpr FewIsa kFew = FewLoops<MemoryLanes>::isa();

}  // namespace

const SignIsa& signs_emulated() { return kSigns; }
const FewIsa& few_emulated() { return kFew; }

}  // namespace bitgrad::kernels::conv
