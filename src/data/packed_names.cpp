#include "data/packed_names.h"

#include <string_view>
#include <utility>

#include "bitgrad/base/file.h"

namespace bitgrad::data {

std::vector<std::string> packed_class_names(const std::string& labels) {
  constexpr std::string_view kEnd = ".labels.npy";
  constexpr int64_t kMostBytes = int64_t{1} << 24;
  if (!labels.ends_with(kEnd)) return {};
  const std::string path = labels.substr(0, labels.size() - kEnd.size()) + ".classes.txt";
  if (!file_system().exists(path) || file_system().is_directory(path)) return {};
  std::vector<std::string> names;
  std::string line;
  for (const uint8_t byte : read_file(path, kMostBytes)) {
    if (byte == '\n') names.push_back(std::exchange(line, {}));
    if (byte != '\n' && byte != '\r') line += static_cast<char>(byte);
  }
  if (!line.empty()) names.push_back(line);
  return names;
}

}  // namespace bitgrad::data
