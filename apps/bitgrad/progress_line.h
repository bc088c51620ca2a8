// The progress line of a run, limited to the available width.
#pragma once

#include <string>

#include "bitgrad/run/trainer.h"

namespace bitgrad::cli {

// At most `columns` characters: percent done first, then as many of these as fit, in this order: epoch and total, ETA,
// loss, step and total, metric, bar, samples or tokens per second, learning rate, GMAC/s.
std::string progress_line(const TrainEvent& event, int columns);
// "42s", "3m07s", "2h05m", "3d04h".
std::string duration_text(double seconds);

}  // namespace bitgrad::cli
