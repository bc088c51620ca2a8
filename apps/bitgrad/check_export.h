// Runs an exported file in the program that it is meant for.
#pragma once

#include <string>

#include "bitgrad/export/export.h"
#include "bitgrad/train/learner.h"

namespace bitgrad::cli {

// Throws Error if no program that runs files of this target is known or installed here.
void require_client(const ExportTarget& target);
// Runs the written file on so many random samples and compares it with the model. Returns a line to print. Throws
// Error(kData) if the client fails, if its largest output differs from the model's for any sample, and if any code of a
// network of integers does.
std::string check_in_client(const ExportTarget& target, const std::string& path, Learner& learner,
                            const OpenedFile& file, const ExportSpec& spec, int64_t samples);

}  // namespace bitgrad::cli
