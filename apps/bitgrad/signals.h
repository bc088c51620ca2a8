// SIGINT and SIGTERM (and SIGHUP, treated as SIGTERM). The first signal is acknowledged on standard error at once and
// asks the run to finish its optimizer step, save and end; an evaluation is cut short. A second one reports what is
// lost and ends the process.
#pragma once

#include <cstdint>

#include "bitgrad/run/trainer.h"

namespace bitgrad::cli {

void install_signal_handlers();
StopRequest stop_request();
// Records the step of the latest checkpoint, which the message of a second signal mentions.
void set_last_saved_step(int64_t step);
// 130 interrupted and saved, 75 preempted and saved, 0 otherwise. A second signal ends the process by the signal
// itself.
int exit_code(StopRequest request);

}  // namespace bitgrad::cli
