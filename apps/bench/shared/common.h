// What the benchmark programs share: reading options with the exit codes of the command line, and resident memory.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>

#include "bitgrad/base/error.h"

namespace bitgrad::bench {

// A line of /proc/self/status, such as VmHWM, in bytes; 0 where there is none.
inline int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ':', 0) == 0) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return 0;
}

// Parses and runs; 2 for a wrong option, the code of an Error otherwise.
template <typename Run>
int run_app(CLI::App& app, int argc, char** argv, Run&& run) {
  try {
    app.parse(argc, argv);
    return run();
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const Error& e) {
    std::cerr << "error: " << e.what() << '\n';
    return static_cast<int>(e.code());
  }
}

}  // namespace bitgrad::bench
