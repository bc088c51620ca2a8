// Where the running program is. Files that are installed with it are found from there.
#pragma once

#include <string>

namespace bitgrad {

// The folder of this process's program, links followed, without a slash at its end; "" if the system does not say.
std::string program_folder();

}  // namespace bitgrad
