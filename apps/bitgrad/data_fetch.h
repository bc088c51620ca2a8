// bitgrad data fetch: known data sets, from a network into the folder that configurations read.
#pragma once

#include <string>
#include <vector>

namespace bitgrad::cli {

struct FetchOptions {
  std::vector<std::string> names = {};
  std::string folder = {};   // empty: $BITGRAD_DATA, else the current one
  std::string mirrors = {};  // a list (fetch_list.h) in place of the built-in one
  bool force = false;        // files that differ are replaced
};

// Fetches what is missing, one mirror after the other, and puts a file in its place when its size and SHA-256 are
// right; FILE.part keeps what an interrupted try had. Prints a line a file. Throws Error(kData) with the reason of each
// mirror, and how to do it by hand; Error(kUsage) for an unknown name and, before anything is fetched, for a file that
// exists and is another one.
int run_fetch(const FetchOptions& options);

}  // namespace bitgrad::cli
