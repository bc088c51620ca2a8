// Archives of data sets.
#pragma once

#include <string>
#include <vector>

#include "fetch_list.h"

namespace bitgrad::cli {

// Extracts the members `files` of a .tar.gz into `folder`, each under a temporary name that is renamed at the end.
// Other members are skipped. Throws Error(kData) for an archive that is damaged or lacks a member, and for a member
// whose path leads out of the folder, that is not a regular file, or whose content differs from the expected; existing
// files in the folder then keep their content. Throws Error(kUsage) if the program was built without libarchive.
void unpack(const std::string& archive, const std::string& folder, const std::vector<FetchFile>& files);

}  // namespace bitgrad::cli
