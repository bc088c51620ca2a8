// What a file or folder of data holds, as a text to read and for programs.
#pragma once

#include <string>

namespace bitgrad {

// Of an idx file (plain or gzip, any element type), an .npy file, an .npz archive, a table of comma-separated values or
// a folder of pictures: format, element type, shape, range, mean and standard deviation (of pixels per channel and of
// p/255, as data.normalize takes them), how often each class stands in labels or each name in a column, and how many
// files each class has. Error(kData) for what is missing or of no such format.
std::string describe_data_file(const std::string& path);

// The same as one JSON object, with `format` and, by format:
// - idx, npy: type, shape, least, largest, mean, std, finite; classes (samples of each), normalize {mean, std};
// - npz: arrays [{name, type, shape}];
// - csv: rows, columns [{name, missing, categories {name: rows}, or least, largest, mean, std}];
// - image_folder: files, classes {name: files}.
std::string describe_data_json(const std::string& path);

}  // namespace bitgrad
