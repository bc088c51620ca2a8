// Standard output and standard error, whose reader may go away (`| head`) or whose disk may fill up while a command
// runs.
#pragma once

#include <ostream>
#include <string>

namespace bitgrad::cli {

// Call first in main. Opens closed standard streams on /dev/null, and makes a write without a reader fail instead of
// ending the process.
void prepare_streams();
// Flushes standard output, for a command whose work is done whether or not its output can be read. If that fails, logs
// a line and drops all further output of the command.
void flush_or_drop_output();
// The exit code of a command that ended with `code`, after all its output has been written or dropped. If the reader
// has gone, ends by SIGPIPE as other programs do. Throws Error(kMemory) if standard output cannot be written.
int checked_output(int code);
// Where a command prints its text: standard output, or nowhere if it prints one JSON value there instead.
std::ostream& text_output(bool json);
// Why a stream cannot be written: "the reader has gone", "a full disk?".
std::string why_no_more(int descriptor);

// The terminal behind standard error.

// Whether lines may be redrawn: on a terminal outside of CI (variable CI).
bool draws_on_terminal();
// Queried for each line, because a window may be resized at any time.
int terminal_columns();

}  // namespace bitgrad::cli
