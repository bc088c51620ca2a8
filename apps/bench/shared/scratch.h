// A folder of a benchmark for one file, which is removed with it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bitgrad/base/error.h"

namespace bitgrad::bench {

class Scratch {
 public:
  // name: of the file that is to be written there. Throws Error.
  explicit Scratch(const std::string& name) {
    require(mkdtemp(path_.data()) != nullptr, "bench", "cannot make a folder '", path_, "'");
    file_ = path_ + "/" + name;
  }
  ~Scratch() {
    std::remove(file_.c_str());
    std::remove(path_.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& file() const { return file_; }

 private:
  std::string path_ = "/tmp/bitgrad_bench_XXXXXX", file_ = {};
};

}  // namespace bitgrad::bench
