// An exported file in the program that it is for.
#pragma once

#include <string>

#include "bitgrad/train/export.h"
#include "bitgrad/train/learner.h"

namespace bitgrad::cli {

// Throws Error where no program that runs files of this target is known here or installed.
void require_client(const ExportTarget& target);
// Runs the written file on drawn samples and compares with the model: a line to print. Throws Error(kData) where the
// client fails, or its largest output is another one for any sample.
std::string check_in_client(const ExportTarget& target, const std::string& path, Learner& learner);

}  // namespace bitgrad::cli
