// Rivals of the benchmark programs in processes of their own.
#pragma once

#include <optional>
#include <string>

#include "bitgrad/base/json.h"

namespace bitgrad::bench {

// One word of a shell command.
std::string quoted(const std::string& text);
// The program that a variable of the environment names, else `standard`, as a word of a shell command.
std::string program_of(const char* variable, const char* standard);
// The JSON object that a shell command prints; nullopt: it ended with 77, what it needs is not installed. Throws Error
// in the name of `where` if it ended otherwise.
std::optional<Json> row_of_rival(const std::string& where, const std::string& command);

}  // namespace bitgrad::bench
