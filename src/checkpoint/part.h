// Files of some parameters and buffers of a model, and models that take a part of a file.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/checkpoint/checkpoint.h"

namespace bitgrad::checkpoint {

// Writes them; `record` is the model's record, or empty. Error(kNonFinite) as in write_pieces.
void save_part(const std::string& path, const std::vector<Parameter*>& parameters,
               const std::vector<Module::Buffer>& buffers, const std::string& record);
// init_from, but codes, learned parts and observed ranges begin anew, as calibration expects.
InitFrom take_values(const std::string& path, Module& model);
// Takes what the file has into the model, as init_from does.
InitFrom take_part(const std::string& path, Module& model);

}  // namespace bitgrad::checkpoint
