// SIGINT and SIGTERM (and SIGHUP, as SIGTERM): the first is acknowledged on standard error at once and asks the run to
// finish its optimizer step, save and end; an evaluation is cut short. A second says what is lost, and ends the
// process.
#pragma once

#include <cstdint>

#include "bitgrad/train/trainer.h"

namespace bitgrad::cli {

void install_signal_handlers();
StopRequest stop_request();
// The step of the checkpoint that a run can be resumed from, for what a second signal says.
void tell_saved(int64_t step);
// 130 interrupted and saved, 75 preempted and saved, 0 otherwise. A second signal ends by the signal itself.
int exit_code(StopRequest request);

}  // namespace bitgrad::cli
