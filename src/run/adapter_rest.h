// What a run with adapters changes beside them, and what of it PEFT's format can hold.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/nn/module.h"

namespace bitgrad::detail {

struct AdapterRest {
  // Whole modules in fp32, without adapters: PEFT's modules_to_save.
  std::vector<std::string> modules;
  std::vector<Parameter*> parameters;
  std::vector<Module::Buffer> buffers;
  // All else that changes.
  std::vector<Parameter*> beyond_parameters;
  std::vector<Module::Buffer> beyond_buffers;
};
// Parameters that are not frozen, and buffers: running statistics and observed ranges change even without them.
AdapterRest rest_of_adapters(Module& model);

// The tensors of a PEFT file that are values of parameters and buffers of a model.
struct RestValues {
  struct Item {
    std::string name;      // in the file
    Parameter* parameter;  // nullptr: a buffer
    Module::Buffer buffer;
    Tensor values;
  };
  std::vector<Item> items;
  std::set<std::string> names;  // in the file
  std::set<std::string> paths() const;
};
// `tensors` by name with `prefix`. A tensor of another shape or dtype is a line of `wrong`.
RestValues rest_values(Module& model, const std::map<std::string, Tensor>& tensors, std::string_view prefix,
                       std::string& wrong);
void take(const RestValues& rest);
// Warns of parameters of the model that train and are not in `taken`. `from`: where values were read.
void warn_of_missing(Module& model, const std::set<std::string>& taken, const std::string& from);

// At most so many names, then their number.
std::string names_text(const std::vector<std::string>& names);

}  // namespace bitgrad::detail
