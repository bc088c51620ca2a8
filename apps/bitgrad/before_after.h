// The evaluations of a model before and after a command that changes it.
#pragma once

#include <ostream>
#include <string>

#include "bitgrad/base/json.h"
#include "bitgrad/run/trainer.h"

namespace bitgrad::cli {

// "accuracy 91 %  loss 0.3", and the other metrics.
std::string numbers_of(const Evaluation& e);
// {"accuracy": null if there are no classes, "loss", "samples", and the other metrics; null if not finite}.
Json evaluation_json(const Evaluation& e);
// `split`: "test", "valid" or "train".
void print_before_after(std::ostream& out, const Evaluation& before, const std::string& of, const Evaluation& after,
                        const std::string& written, const std::string& split);

}  // namespace bitgrad::cli
