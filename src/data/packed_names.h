// Names of classes beside packed pictures: NAME.classes.txt of `bitgrad data pack`, next to NAME.labels.npy.
#pragma once

#include <string>
#include <vector>

namespace bitgrad::data {

// The lines of the file beside the file of labels; empty if that is no NAME.labels.npy or there are no names.
std::vector<std::string> packed_class_names(const std::string& labels);

}  // namespace bitgrad::data
