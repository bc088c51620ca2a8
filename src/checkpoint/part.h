// Parts of models: files of some of their parameters and buffers, models that take a part of a file, and values that
// they keep in any case.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/nn/module.h"

namespace bitgrad::checkpoint {

// Writes them; `record` is the model's record, or empty. Error(kNonFinite) as in write_pieces.
void save_part(const std::string& path, const std::vector<Parameter*>& parameters,
               const std::vector<Module::Buffer>& buffers, const std::string& record);
// init_from, but codes, learned parts and observed ranges begin anew, as calibration expects.
InitFrom take_values(const std::string& path, Module& model);
// Takes what the file has into the model, as init_from does.
InitFrom take_part(const std::string& path, Module& model);

// Values that a model keeps, whatever file its initial values come from.

// Paths of learned parts and observed ranges of activation quantizers, learned parts of weights, and adapter parameters
// that are not in the file.
std::set<std::string> own_values(Module& model, const std::function<bool(const std::string& path)>& in_file);

}  // namespace bitgrad::checkpoint
