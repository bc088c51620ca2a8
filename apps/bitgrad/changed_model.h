// What commands have in common that change a model, or measure such a change: the rule of each layer, an option for
// bits, and evaluations before and after.
#pragma once

#include <ostream>
#include <string>

#include "bitgrad/base/json.h"
#include "bitgrad/config/config.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/run/trainer.h"
#include "cli/arguments.h"

namespace bitgrad::cli {

// Which rule applies to which layer, as convert and quantize print it.

// The spec defined by a configuration without phases (quant.recipe, first, last, rules).
PrepareSpec prepare_spec_of(const RunConfig& config);
// One line per layer: its path, the winning rule, the recipe; "(off)" while quantization is switched off.
void print_choices(std::ostream& out, Module& model, const PrepareSpec& spec);

// Option --bits of commands that measure the bits of single layers; `when`: the default is used.
Argument add_bits_option(Arguments& args, std::vector<int64_t>& bits, const std::string& when);

// The evaluations of a model before and after a command that changes it.

// "accuracy 91 %  loss 0.3", and the other metrics.
std::string numbers_of(const Evaluation& e);
// {"accuracy": null if there are no classes, "loss", "samples", and the other metrics; null if not finite}.
Json evaluation_json(const Evaluation& e);
// `split`: "test", "valid" or "train".
void print_before_after(std::ostream& out, const Evaluation& before, const std::string& of, const Evaluation& after,
                        const std::string& written, const std::string& split);

}  // namespace bitgrad::cli
