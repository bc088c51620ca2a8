// bitgrad data fetch: downloads known data sets into the folder that configurations read.
#pragma once

#include <string>
#include <vector>

namespace bitgrad::cli {

struct FetchOptions {
  std::vector<std::string> names = {};
  std::string folder = {};   // empty: $BITGRAD_DATA, else the current folder
  std::string mirrors = {};  // a list (fetch_list.h) that replaces the built-in one
  bool force = false;        // replace files that differ
};

// Downloads what is missing, trying one mirror after the other, and moves a file to its place once its size and SHA-256
// are verified. FILE.part keeps the data of an interrupted attempt. Prints a line per file. Throws Error(kData) with
// the reason of each mirror and how to do it by hand, and Error(kUsage) for an unknown name or, before anything is
// downloaded, for an existing file with other content.
int run_fetch(const FetchOptions& options);

}  // namespace bitgrad::cli
