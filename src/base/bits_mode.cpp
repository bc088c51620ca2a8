// The bits mode of the process.
#include "bitgrad/base/bits_mode.h"

#include <atomic>

namespace bitgrad {
namespace {

std::atomic<BitsMode> g_bits_mode{BitsMode::kFast};

}  // namespace

BitsMode bits_mode() { return g_bits_mode.load(std::memory_order_relaxed); }
void set_bits_mode(BitsMode mode) { g_bits_mode.store(mode, std::memory_order_relaxed); }

}  // namespace bitgrad
