// Where a loop of base/parallel.h would run.
#pragma once

namespace bitgrad::detail {

// True where a loop started here runs on the calling thread alone: inside a loop, or with one thread. Only for the
// sizes of pieces that no bit of a result depends on.
bool loops_run_inline();

}  // namespace bitgrad::detail
