// Where the sources and the build of these tests are. One source knows (paths.cpp, written by CMake): a path in a command line
// would keep ccache from knowing any test again in another folder.
#pragma once

#include <string>

namespace bitgrad::test {

// Absolute; without an argument the folder itself, without a slash at its end.
std::string source_path(const std::string& relative = {});
std::string build_path(const std::string& relative = {});

}  // namespace bitgrad::test
