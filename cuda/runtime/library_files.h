// Where libraries of CUDA that are loaded at run time may lie.
#pragma once

#include <string>
#include <vector>

namespace bitgrad::cuda {

struct LibraryFiles {
  const char* variable = nullptr;           // of the environment: a file that is tried alone
  std::vector<std::string> names = {};      // for the loader, best first
  std::vector<std::string> in_wheels = {};  // below site-packages
};

// What to give dlopen, in order: the names, the files of wheels in the environments of Python, and those of toolkits.
std::vector<std::string> library_candidates(const LibraryFiles& files);

}  // namespace bitgrad::cuda
