#include "data/data_file.h"

#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/picture.h"

namespace bitgrad {
namespace data {

std::string data_path(const std::string& root, const std::string& path) {
  if (root.empty() || path.starts_with('/')) return path;
  return root.ends_with('/') ? root + path : root + "/" + path;
}

std::unique_ptr<InputFile> open_data_file(std::string_view where, const DatasetSpec& spec, const std::string& key,
                                          const std::string& path, std::string_view expected) {
  const std::string full = data_path(spec.root, path);
  const std::string named = concat(key, " '", printable(full), "'");
  if (file_system().is_directory(full))
    fail_with(ErrorCode::kData, where, named, ": got a folder, expected ", expected, ".");
  if (!file_system().exists(full)) {
    const std::string twin = full.ends_with(".gz") ? full.substr(0, full.size() - 3) : full + ".gz";
    const std::string hint = file_system().exists(twin) ? concat(" There is '", printable(twin), "'.") : std::string();
    fail_with(ErrorCode::kData, where, named, ": no such file. '", printable(path),
              "' was looked up under data.root = '", spec.root.empty() ? "." : printable(spec.root),
              "'; set data.root or BITGRAD_DATA to the folder that holds it.", hint);
  }
  return file_system().open_read(full);
}

void warn_of_control_bytes(const std::string& path, int64_t count, int64_t size) {
  if (count > 0)
    log(LogLevel::kWarning, concat(printable(path), ": ", count, " of ", size,
                                   " bytes are not text (zero and other control characters): they are read like any "
                                   "other. Is it a file of another kind?"));
}

std::vector<std::string> packed_class_names(const std::string& labels) {
  constexpr std::string_view kEnd = ".labels.npy";
  if (!labels.ends_with(kEnd)) return {};
  const std::string path = labels.substr(0, labels.size() - kEnd.size()) + ".classes.txt";
  const bool there = file_system().exists(path) && !file_system().is_directory(path);
  return there ? read_class_names(path) : std::vector<std::string>{};
}

}  // namespace data

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

}  // namespace bitgrad
