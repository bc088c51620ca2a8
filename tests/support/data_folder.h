// Where tests find the data sets that are not part of the repository.
#pragma once

#include <cstdlib>
#include <string>

#include "support/paths.h"

namespace bitgrad::test {

// $BITGRAD_DATA as the tester set it, even after a test removed it, else shared/data beside the sources.
inline const std::string& data_folder() {
  static const std::string folder = [] {
    const char* const root = std::getenv("BITGRAD_DATA");
    return root != nullptr && *root != '\0' ? root : source_path("../shared/data");
  }();
  return folder;
}

}  // namespace bitgrad::test
