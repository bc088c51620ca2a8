#include "data/packed_names.h"

#include <string_view>
#include <utility>

#include "bitgrad/base/file.h"
#include "bitgrad/data/picture.h"

namespace bitgrad {

std::vector<std::string> read_class_names(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 24;
  std::vector<std::string> names;
  std::string line;
  for (const uint8_t byte : read_file(path, kMostBytes)) {
    if (byte == '\n') names.push_back(std::exchange(line, {}));
    if (byte != '\n' && byte != '\r') line += static_cast<char>(byte);
  }
  if (!line.empty()) names.push_back(line);
  return names;
}

std::vector<std::string> data::packed_class_names(const std::string& labels) {
  constexpr std::string_view kEnd = ".labels.npy";
  if (!labels.ends_with(kEnd)) return {};
  const std::string path = labels.substr(0, labels.size() - kEnd.size()) + ".classes.txt";
  const bool there = file_system().exists(path) && !file_system().is_directory(path);
  return there ? read_class_names(path) : std::vector<std::string>{};
}

}  // namespace bitgrad
