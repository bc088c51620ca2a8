// The module that carries messages between processes, loaded at run time: a program without ranks never starts MPI, and
// needs none to be installed.
#pragma once

#include <string>
#include <vector>

#include "dist/wire.h"

namespace bitgrad::detail {

// What the modules of this build say in WireModule::build.
std::string wire_build();
// Where bitgrad_mpi.so is searched: $BITGRAD_MPI_MODULE alone if that is set, else beside the program, in the folder
// above (tests), and in the library folder of its installation.
std::vector<std::string> wire_module_paths();
// Loads the first of these files that exists, for good. Throws Error that names them all if none does, and Error that
// names the file if it cannot be loaded, is no module, or is of another build.
const WireModule& load_wire_module();

}  // namespace bitgrad::detail
