// The data sets known to `bitgrad data fetch`: where their files are, and their expected content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bitgrad::cli {

struct FetchFile {
  std::string path = {};  // relative to the data folder; its last component is the file's name on a mirror
  int64_t bytes = 0;
  std::string sha256 = {};  // 64 lower-case hexadecimal digits
  std::string name() const { return path.substr(path.rfind('/') + 1); }
};
struct FetchSet {
  std::string name = {};
  std::vector<std::string> mirrors = {};  // URLs with a trailing slash, tried in this order
  std::optional<FetchFile> archive = {};  // a .tar.gz that contains `files`; none: they are downloaded one by one
  std::vector<FetchFile> files = {};      // at least one
};

// Reads the list in `file`, or the built-in one if `file` is empty. Throws Error(kData) that names data set and member
// for a malformed list, a URL that is neither http nor https, or a path that leads out of the folder.
std::vector<FetchSet> read_fetch_list(const std::string& file);

}  // namespace bitgrad::cli
