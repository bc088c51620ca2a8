// What a file of data holds, as a text to read.
#pragma once

#include <string>

namespace bitgrad {

// Of an idx file (plain or gzip, any element type), an .npy file or a table of comma-separated values: format, element
// type, shape, range, mean and standard deviation (of pixels per channel and of p/255, as data.normalize takes them),
// and how often each class stands in labels or each name in a column. Error(kData) for a file of no such format.
std::string describe_data_file(const std::string& path);

}  // namespace bitgrad
