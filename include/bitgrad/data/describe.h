// Describes the contents of a data file or folder, as readable text and as JSON.
#pragma once

#include <string>

namespace bitgrad {

// Describes an idx file (plain or gzip, any element type), an .npy file, an .npz archive, a CSV table or an image
// folder: format, element type, shape, range, mean and standard deviation (for pixels per channel and of p/255, as
// data.normalize expects them), the count of each class in labels or of each category in a column, and the number of
// files per class. Throws Error(kData) if the path is missing or has none of these formats.
std::string describe_data_file(const std::string& path);

// The same as a JSON object, with `format` and these members, by format:
// - idx, npy: type, shape, least, largest, mean, std, finite; classes (samples per class), normalize {mean, std};
// - npz: arrays [{name, type, shape}];
// - csv: rows, columns [{name, missing, categories {name: rows}, or least, largest, mean, std}];
// - image_folder: files, classes {name: files}.
std::string describe_data_json(const std::string& path);

}  // namespace bitgrad
