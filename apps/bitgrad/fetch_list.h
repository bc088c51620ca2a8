// The data sets that `bitgrad data fetch` knows: where their files are, and what they must be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bitgrad::cli {

struct FetchFile {
  std::string path = {};  // below the folder of the data; its last part is its name on a mirror
  int64_t bytes = 0;
  std::string sha256 = {};  // 64 lower-case hexadecimal digits
  std::string name() const { return path.substr(path.rfind('/') + 1); }
};
struct FetchSet {
  std::string name = {};
  std::vector<std::string> mirrors = {};  // URLs that end with a slash, tried in this order
  std::optional<FetchFile> archive = {};  // a .tar.gz that holds `files`; none: they are fetched one by one
  std::vector<FetchFile> files = {};      // at least one
};

// The list in `file`, or that of the program where it is empty. Throws Error(kData) that names set and member for a
// file that has another form, a URL that is neither http nor https, and a path that leads out of the folder.
std::vector<FetchSet> read_fetch_list(const std::string& file);

}  // namespace bitgrad::cli
