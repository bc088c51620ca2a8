// Names of rounding modes and straight-through rules, as in YAML.
#pragma once

#include <string_view>
#include <vector>

#include "bitgrad/quant/scheme.h"

namespace bitgrad {

// "nearest", "stochastic"; "identity", "clip", "approx_sign", "tanh", "none". parse_* throws Error listing the names.
std::string_view rounding_name(Rounding rounding);
Rounding parse_rounding(std::string_view name);
std::string_view ste_name(SteRule rule);
SteRule parse_ste(std::string_view name);
std::vector<std::string_view> rounding_names();
std::vector<std::string_view> ste_names();

}  // namespace bitgrad
