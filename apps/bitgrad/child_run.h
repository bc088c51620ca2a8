// This program as a child process, one at a time, to which Ctrl-C, SIGTERM and SIGHUP are passed on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bitgrad::cli {

// From now on these signals do not end this process. SIGHUP still does nothing below nohup.
void pass_signals_on();
int passed_signal();  // the last one; 0: none came

// Where the child's standard output goes.
enum class ChildOutput : uint8_t { kNone, kOutput, kError };
// Runs `bitgrad words...`; a child whose parent is killed is killed, too. Returns its exit code, or 128 + the signal
// that ended it.
int run_child(std::vector<std::string> words, ChildOutput output);

}  // namespace bitgrad::cli
