// The terminal behind standard error.
#pragma once

namespace bitgrad::cli {

// Whether lines may be drawn over: a terminal, and not in a build service (variable CI).
bool draws_on_terminal();
// Asked at each line: a window may be resized at any time.
int terminal_columns();

}  // namespace bitgrad::cli
