// What reports of sensitivity and of a budget share.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/tools/budget.h"

namespace bitgrad::detail {

// An element of "recipes" of sensitivity_json. sqnr_db is null if it is infinite.
Json effect_json(const LayerEffect& effect);
// ", fitted by gptq, bias"; empty without methods.
std::string fitted_by(const std::vector<std::string>& methods);

}  // namespace bitgrad::detail
