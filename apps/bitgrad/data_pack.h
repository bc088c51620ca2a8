// bitgrad data pack: converts folders of pictures to arrays.
#pragma once

#include <cstdint>
#include <string>

namespace bitgrad::cli {

struct PackOptions {
  std::string folder = {}, out = {}, size = {}, classes = {};
  int64_t channels = 3;
  bool skip_bad = false, force = false;
};

// Packs the folder into <out>.images.npy, <out>.labels.npy and <out>.classes.txt, and prints what it wrote. Returns the
// exit code. Throws Error for invalid options or folders and, before anything is written, for files that cannot be
// packed.
int run_pack(const PackOptions& options);

}  // namespace bitgrad::cli
