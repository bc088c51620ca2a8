// SIGINT and SIGTERM (and SIGHUP, treated as SIGTERM). The first signal is acknowledged on standard error at once and
// asks the run to finish its optimizer step, save and end; an evaluation is cut short. A second one reports what is
// lost and ends the process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/run/trainer.h"

namespace bitgrad::cli {

void install_signal_handlers();
StopRequest stop_request();
// Records the step of the latest checkpoint, which the message of a second signal mentions.
void set_last_saved_step(int64_t step);
// 130 interrupted and saved, 75 preempted and saved, 0 otherwise. A second signal ends the process by the signal
// itself.
int exit_code(StopRequest request);

// This program as a child process, one at a time, to which Ctrl-C, SIGTERM and SIGHUP are passed on.

// From now on these signals do not end this process. SIGHUP still does nothing below nohup.
void pass_signals_on();
int passed_signal();  // the last one; 0: none came

// Where the child's standard output goes.
enum class ChildOutput : uint8_t { kNone, kOutput, kError };
// Runs `bitgrad words...`; a child whose parent is killed is killed, too. Returns its exit code, or 128 + the signal
// that ended it.
int run_child(std::vector<std::string> words, ChildOutput output);

}  // namespace bitgrad::cli
