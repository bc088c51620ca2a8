// Archives of data sets.
#pragma once

#include <string>
#include <vector>

#include "fetch_list.h"

namespace bitgrad::cli {

// Writes the members `files` of a .tar.gz below `folder`, each beside its place first, and then put there. Members that
// are not asked for are passed over. Error(kData) for an archive that is damaged or lacks one, for a member whose path
// leads out of the folder, that is no regular file, or has other bytes than expected: what stands in the folder keeps
// its content. Error(kUsage) where the program was built without libarchive.
void unpack(const std::string& archive, const std::string& folder, const std::vector<FetchFile>& files);

}  // namespace bitgrad::cli
