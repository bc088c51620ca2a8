// SIGINT and SIGTERM (and SIGHUP, as SIGTERM): the first asks the run to finish its optimizer step, save and end; a
// second ends it at once, unsaved.
#pragma once

#include "bitgrad/train/trainer.h"

namespace bitgrad::cli {

void install_signal_handlers();
StopRequest stop_request();
// 130 interrupted and saved, 75 preempted and saved, 0 otherwise. A second signal ends by the signal itself.
int exit_code(StopRequest request);

}  // namespace bitgrad::cli
