// Warnings about the form of a model that is legal but loses information, and about what its quantizers measure.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "bitgrad/config/config.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/run/quant_monitor.h"

namespace bitgrad::detail {

// Whether every value of data.train is a byte that becomes a number of at least 0; false: unknown.
bool never_negative(const RunConfig& config, const Dataset& train);
// Inputs whose scales come from the whole batch, so that the result of a sample depends on the others: those without
// observer or learned step, and those whose range or step has no value. `trains`: it may still get one.
std::vector<std::string> batch_warnings(Module& model, bool trains);
// Signs of values that are never negative. `inputs`: those of the model are not.
std::vector<std::string> sign_warnings(Module& model, bool inputs);
// Both, for a model that trains.
std::vector<std::string> form_warnings(Module& model, bool inputs);
void log_all(const std::vector<std::string>& warnings);

// Logs the warnings of each form that a model gets in a run, each of them once.
class FormWarnings {
 public:
  void tell(Module& model, bool inputs);

 private:
  std::set<std::string> told_;
};

// Warns once per tensor of codes that all agree, except of fixed weights such as those of a mean, and of learned steps
// at their floor.
class CodeWarnings {
 public:
  // Leaves out codes of the weights of `model` that do not train now.
  void leave_out_fixed(Module& model);
  void watch(const QuantEvent& event);

 private:
  std::set<std::string> told_, fixed_;
};

// Warnings about settings that are legal but unlikely to be intended.

// Warnings of the configuration's text (ConfigOrigin::warnings), a batch larger than the data, more threads than cores,
// named features that have one value in all samples.
std::vector<std::string> run_warnings(const RunConfig& config, const Dataset& train);
// Logs the same warnings.
void log_warnings(const RunConfig& config, const Dataset& train);

}  // namespace bitgrad::detail
