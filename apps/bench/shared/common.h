// Shared by the benchmark programs: option parsing with the exit codes of the command line, and resident memory.
#pragma once

#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "cli/arguments.h"

namespace bitgrad::bench {

// A line of /proc/self/status, such as VmHWM, in bytes; 0 if there is no such line.
inline int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ':', 0) == 0) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return 0;
}

// Parses "ROWS,COLS" of --shape, each 1 .. 65536. Throws Error that names the program.
inline std::pair<int64_t, int64_t> parse_matrix_shape(const std::string& program, const std::string& text) {
  int64_t rows = 0, cols = 0;
  char comma = 0, rest = 0;
  TextReader in(text);
  const bool two = static_cast<bool>(in >> rows >> comma >> cols) && comma == ',' && !(in >> rest);
  require(two && rows >= 1 && cols >= 1 && rows <= 65536 && cols <= 65536, program, "--shape: got '", text,
          "', expected ROWS,COLS, two whole numbers of 1 .. 65536.");
  return {rows, cols};
}

// The body of main: opens missing standard streams, parses the options and runs. Returns 2 for a wrong option, the code
// of an Error, or 70 for any other exception.
template <typename Run>
int run_main(const std::string& name, Run&& run) {
  try {
    open_missing_streams();
    return run();
  } catch (const cli::HelpShown&) {
    return 0;
  } catch (const cli::UsageError& error) {
    std::cerr << name << ": " << error.what() << "\nRun with --help for the options.\n";
    return 2;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << '\n';
    return 70;
  }
}

}  // namespace bitgrad::bench
