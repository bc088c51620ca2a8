// bitgrad data pack: pictures in folders, into arrays.
#pragma once

#include <cstdint>
#include <string>

namespace bitgrad::cli {

struct PackOptions {
  std::string folder = {}, out = {}, size = {}, classes = {};
  int64_t channels = 3;
  bool skip_bad = false, force = false;
};

// Packs the folder into <out>.images.npy, <out>.labels.npy and <out>.classes.txt, and prints what it made. Returns the
// exit code; throws Error for options and folders that do not fit, and before anything is written for files that cannot
// be packed.
int run_pack(const PackOptions& options);

}  // namespace bitgrad::cli
