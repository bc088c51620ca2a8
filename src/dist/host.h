// The machine that a rank runs on.
#pragma once

#include <string>

namespace bitgrad::detail {

std::string host_name();  // "" if the system does not say

}  // namespace bitgrad::detail
