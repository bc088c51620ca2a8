// Whether a loop of base/parallel.h would run inline.
#pragma once

namespace bitgrad::detail {

// True if a loop started here would run on the calling thread alone: inside another loop, or with one thread. Use it
// only for piece sizes that cannot affect the bits of a result.
bool loops_run_inline();

}  // namespace bitgrad::detail
