// The terminal behind standard error.
#pragma once

namespace bitgrad::cli {

// Whether lines may be redrawn: on a terminal outside of CI (variable CI).
bool draws_on_terminal();
// Queried for each line, because a window may be resized at any time.
int terminal_columns();

}  // namespace bitgrad::cli
