// The evaluations of a model before and after a command that changes it.
#pragma once

#include <string>

#include "bitgrad/train/trainer.h"

namespace bitgrad::cli {

// "accuracy 91 %  loss 0.3", and the other metrics.
std::string numbers_of(const Evaluation& e);
// Prints both to standard output. `split`: "test", "valid" or "train".
void print_before_after(const Evaluation& before, const std::string& of, const Evaluation& after,
                        const std::string& written, const std::string& split);

}  // namespace bitgrad::cli
