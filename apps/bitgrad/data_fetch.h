// bitgrad data fetch: downloads known data sets into the folder that configurations read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bitgrad::cli {

struct FetchOptions {
  std::vector<std::string> names = {};
  std::string folder = {};   // empty: $BITGRAD_DATA, else the current folder
  std::string mirrors = {};  // a list (read_fetch_list) that replaces the built-in one
  bool force = false;        // replace files that differ
};

// Downloads what is missing, trying one mirror after the other, and moves a file to its place once its size and SHA-256
// are verified. FILE.part keeps the data of an interrupted attempt. Prints a line per file. Throws Error(kData) with
// the reason of each mirror and how to do it by hand, and Error(kUsage) for an unknown name or, before anything is
// downloaded, for an existing file with other content.
int run_fetch(const FetchOptions& options);

// The data sets known to `bitgrad data fetch`: where their files are, and their expected content.

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

// Downloads files over HTTP.

// Downloads `url` (http or https, following redirections) into the file `part`, whose complete length is `bytes`. What
// `part` already contains is taken as the beginning: only the rest is requested, or everything if the server does not
// support ranges. Returns an empty text, or why it failed. After a failure `part` holds a beginning from which another
// attempt can continue, or does not exist. Calls on_bytes with the length of `part`. Disk errors are thrown as the file
// system throws them.
std::string download(const std::string& url, const std::string& part, int64_t bytes,
                     const std::function<void(int64_t)>& on_bytes);

// Archives of data sets.

// Extracts the members `files` of a .tar.gz into `folder`, each under a temporary name that is renamed at the end.
// Other members are skipped. Throws Error(kData) for an archive that is damaged or lacks a member, and for a member
// whose path leads out of the folder, that is not a regular file, or whose content differs from the expected; existing
// files in the folder then keep their content. Throws Error(kUsage) if the program was built without libarchive.
void unpack(const std::string& archive, const std::string& folder, const std::vector<FetchFile>& files);

}  // namespace bitgrad::cli
