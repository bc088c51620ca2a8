// Standard output and standard error, whose reader may go away (`| head`) or whose disk may be full while a command
// runs.
#pragma once

#include <string>

namespace bitgrad::cli {

// First thing in main: streams that are closed are opened on /dev/null, and a write that nobody reads is an error of
// that write, not the end of the process.
void prepare_streams();
// What standard output holds back is written. For a command whose work is done whether or not it can be read: where
// that fails, a line in the log says so, and what else the command prints is dropped.
void flush_or_drop_output();
// The exit code of a command that ended with `code`, when all that it printed has been written or dropped. Ends as
// other programs do, by SIGPIPE, where the reader has gone. Throws Error(kMemory) where standard output takes no more.
int checked_output(int code);
// "the reader has gone", "a full disk?": why a stream takes no more.
std::string why_no_more(int descriptor);

}  // namespace bitgrad::cli
