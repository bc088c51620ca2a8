// The line that shows a run's progress, cut to what fits.
#pragma once

#include <string>

#include "bitgrad/train/trainer.h"

namespace bitgrad::cli {

// At most `columns` characters: percent done first, then in this order what still fits: epoch and total, ETA, loss,
// step and total, metric, bar, samples or tokens a second, learning rate, GMAC/s.
std::string progress_line(const TrainEvent& event, int columns);
// "42s", "3m07s", "2h05m", "3d04h".
std::string duration_text(double seconds);

}  // namespace bitgrad::cli
